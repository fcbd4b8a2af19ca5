# SPDX-License-Identifier: Apache-2.0
# Decides whether the GPU backend and the NCCL transport are built.
# Sets TUTTI_HAS_CUDA, TUTTI_HAS_NCCL and TUTTI_HAS_CUDA_LIBRARIES; defines the target tutti_nccl_headers when nccl.h is there.

set(tutti_oldest_cuda 12.0) # the first nvcc that compiles C++20

set(tutti_architectures 80-real 90-real 90-virtual)
set(tutti_oldest_architecture 70)

set(TUTTI_HAS_CUDA OFF)
if(TUTTI_CUDA)
  # Where tutti is a part of another project, CMAKE_CUDA_ARCHITECTURES is that one's, or what CMake chooses for it.
  if(NOT PROJECT_IS_TOP_LEVEL)
    set(TUTTI_CUDA_ARCHITECTURES "${tutti_architectures}" CACHE STRING "CUDA_ARCHITECTURES of tutti in another project")
    set(tutti_architectures ${TUTTI_CUDA_ARCHITECTURES})
  elseif(DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(tutti_architectures ${CMAKE_CUDA_ARCHITECTURES})
  elseif(DEFINED ENV{CUDAARCHS})
    set(tutti_architectures $ENV{CUDAARCHS})
  else()
    set(CMAKE_CUDA_ARCHITECTURES ${tutti_architectures})
  endif()
  # The toolkit's own installer leaves nvcc here without putting it on the PATH.
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(TUTTI_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin PATHS /usr/local/cuda/bin)
    mark_as_advanced(TUTTI_NVCC)
    if(TUTTI_NVCC)
      set(CMAKE_CUDA_COMPILER ${TUTTI_NVCC})
    endif()
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    find_package(CUDAToolkit QUIET)
  endif()
  if(CUDAToolkit_FOUND AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL tutti_oldest_cuda)
    set(TUTTI_HAS_CUDA ON)
  elseif(NOT TUTTI_CUDA STREQUAL AUTO)
    message(
      FATAL_ERROR
      "TUTTI_CUDA is ${TUTTI_CUDA}, but no CUDA toolkit ${tutti_oldest_cuda} or newer was found "
      "(found: '${CUDAToolkit_VERSION}'). Set CMAKE_CUDA_COMPILER to its nvcc, or TUTTI_CUDA to OFF."
    )
  endif()
endif()

if(TUTTI_HAS_CUDA)
  # The runtime is linked by name (CUDA::cudart_static), so that consumers need not enable the language.
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)
  foreach(architecture IN LISTS tutti_architectures)
    if(architecture MATCHES "^[0-9]+" AND CMAKE_MATCH_0 LESS tutti_oldest_architecture)
      message(
        FATAL_ERROR
        "tutti's kernels need sm_${tutti_oldest_architecture} or newer, not ${architecture}: set "
        "CMAKE_CUDA_ARCHITECTURES (in a project that adds tutti: TUTTI_CUDA_ARCHITECTURES), or "
        "TUTTI_CUDA to OFF."
      )
    endif()
  endforeach()
  enable_language(CUDA)
  if(NOT PROJECT_IS_TOP_LEVEL)
    set(CMAKE_CUDA_ARCHITECTURES ${tutti_architectures})
  endif()
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION) # CMake 3.25 does not know that nvcc has it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
endif()

set(TUTTI_HAS_NCCL OFF)
if(TUTTI_NCCL AND TUTTI_HAS_CUDA)
  find_path(TUTTI_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV NCCL_HOME PATH_SUFFIXES include)
  mark_as_advanced(TUTTI_NCCL_INCLUDE_DIR)
  if(TUTTI_NCCL_INCLUDE_DIR)
    set(TUTTI_HAS_NCCL ON)
    add_library(tutti_nccl_headers INTERFACE)
    target_include_directories(
      tutti_nccl_headers
      SYSTEM
      INTERFACE ${TUTTI_NCCL_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS}
    )
  endif()
endif()
if(TUTTI_NCCL AND NOT TUTTI_NCCL STREQUAL AUTO AND NOT TUTTI_HAS_NCCL)
  message(FATAL_ERROR "TUTTI_NCCL is ${TUTTI_NCCL}, but there is no nccl.h (package libnccl-dev) or no CUDA.")
endif()

set(TUTTI_HAS_CUDA_LIBRARIES OFF)
if(TUTTI_CUDA_LIBRARIES STREQUAL AUTO AND BUILD_SHARED_LIBS)
  # A package of the shared libraries would depend on cuBLAS and cuFFT for everybody.
elseif(TUTTI_CUDA_LIBRARIES AND TUTTI_HAS_CUDA AND TARGET CUDA::cublas AND TARGET CUDA::cufft)
  set(TUTTI_HAS_CUDA_LIBRARIES ON)
elseif(TUTTI_CUDA_LIBRARIES AND NOT TUTTI_CUDA_LIBRARIES STREQUAL AUTO)
  message(FATAL_ERROR "TUTTI_CUDA_LIBRARIES is ${TUTTI_CUDA_LIBRARIES}, but there is no cuBLAS, no cuFFT or no CUDA.")
endif()

message(
  STATUS
  "tutti: GPU backend ${TUTTI_HAS_CUDA} (CUDA ${CUDAToolkit_VERSION}; ${CMAKE_CUDA_ARCHITECTURES}), "
  "NCCL transport ${TUTTI_HAS_NCCL}, component cuda_libraries ${TUTTI_HAS_CUDA_LIBRARIES}"
)
