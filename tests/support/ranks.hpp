// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/exchange.hpp"

#include <chrono>
#include <csignal>
#include <cstddef>
#include <functional>
#include <iosfwd>
#include <vector>

#include <sys/types.h>

namespace tutti::test {

/// Says how one of several processes ended.
struct Ending {
  bool exited = false;  ///< without a signal
  int status = -1;      ///< its exit status, 0 for success; otherwise the signal
  friend bool operator==(const Ending&, const Ending&) = default;
};
std::ostream& operator<<(std::ostream& stream, const Ending& ending);
inline constexpr Ending all_right{true, 0};
inline constexpr Ending killed{false, SIGKILL};

/// Returns whether TUTTI_TEST_NETWORK=tcp has ranks send messages over TCP, and not through shared memory.
[[nodiscard]] bool is_over_tcp();

/// Runs ranks without a job launcher: processes started by `fork`, which exchange bytes and send messages
/// through shared memory. By TUTTI_HOST_ID they may pretend to be on several hosts.
///
/// The process that makes them must not have used the library yet. Each runs `body`, with virtual devices of
/// its own; it ends with status 0 if no expectation of GoogleTest failed and nothing was thrown.
class Ranks {
 public:
  using Body = std::function<void(Exchange& exchange)>;

  Ranks(int count, const Body& body);
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  /// Kills the processes that are still running.
  ~Ranks();

  [[nodiscard]] pid_t process(int rank) const { return processes_[static_cast<std::size_t>(rank)]; }
  /// Resumes a rank that stops itself (SIGSTOP), `time` after it has.
  void resume_after(std::chrono::milliseconds time, int rank) const;
  /// Resumes a rank that stops itself when all others have ended, or `limit` after it has stopped.
  void resume_after_others(std::chrono::milliseconds limit, int rank) const;
  /// Waits for all, and kills those that take longer than `process_limit(limit)`.
  [[nodiscard]] std::vector<Ending> wait(std::chrono::seconds limit = std::chrono::seconds(120));

 private:
  void await_stop(int rank) const;

  std::vector<pid_t> processes_;  ///< 0 once it has ended
  std::size_t shared_bytes_;
  void* shared_ = nullptr;
};

/// Runs `body` on `count` ranks and expects all of them to succeed, within `limit` as in `Ranks::wait`.
void expect_all_right(int count, const Ranks::Body& body,
                      std::chrono::seconds limit = std::chrono::seconds(120));

}  // namespace tutti::test
