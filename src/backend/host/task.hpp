#pragma once

#include "backend/host/progress.hpp"
#include "backend/shared_flag.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace tutti::backend::host {

/// One entry of a stream's queue.
class Task {
 public:
  explicit Task(std::string name) : name_(std::move(name)) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  /// Called once, on the stream's worker. What it throws becomes a pending failure of the device.
  virtual void run() = 0;
  /// The ticket a waiting entry waits for; nullptr for entries that do work.
  [[nodiscard]] virtual const Ticket* awaited() const noexcept { return nullptr; }
  /// Whether `run` would not block on something that other processes do.
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

/// Holds back what is queued behind it until another process has set a flag.
class FlagTask final : public Task {
 public:
  FlagTask(SharedFlag& flag, std::uint32_t value, const AbortWord& abort)
      : Task("wait_flag"), flag_(flag), value_(value), abort_(abort) {}
  /// Throws Error(aborted).
  void run() override;
  [[nodiscard]] bool ready() const noexcept override {
    return has_reached(flag_.value.load(std::memory_order_acquire), value_) || abort_.is_set();
  }

 private:
  SharedFlag& flag_;
  std::uint32_t value_;
  const AbortWord& abort_;
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
