# Decides whether the GPU backend and the NCCL transport are built.
# Sets TUTTI_HAS_CUDA and TUTTI_HAS_NCCL; defines the target tutti_nccl_headers when nccl.h is there.

set(tutti_oldest_cuda 12.0) # the first nvcc that compiles C++20

set(TUTTI_HAS_CUDA OFF)
if(TUTTI_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)
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
    message(FATAL_ERROR "TUTTI_CUDA is ${TUTTI_CUDA}, but no CUDA toolkit ${tutti_oldest_cuda} or newer was found "
                        "(found: '${CUDAToolkit_VERSION}'). Set CMAKE_CUDA_COMPILER to its nvcc, or TUTTI_CUDA to OFF.")
  endif()
endif()

if(TUTTI_HAS_CUDA)
  # The runtime is linked by name (CUDA::cudart_static), so that consumers need not enable the language.
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)
  enable_language(CUDA)
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
    target_include_directories(tutti_nccl_headers SYSTEM INTERFACE ${TUTTI_NCCL_INCLUDE_DIR}
                                                                   ${CUDAToolkit_INCLUDE_DIRS})
  endif()
endif()
if(TUTTI_NCCL AND NOT TUTTI_NCCL STREQUAL AUTO AND NOT TUTTI_HAS_NCCL)
  message(FATAL_ERROR "TUTTI_NCCL is ${TUTTI_NCCL}, but there is no nccl.h (package libnccl-dev) or no CUDA.")
endif()

message(STATUS "tutti: GPU backend ${TUTTI_HAS_CUDA} (CUDA ${CUDAToolkit_VERSION}; ${CMAKE_CUDA_ARCHITECTURES}), "
               "NCCL transport ${TUTTI_HAS_NCCL}")
