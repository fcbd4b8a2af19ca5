// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace tutti::perf {

/// The means by which the processes of a launcher find one another.
enum class Meeting : std::uint8_t {
  none,  ///< the process was started alone
  mpi,   ///< by mpirun, mpiexec, or srun with a plugin for MPI
  tcp,   ///< by torchrun, a script that sets the same variables, or srun
};

/// The way in which the program was started, according to its environment.
struct LaunchedAs {
  Meeting meeting = Meeting::none;
  std::optional<int> size;  ///< processes the launcher started
  std::optional<int> rank;  ///< of this one
};

/// Looks for the variables that torchrun, Open MPI, MPICH, MVAPICH, PMIx and Slurm set for the processes they
/// start. Launchers pass on variables of others: torchrun may be started by other launchers, and launchers of
/// MPI by Slurm. `variable` returns the value of an environment variable, or nullptr.
[[nodiscard]] LaunchedAs launched_as(const std::function<const char*(const char*)>& variable);

}  // namespace tutti::perf
