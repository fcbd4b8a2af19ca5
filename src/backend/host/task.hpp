// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/host/address_space.hpp"
#include "backend/host/progress.hpp"
#include "backend/shared_flag.hpp"
#include "tutti/error.hpp"

#include <cstdint>
#include <functional>
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

 private:
  Ticket ticket_;
};

/// Does its work when other processes have done theirs.
class TeamTask final : public Task {
 public:
  /// A flag and what it must have come to.
  struct Condition {
    SharedFlag* flag;
    std::uint32_t value;
  };
  /// `work` runs once all conditions hold. Their flags lie in `window`. If it fails, the team has: the others
  /// would take the flags of later rounds for those of this one. `process` then sets `abort`.
  TeamTask(std::vector<Condition> conditions, std::shared_ptr<const Allocation> window, AbortWord& abort,
           std::uint32_t process, std::function<void()> work)
      : Task("team_round"),
        conditions_(std::move(conditions)),
        window_(std::move(window)),
        abort_(abort),
        process_(process),
        work_(std::move(work)) {}
  /// Throws Ended, with the reason's code, if the team has given up.
  void run() override;
  [[nodiscard]] bool ready() const noexcept override;

 private:
  std::vector<Condition> conditions_;
  std::shared_ptr<const Allocation> window_;
  AbortWord& abort_;
  std::uint32_t process_;
  std::function<void()> work_;
};

/// Holds back what is queued behind it until all flags have come to a value.
class SignalsTask final : public Task {
 public:
  SignalsTask(std::span<SharedFlag> flags, std::uint32_t value)
      : Task("wait_signals"), flags_(flags), value_(value) {}
  void run() override;
  [[nodiscard]] bool ready() const noexcept override;

 private:
  std::span<SharedFlag> flags_;
  std::uint32_t value_;
};

template <class Function>
class FunctionTask final : public Task {
 public:
  FunctionTask(std::string name, Function function) : Task(std::move(name)), function_(std::move(function)) {}
  void run() override { function_(); }

 private:
  Function function_;
};

template <class Function>
[[nodiscard]] std::unique_ptr<Task> make_task(std::string name, Function function) {
  return std::make_unique<FunctionTask<Function>>(std::move(name), std::move(function));
}

}  // namespace tutti::backend::host
