# SPDX-License-Identifier: Apache-2.0
# cpack makes packages of what is installed: a .deb for each component, or one .tar.gz.
set(CPACK_PACKAGE_NAME tutti)
set(CPACK_PACKAGE_VENDOR "The tutti authors")
set(CPACK_PACKAGE_CONTACT "The tutti authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)

set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian_layout.cmake)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR} ${PROJECT_BINARY_DIR}/collectives/bootstrap/mpi)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libtutti-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEV_DESCRIPTION "Headers, and files for CMake and pkg-config.")
set(CPACK_COMPONENTS_ALL dev)
if(TUTTI_BUILD_PERF)
  list(APPEND CPACK_COMPONENTS_ALL tools)
  set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME tutti-tools)
  set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
  set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS "python3 (>= 3.11)")
  set(CPACK_DEBIAN_TOOLS_DESCRIPTION "tutti-perf, which checks and measures, and what draws and compares its results.")
endif()
if(TUTTI_HAS_NCCL_API)
  list(APPEND CPACK_COMPONENTS_ALL nccl)
  set(CPACK_DEBIAN_NCCL_PACKAGE_NAME tutti-nccl)
  set(CPACK_DEBIAN_NCCL_PACKAGE_SECTION libs)
  set(
    CPACK_DEBIAN_NCCL_DESCRIPTION
    "NCCL's interface, for programs that were written for NCCL, and tutti-run, which starts them."
  )
endif()
# NVIDIA's package of the CUDA runtime, or Debian's; a toolkit that is there by other means will do, too.
if(tutti_needs_cudart)
  set(
    CPACK_DEBIAN_DEV_PACKAGE_RECOMMENDS
    "cuda-cudart-dev-${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR} | nvidia-cuda-dev"
  )
endif()
if(tutti_needs_sodium)
  set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS libsodium-dev)
endif()
# Debian's MPI, which takes part only where it is asked for.
if(TUTTI_HAS_MPI AND "${MPI_CXX_LIBRARIES}" MATCHES "openmpi")
  set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS libopenmpi-dev)
  if(TUTTI_BUILD_PERF)
    string(APPEND CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS ", openmpi-bin")
  endif()
endif()
if(tutti_type STREQUAL SHARED_LIBRARY)
  list(APPEND CPACK_COMPONENTS_ALL library)
  set(tutti_soname_package libtutti${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${tutti_soname_package})
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "The shared library.")
  set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${tutti_soname_package} (= ${PROJECT_VERSION})")
  set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${tutti_soname_package} (= ${PROJECT_VERSION})")
  # Programs of others learn from it what package they depend on.
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
endif()
# Each package comes with its licence, where Debian's have it.
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} tutti_component)
  install(
    FILES LICENSE
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${tutti_component}_PACKAGE_NAME}
    RENAME copyright
    COMPONENT ${component}
  )
endforeach()
include(CPack)
