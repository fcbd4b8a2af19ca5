# SPDX-License-Identifier: Apache-2.0
# For run_ranks and two_hosts: mpirun on a machine that may be a container, as root, with fewer cores than ranks and
# little shared memory.
# shellcheck shell=bash

is_open_mpi() { [[ $("$1" --version 2>&1) =~ Open\ MPI|OpenRTE ]]; }

# open_mpi_settings SCRATCH: Open MPI's shared memory goes to that directory; /dev/shm may be tiny.
open_mpi_settings() {
  # shellcheck disable=SC2034 # those who source this read it
  open_mpi_options=(--allow-run-as-root --oversubscribe --bind-to none)
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export OMPI_MCA_pml=ob1 OMPI_MCA_mpi_yield_when_idle=1
  export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_btl_vader_backing_directory=$1
}

# Sanitizers are told what is MPI's own.
suppress_what_is_mpi() {
  local here
  here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
  export LSAN_OPTIONS=${LSAN_OPTIONS:+$LSAN_OPTIONS:}suppressions=$here/lsan.supp:print_suppressions=0
  export TSAN_OPTIONS=${TSAN_OPTIONS:+$TSAN_OPTIONS:}suppressions=$here/tsan.supp:print_suppressions=0
}
