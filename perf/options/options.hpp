// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/foreign_memory.hpp"
#include "perf/operations/operation.hpp"
#include "perf/operations/sizes.hpp"
#include "perf/operations/tensor_lists.hpp"
#include "perf/session/timing.hpp"
#include "tutti/collectives.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::perf {

/// The command of a run.
enum class Command : std::uint8_t {
  help,     ///< print `Options::help`, which is the version if that was asked for, and leave
  measure,  ///< measure `Options::operations`
  topo,     ///< devices, links, self-test
  explain,  ///< the plan of one operation
  tensors,  ///< print a tensor list as a file that --tensors takes
};

/// The way in which operations are launched.
enum class LaunchForm : std::uint8_t {
  eager,
  persistent,  ///< bound once: on GPUs, replays of one graph
};

/// The tensors in which results are placed.
enum class ResultForm : std::uint8_t {
  given,     ///< into tensors the call is given
  returned,  ///< into new tensors, which the call allocates and returns
};
inline constexpr Named<ResultForm> result_names[] = {{"out", ResultForm::given},
                                                     {"new", ResultForm::returned}};
inline constexpr Named<LaunchForm> launch_names[] = {{"eager", LaunchForm::eager},
                                                     {"persistent", LaunchForm::persistent}};
inline constexpr Named<Determinism> determinism_names[] = {{"fastest", Determinism::fastest},
                                                           {"bitwise", Determinism::bitwise}};

/// The library that tutti is compared with.
enum class PeerChoice : std::uint8_t { none, nccl, mpi };

/// The refusal of a communicator's operations with --multiprocessors 0.
inline constexpr std::string_view kernels_carry_communicators =
    "--multiprocessors 0: operations of communicators need kernels, expected at least 1";

/// The command line, checked as far as it can be without looking at devices.
struct Options {
  Mode mode = Mode::single_process;
  Command command = Command::help;
  std::string help;
  std::vector<const Operation*> operations;
  std::size_t explain_bytes = 0;
  SizeSweep sizes;
  std::vector<DType> dtypes{DType::float32};
  std::vector<ReduceKind> reductions{ReduceKind::sum};  ///< of operations that reduce
  std::optional<int> root = 0;                          ///< nothing: every member in turn
  std::vector<int> dims{0};                             ///< scatter and gather
  std::string tensors_name;                             ///< --tensors as given; empty: sizes are swept
  std::vector<std::vector<TensorSpec>>
      tensors;                      ///< coalesced operations: a list for each of `dtypes`, or none
  std::optional<int> devices_used;  ///< of every process
  TimingPlan timing;
  LaunchForm launch = LaunchForm::eager;
  bool replays = false;  ///< calls of a communicator that are persistent are replayed, several in a graph
  ResultForm results = ResultForm::given;
  bool check = true;
  CollectiveOptions collective;
  std::string backend;           ///< empty: as the environment says
  std::string virtual_topology;  ///< empty: as the environment says
  std::optional<int> virtual_devices;
  PeerChoice peer = PeerChoice::none;
  std::optional<int> peer_mode;   ///< of NCCL, as nccl-tests' -R counts them; nothing: each
  bool shows_spread = false;      ///< of latencies: min, max and coefficient of variation
  bool shows_timestamps = false;  ///< when a row was measured
  int cycles = 1;                 ///< how often all is measured; 0: until interrupted
  std::optional<std::chrono::seconds> row_timeout;
  int calls_of_a_launch = 1;                  ///< one after another
  int first_element = 0;                      ///< of operands, in memory that begins aligned
  MemoryChoice memory = MemoryChoice::tutti;  ///< of operands
  int groups = 1;                             ///< of ranks, which measure at the same time
  std::string json_file;
  std::string baseline_file;  ///< that rows are compared with
  double tolerance = 3.0;     ///< how much slower than there a time may be, in per cent
};

/// Parses the command line. Throws UsageError for anything that is unknown, impossible or contradictory.
[[nodiscard]] Options parse_options(int argc, const char* const* argv, Mode mode);

}  // namespace tutti::perf
