# SPDX-License-Identifier: Apache-2.0
# Decides whether libtutti_nccl.so is built, which has NCCL's interface. Sets TUTTI_HAS_NCCL_API.

set(TUTTI_HAS_NCCL_API OFF)
if(TUTTI_NCCL_API)
  # It holds the whole library, so that a program needs to load one file, and sees none of what is within.
  if(NOT BUILD_SHARED_LIBS)
    set(TUTTI_HAS_NCCL_API ON)
  elseif(NOT TUTTI_NCCL_API STREQUAL AUTO)
    message(
      FATAL_ERROR
      "TUTTI_NCCL_API is ${TUTTI_NCCL_API}, but needs the static library: set BUILD_SHARED_LIBS to OFF."
    )
  endif()
endif()

message(STATUS "tutti: NCCL's interface ${TUTTI_HAS_NCCL_API}")
