// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/failure.hpp"
#include "perf/processes/processes.hpp"

#include <fmt/format.h>

namespace tutti::perf {

std::unique_ptr<Processes> make_mpi_processes(const LaunchedAs& launched) {
  if (launched.size == 1) return make_single_process();
  throw UsageError(
      fmt::format("started as one of {} processes, but this tutti-perf was built without MPI (TUTTI_MPI): "
                  "start it alone, or by torchrun or srun",
                  launched.size ? std::to_string(*launched.size) : "several"));
}

}  // namespace tutti::perf
