// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/environment.hpp"
#include "support/shared_object.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

namespace tutti::test {

/// Says what happens to a process: a signal, which it gets at most once.
struct Fate {
  enum class When : std::uint8_t { never, at_step, at_time };
  When when = When::never;
  int signal = SIGKILL;
  int step = 0;                      ///< of its own, in which it sends the signal to itself
  std::chrono::microseconds time{};  ///< after the start, when its parent sends the signal
};

/// Processes started by `fork`, some of which are killed or stopped while they work. The process that makes
/// them must not have used the library yet.
class FatedProcesses {
 public:
  static constexpr std::size_t most = 8;

 private:
  struct Shared;

 public:
  /// One of the processes, as it sees itself and the others.
  class Self {
   public:
    Self(Shared& shared, std::size_t number, const Fate& fate)
        : shared_(shared), number_(number), fate_(fate) {}

    [[nodiscard]] std::size_t number() const noexcept { return number_; }
    /// Takes a step: gives a sign of life, and meets the fate of this step.
    void step();
    /// Returns the process with this number.
    [[nodiscard]] pid_t process(std::size_t other) const;
    /// Returns whether it has given no sign of life for so long.
    [[nodiscard]] bool is_silent(std::size_t other, std::chrono::milliseconds time) const;

   private:
    Shared& shared_;
    const std::size_t number_;
    const Fate fate_;
  };

  /// Starts a process for each fate, which calls `work`.
  FatedProcesses(std::vector<Fate> fates, const std::function<void(Self& self)>& work);
  FatedProcesses(const FatedProcesses&) = delete;
  FatedProcesses& operator=(const FatedProcesses&) = delete;
  /// Kills those that have not ended.
  ~FatedProcesses();

  /// Sends signals whose time has come, and resumes stopped processes when all others have ended. Returns
  /// true when all have ended, or too much time has passed. Expects neither that nor another exit status
  /// than 0.
  [[nodiscard]] bool is_over();
  /// Describes a process's fate, for messages.
  [[nodiscard]] std::string fate_of(std::size_t process) const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Shared {
    std::array<std::atomic<pid_t>, most> processes{};
    std::array<std::atomic<std::chrono::nanoseconds>, most> seen_at{};
    std::array<std::atomic<int>, most> steps{};
    std::atomic<bool> has_begun{false};
  };

  [[nodiscard]] pid_t start(std::size_t process, const std::function<void(Self& self)>& work);
  void send_signals();
  void note_changes();
  void resume_if_all_wait();
  [[nodiscard]] pid_t process(std::size_t each) const { return shared_->processes[each].load(); }

  std::vector<Fate> fates_;
  const SharedObject<Shared> shared_;
  Clock::time_point began_;
  const std::chrono::milliseconds limit_ = patient(std::chrono::seconds(40));
  std::array<bool, most> has_ended_{};
  std::array<bool, most> is_stopped_{};
};

/// Runs `count` trials, `at_once` of them at a time. A trial, which `begin` makes of its number, has
/// `is_over`, and then `check`. Returns how many checks were true.
template <class Begin>
int run_trials(int count, std::size_t at_once, Begin begin) {
  std::deque<decltype(begin(0))> running;
  int true_checks = 0;
  for (int number = 0; number < count || !running.empty();) {
    while (number < count && running.size() < at_once) running.push_back(begin(number++));
    std::erase_if(running, [&](const auto& trial) {
      if (!trial->is_over()) return false;
      true_checks += trial->check() ? 1 : 0;
      return true;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true_checks;
}

}  // namespace tutti::test
