// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/block_memory.hpp"
#include "perf/operations/case.hpp"
#include "perf/options/options.hpp"
#include "perf/processes/processes.hpp"
#include "perf/session/device_watch.hpp"
#include "perf/session/job.hpp"
#include "tutti/communicator.hpp"
#include "tutti/stream.hpp"
#include "tutti/topology.hpp"

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tutti::perf {

/// The devices of a run: selects the backend the options ask for, tests the peers, and gives the calling
/// thread a pooled stream on each device, so that nothing runs on the legacy default stream. Between ranks,
/// or for operations that need it, joins the devices in a communicator.
class Session {
 public:
  /// Throws UsageError if the options do not fit the devices there are.
  Session(const Options& options, Processes& processes);

  [[nodiscard]] Processes& processes() const noexcept { return processes_; }
  [[nodiscard]] const Topology& topology() const noexcept { return topology_; }
  [[nodiscard]] const Members& members() const noexcept { return members_; }
  /// Returns the members for an operation, with the communicator only if the operation needs it.
  [[nodiscard]] Members members_of(const Operation& operation) const;
  /// Returns why the operation is not possible here; empty if it is.
  [[nodiscard]] std::string refusal(const Operation& operation) const;
  [[nodiscard]] const Job& job() const noexcept { return job_; }
  /// Returns how many of the topology's first devices include all devices that take part on this process's
  /// host.
  [[nodiscard]] int devices_shown() const noexcept { return devices_shown_; }
  /// Returns the streams of this process's members, in order.
  [[nodiscard]] const std::vector<Stream>& streams() const noexcept { return streams_; }
  /// Returns the watch of this process's devices.
  [[nodiscard]] DeviceWatch& watch() const noexcept { return *watch_; }
  /// Blocks until all work on these streams is done.
  void synchronize() const;
  /// Returns how many sets of buffers to use in turn, as far as memory allows, so that an operation does not
  /// find its data in caches that an earlier one has filled. The same on all ranks.
  [[nodiscard]] int buffer_sets(std::size_t payload_bytes) const;
  /// Returns the memory of tutti's operands; nullptr: where the library allocates them.
  [[nodiscard]] OperandArena* arena() const noexcept { return arena_.get(); }
  /// Returns the plan of the operation's last call.
  [[nodiscard]] PlanSummary last_plan(const Operation& operation) const;
  /// Runs `work` on all ranks; if it fails on one rank, it fails on all (see `Processes`). That ends the
  /// communicator between ranks, if others may wait in it.
  void together(const std::function<void()>& work) const;
  /// Makes calls of the communicator, inside `together`. All ranks meet before, so that a rank that has
  /// failed is found, and not waited for in the calls.
  template <class Calls>
  void call(Calls&& calls) const {
    is_calling_ = true;
    calls();
    is_calling_ = false;
  }
  /// Ends the communicator's calls that are under way; called by any thread.
  void abort(const std::string& reason) const;
  /// Makes the communicator again on all ranks, if Error(out_of_memory) in `together` has ended it. Throws as
  /// `together`.
  void recover();

 private:
  void choose_devices(const Options& options);
  void join_ranks();
  void join_local_devices();
  /// Joins all ranks, and joins them in groups if there are several.
  void join();
  void part();
  void gather_members();
  void make_arena(MemoryChoice choice);

  Processes& processes_;
  Topology topology_;
  Members members_;
  std::vector<Stream> streams_;
  CommunicatorOptions settings_;
  std::unique_ptr<DeviceWatch> watch_;
  std::unique_ptr<OperandArena> arena_;  ///< outlives the communicators
  mutable std::mutex communicators_;     ///< held where they are made, ended and aborted
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Communicator> group_;  ///< of this rank, if there are several
  mutable bool is_calling_ = false;      ///< or has failed in a call
  std::string communicator_refusal_;
  Job job_;
  int devices_shown_ = 0;
  std::size_t free_bytes_ = 0;  ///< on the device with least
};

}  // namespace tutti::perf
