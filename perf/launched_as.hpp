// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

namespace tutti::perf {

/// How the program was started, as far as its environment tells.
struct LaunchedAs {
  bool by_launcher = false;  ///< mpirun, mpiexec or srun
  std::optional<int> size;   ///< processes the launcher started
  std::optional<int> rank;   ///< of this one
};

/// Looks for what Open MPI, MPICH, MVAPICH, PMIx and Slurm tell the processes they start. `variable` returns
/// the value of an environment variable, or nullptr.
[[nodiscard]] LaunchedAs launched_as(const std::function<const char*(const char*)>& variable);

}  // namespace tutti::perf
