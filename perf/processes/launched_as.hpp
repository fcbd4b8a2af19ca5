// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace tutti::perf {

/// What brings the processes of a launcher together.
enum class Meeting : std::uint8_t {
  none,  ///< the process was started alone
  mpi,   ///< by mpirun, mpiexec, or srun with a plugin for MPI
  tcp,   ///< by torchrun, a script that sets the same variables, or srun
};

/// How the program was started, as far as its environment tells.
struct LaunchedAs {
  Meeting meeting = Meeting::none;
  std::optional<int> size;  ///< processes the launcher started
  std::optional<int> rank;  ///< of this one
};

/// Looks for what torchrun, Open MPI, MPICH, MVAPICH, PMIx and Slurm tell the processes they start. Launchers
/// pass on what others have told them: torchrun is started by others, and so are those of MPI by Slurm.
/// `variable` returns the value of an environment variable, or nullptr.
[[nodiscard]] LaunchedAs launched_as(const std::function<const char*(const char*)>& variable);

}  // namespace tutti::perf
