// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/host/queues/progress.hpp"
#include "os/shared_flag.hpp"
#include "tutti/error.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace tutti::backend::host {

/// The error that a task throws when it is ended from elsewhere; its code becomes the device's failure.
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

  /// Runs the entry once, on the stream's worker. What it throws becomes a pending failure of the device,
  /// with the code device_failure unless it is `Ended`.
  virtual void run() = 0;
  /// Returns the ticket that a waiting entry waits for; nullptr for entries that do work.
  [[nodiscard]] virtual const Ticket* awaited() const noexcept { return nullptr; }
  /// Returns true if `run` would not block on flags that others set.
  [[nodiscard]] virtual bool ready() const noexcept { return true; }
  /// Returns a copy that does the same: a graph queues one at each launch.
  [[nodiscard]] virtual std::unique_ptr<Task> clone() const = 0;
  /// Counts as an operation now, as a launch of a graph is about to queue it. Throws if that is refused.
  virtual void begin_launch() {}
  /// Returns the name used in failures.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
};

/// Delays later entries until `ticket` is complete.
class WaitTask final : public Task {
 public:
  explicit WaitTask(Ticket ticket) : Task("wait_event"), ticket_(std::move(ticket)) {}
  void run() override;
  [[nodiscard]] const Ticket* awaited() const noexcept override { return &ticket_; }
  [[nodiscard]] std::unique_ptr<Task> clone() const override { return std::make_unique<WaitTask>(ticket_); }

 private:
  Ticket ticket_;
};

/// Delays later entries until all flags have reached a value.
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
