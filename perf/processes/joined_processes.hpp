// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/processes/processes.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

namespace tutti::perf {

/// Which processes the ranks are, so that those of this machine can be looked after.
class RankProcesses {
 public:
  using Gather = std::function<std::vector<std::string>(const std::string& mine)>;
  /// Collective: `gather` brings every rank's text to all, in order.
  explicit RankProcesses(const Gather& gather);

  /// A rank whose process has ended, of those that this one can see: "rank 1 (process 4711) is gone".
  [[nodiscard]] std::optional<std::string> gone() const;

 private:
  std::vector<pid_t> processes_;  ///< of each rank; 0: cannot be seen from here
};

/// Ranks that a launcher has started, whatever brings them together.
///
/// Each operation begins with a meeting, in which every rank says whether it has failed. A rank that has goes
/// on to its next meeting: whichever operations the others are about to begin, that is the same one.
class JoinedProcesses : public Processes {
 public:
  [[nodiscard]] bool are_ranks() const final { return true; }
  void barrier() override { meet({}); }
  void maximum(std::span<double> values) final;
  [[nodiscard]] std::uint64_t sum(std::uint64_t value) final;
  void broadcast(std::span<std::byte> bytes) final;
  [[nodiscard]] std::vector<std::string> gather(const std::string& mine) final;
  void together(const std::function<void()>& work, const Release& release) final;
  void set_last_act(LastAct last_act) final { last_act_ = std::move(last_act); }
  [[nodiscard]] std::unique_ptr<Communicator> make_communicator(const CommunicatorOptions& options) final;

 protected:
  /// To be called all the time while other ranks are waited for. It may end the process.
  using Look = std::function<void()>;

  /// Every rank's bytes, all of one length, in order of ranks.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const Look& look) = 0;
  virtual void all_maximum(std::span<double> values, const Look& look) = 0;
  [[nodiscard]] virtual std::unique_ptr<Communicator> join(const CommunicatorOptions& options) = 0;
  /// Ends the job, or as much of it as can be reached, at once.
  virtual void end_job(int status) = 0;

  /// Collective, once the ranks can be gathered from: from now on, those that are gone are missed.
  void miss_those_that_go();

 private:
  class Patience;

  void work_and_meet(const std::function<void()>& work, const Release& release);
  /// `own`: with what this rank has failed.
  void meet(const std::optional<Failure>& own);
  [[nodiscard]] std::vector<std::string> gather_now(const std::string& mine);
  /// Runs `exchange` with a `Look`. If it throws, the ranks have lost one another.
  void exchange(const std::function<void(const Look&)>& exchange, const std::optional<Failure>& own = {});
  /// Ends the job where the ranks cannot agree on how to end it.
  [[noreturn]] void give_up(const Failure& failure, bool speaks);
  void speak(const Failure& failure) const;

  int depth_ = 0;  ///< of nested `together`
  std::optional<RankProcesses> ranks_;
  LastAct last_act_;
};

}  // namespace tutti::perf
