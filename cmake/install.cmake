# SPDX-License-Identifier: Apache-2.0
include(CMakePackageConfigHelpers)

get_target_property(tutti_type tutti TYPE)
# Programs link the CUDA runtime of a static library themselves; a shared one has it within.
set(tutti_needs_cudart OFF)
if(TUTTI_HAS_CUDA AND tutti_type STREQUAL STATIC_LIBRARY)
  set(tutti_needs_cudart ON)
  cmake_path(GET CUDA_cudart_static_LIBRARY PARENT_PATH tutti_cuda_library_dir)
endif()
# Likewise libsodium.
set(tutti_needs_sodium OFF)
cmake_path(GET TUTTI_SODIUM_LIBRARY PARENT_PATH tutti_sodium_library_dir)
if(tutti_type STREQUAL STATIC_LIBRARY)
  set(tutti_needs_sodium ON)
endif()
set(headers_without_use "")
if(NOT TUTTI_HAS_CUDA)
  list(APPEND headers_without_use PATTERN cuda_interop.hpp EXCLUDE)
endif()
if(NOT TUTTI_HAS_MPI)
  list(APPEND headers_without_use PATTERN mpi.hpp EXCLUDE)
endif()
if(NOT TUTTI_HAS_CUDA_LIBRARIES)
  list(APPEND headers_without_use PATTERN cuda_libraries.hpp EXCLUDE)
endif()
set(tutti_config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)

# What is installed belongs to a component: `library` what programs need to run, where it is shared; `dev` what it takes to
# build them; `tools` tutti-perf and what belongs to it.
function(tutti_install_library target export)
  install(TARGETS ${target} EXPORT ${export} LIBRARY COMPONENT library NAMELINK_COMPONENT dev ARCHIVE COMPONENT dev)
  install(EXPORT ${export} NAMESPACE tutti:: DESTINATION ${tutti_config_dir} COMPONENT dev)
endfunction()

tutti_install_library(tutti tuttiTargets)
install(
  DIRECTORY include/tutti
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT dev
  FILES_MATCHING
  PATTERN *.hpp
  PATTERN *.cuh ${headers_without_use}
)
install(
  FILES ${PROJECT_BINARY_DIR}/generated/tutti/version.hpp
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tutti
  COMPONENT dev
)
if(TUTTI_HAS_MPI)
  # In a file of its own: what it names exists only where the component was asked for.
  tutti_install_library(tutti_mpi tuttiMpiTargets)
endif()
if(TUTTI_HAS_CUDA_LIBRARIES)
  tutti_install_library(tutti_cuda_libraries tuttiCudaLibrariesTargets)
endif()
if(TUTTI_HAS_NCCL_API)
  # Programs load it, and need nothing else; no project links it by its target.
  install(TARGETS tutti_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT nccl)
  install(PROGRAMS scripts/tutti-run DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT nccl)
  install(FILES include/tutti/nccl_api.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tutti COMPONENT dev)
endif()
if(TUTTI_BUILD_PERF)
  include(cmake/install_tools.cmake)
endif()
configure_package_config_file(cmake/tuttiConfig.cmake.in tuttiConfig.cmake INSTALL_DESTINATION ${tutti_config_dir})
write_basic_package_version_file(tuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(
  FILES ${PROJECT_BINARY_DIR}/tuttiConfig.cmake ${PROJECT_BINARY_DIR}/tuttiConfigVersion.cmake
  DESTINATION ${tutti_config_dir}
  COMPONENT dev
)

# pkg-config gives what the linker needs beside a static library with and without --static, as a tutti.pc is of one kind of library
# alone. There is no -pthread, which nvcc does not know.
set(tutti_pc_libs "")
set(tutti_pc_cudalibdir "")
if(tutti_type STREQUAL STATIC_LIBRARY)
  set(tutti_pc_libs " -lsodium -lstdc++ -lpthread -ldl -lrt")
  if(NOT tutti_sodium_library_dir IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
    string(PREPEND tutti_pc_libs " -L${tutti_sodium_library_dir}")
  endif()
endif()
if(tutti_needs_cudart)
  string(PREPEND tutti_pc_libs " -L\${cudalibdir} -lcudart_static")
  set(tutti_pc_cudalibdir "cudalibdir=${tutti_cuda_library_dir}\n")
endif()
# The prefix is told relative to the file, so that the installed tree may be moved.
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE tutti_pc_dir)
cmake_path(APPEND tutti_pc_dir pkgconfig)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${tutti_pc_dir} OUTPUT_VARIABLE tutti_pc_to_prefix)
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_LIBDIR BASE_DIRECTORY "\${prefix}" OUTPUT_VARIABLE tutti_pc_libdir)
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_INCLUDEDIR BASE_DIRECTORY "\${prefix}" OUTPUT_VARIABLE tutti_pc_includedir)
configure_file(cmake/tutti.pc.in tutti.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tutti.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
if(TUTTI_HAS_MPI)
  # The MPI this build was made with; another one has another binary interface.
  list(TRANSFORM MPI_CXX_INCLUDE_DIRS PREPEND -I OUTPUT_VARIABLE tutti_mpi_cflags)
  list(JOIN tutti_mpi_cflags " " tutti_mpi_cflags)
  list(JOIN MPI_CXX_LIBRARIES " " tutti_mpi_libs)
  configure_file(cmake/tutti-mpi.pc.in tutti-mpi.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/tutti-mpi.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endif()

if(PROJECT_IS_TOP_LEVEL)
  include(cmake/packages.cmake)
endif()
