// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/host/address_space.hpp"
#include "backend/host/progress.hpp"
#include "backend/shared_flag.hpp"
#include "backend/team_round.hpp"
#include "tutti/error.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::backend::host {

/// What a task throws that was ended from elsewhere: it keeps its code as a failure of the device.
class Ended final : public Error {
 public:
  using Error::Error;
};

/// One entry of a stream's queue.
class Task {
 public:
  explicit Task(std::string name) : name_(std::move(name)) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  /// Called once, on the stream's worker. What it throws becomes a pending failure of the device, with the
  /// code device_failure unless it is `Ended`.
  virtual void run() = 0;
  /// The ticket a waiting entry waits for; nullptr for entries that do work.
  [[nodiscard]] virtual const Ticket* awaited() const noexcept { return nullptr; }
  /// Whether `run` would not block on flags that others set.
  [[nodiscard]] virtual bool ready() const noexcept { return true; }
  /// Another one that does the same: a graph queues one at each launch.
  [[nodiscard]] virtual std::unique_ptr<Task> clone() const = 0;
  /// A launch of a graph is about to queue it: it counts as an operation now. Throws if that is refused.
  virtual void begin_launch() {}
  /// What failures call it.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
};

/// Holds back what is queued behind it until `ticket` is complete.
class WaitTask final : public Task {
 public:
  explicit WaitTask(Ticket ticket) : Task("wait_event"), ticket_(std::move(ticket)) {}
  void run() override;
  [[nodiscard]] const Ticket* awaited() const noexcept override { return &ticket_; }
  [[nodiscard]] std::unique_ptr<Task> clone() const override { return std::make_unique<WaitTask>(ticket_); }

 private:
  Ticket ticket_;
};

/// How many rounds a member's calls that are over had, which its device counts: graphs are launched again and
/// again.
class RoundCount {
 public:
  /// `counters`, in memory of `block`; nullptr: the rounds are `before`.
  RoundCount(std::shared_ptr<const Allocation> block, TeamCounters* counters, std::uint32_t before)
      : block_(std::move(block)), counters_(counters), before_(before) {}
  /// Modulo 2^32.
  [[nodiscard]] std::uint32_t get() const noexcept {
    return counters_ == nullptr ? before_
                                : static_cast<std::uint32_t>(std::atomic_ref(counters_->rounds).load());
  }
  /// A call is over that had `rounds`.
  void add(std::uint32_t rounds) const noexcept {
    if (counters_ != nullptr) std::atomic_ref(counters_->rounds).fetch_add(rounds);
  }
  /// A call is over that counts so.
  void set_done(std::uint32_t value) const noexcept {
    if (counters_ != nullptr) counters_->done.store(value);
  }

 private:
  std::shared_ptr<const Allocation> block_;
  TeamCounters* counters_;
  std::uint32_t before_;
};

/// Throws Ended, with the reason's code, if the team has given up.
void require_running(const AbortWord& abort);
/// Where something has been caught: the team has failed with it, and `process` says so.
void end_team(AbortWord& abort, std::uint32_t process) noexcept;

/// Does its work when other processes have done theirs.
class TeamTask final : public Task {
 public:
  /// A flag and the round it must have come to, which is `round` behind those of the calls before.
  struct Condition {
    SharedFlag* flag;
    std::uint32_t round;
  };
  /// `work` runs once all conditions hold. Their flags lie in `window`. If it fails, the team has: the others
  /// would take the flags of later rounds for those of this one. `process` then sets `abort`.
  TeamTask(std::vector<Condition> conditions, RoundCount rounds_before,
           std::shared_ptr<const Allocation> window, AbortWord& abort, std::uint32_t process,
           std::unique_ptr<Task> work)
      : Task("team_round"),
        conditions_(std::move(conditions)),
        rounds_before_(std::move(rounds_before)),
        window_(std::move(window)),
        abort_(abort),
        process_(process),
        work_(std::move(work)) {}
  /// Throws Ended, with the reason's code, if the team has given up.
  void run() override;
  [[nodiscard]] bool ready() const noexcept override;
  [[nodiscard]] std::unique_ptr<Task> clone() const override;
  void begin_launch() override { work_->begin_launch(); }

 private:
  std::vector<Condition> conditions_;
  RoundCount rounds_before_;
  std::shared_ptr<const Allocation> window_;
  AbortWord& abort_;
  std::uint32_t process_;
  std::unique_ptr<Task> work_;
};

/// Holds back what is queued behind it until all flags have come to a value.
class SignalsTask final : public Task {
 public:
  SignalsTask(std::span<SharedFlag> flags, std::uint32_t value)
      : Task("wait_signals"), flags_(flags), value_(value) {}
  void run() override;
  [[nodiscard]] bool ready() const noexcept override;
  [[nodiscard]] std::unique_ptr<Task> clone() const override {
    return std::make_unique<SignalsTask>(flags_, value_);
  }

 private:
  std::span<SharedFlag> flags_;
  std::uint32_t value_;
};

template <class Function>
class FunctionTask final : public Task {
 public:
  FunctionTask(std::string name, Function function) : Task(std::move(name)), function_(std::move(function)) {}
  void run() override { function_(); }
  [[nodiscard]] std::unique_ptr<Task> clone() const override {
    return std::make_unique<FunctionTask>(name(), function_);
  }
  void begin_launch() override {
    if constexpr (requires { function_.begin_launch(); }) function_.begin_launch();
  }

 private:
  Function function_;
};

template <class Function>
[[nodiscard]] std::unique_ptr<Task> make_task(std::string name, Function function) {
  return std::make_unique<FunctionTask<Function>>(std::move(name), std::move(function));
}

}  // namespace tutti::backend::host
