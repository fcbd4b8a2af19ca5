# SPDX-License-Identifier: Apache-2.0
# Decides whether the component tutti::mpi is built. Sets TUTTI_HAS_MPI.

set(TUTTI_HAS_MPI OFF)
if(TUTTI_MPI)
  # What FindMPI finds for C++ is the C interface for a C++ compiler: for "C" it would need that language enabled, here
  # and in every project that uses the component.
  find_package(MPI 3.0 QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    set(TUTTI_HAS_MPI ON)
  elseif(NOT TUTTI_MPI STREQUAL AUTO)
    message(
      FATAL_ERROR
      "TUTTI_MPI is ${TUTTI_MPI}, but no MPI 3 or newer was found (packages libopenmpi-dev and "
      "openmpi-bin, or put its mpicxx on the PATH)."
    )
  endif()
endif()

message(STATUS "tutti: MPI component ${TUTTI_HAS_MPI} (MPI ${MPI_CXX_VERSION})")
