// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/processes/processes.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

namespace tutti::perf {

/// Ranks that a launcher has started, whatever brings them together.
///
/// Each operation is a meeting, in which every rank says first whether it has failed. A rank that has goes on
/// to its next meeting: whichever operations the others are about to begin, that is the same one.
class JoinedProcesses : public Processes {
 public:
  [[nodiscard]] bool are_ranks() const final { return true; }
  void barrier() override { static_cast<void>(gather({})); }
  [[nodiscard]] std::vector<std::string> gather(const std::string& mine) final { return meet(mine, {}); }
  void together(const std::function<void()>& work, const Release& release) final;
  void set_last_act(LastAct last_act) final { last_act_ = std::move(last_act); }
  [[nodiscard]] std::unique_ptr<Communicator> make_communicator(const CommunicatorOptions& options) final;

 protected:
  /// A function that is called again and again while other ranks are waited for. It may end the process.
  using Look = std::function<void()>;

  /// Gathers every rank's bytes, all of one length, in order of ranks.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const Look& look) = 0;
  [[nodiscard]] virtual std::unique_ptr<Communicator> join(const CommunicatorOptions& options) = 0;
  /// Ends the job, or as much of it as can be reached, at once.
  virtual void end_job(int status) = 0;

  /// Collective, once the ranks can be gathered from: from now on, those that are gone are missed.
  void miss_those_that_go();

 private:
  class Patience;

  void work_and_meet(const std::function<void()>& work, const Release& release);
  /// Gathers every rank's text. `own`: with what this rank has failed.
  std::vector<std::string> meet(const std::string& mine, const std::optional<Failure>& own);
  /// Gathers bytes of all ranks. If that throws, the ranks have lost one another.
  void exchange(std::span<const std::byte> mine, std::span<std::byte> all, const std::optional<Failure>& own);
  /// Ends the job where the ranks cannot agree on how to end it.
  [[noreturn]] void give_up(const Failure& failure);

  std::size_t depth_ = 0;         ///< of nested `together`
  std::vector<pid_t> processes_;  ///< of each rank; 0: cannot be seen from here
  LastAct last_act_;
};

}  // namespace tutti::perf
