// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/shared_flag.hpp"
#include "os/thread.hpp"
#include "transport/team/progress/local_news.hpp"
#include "transport/team/shared/membership.hpp"
#include "tutti/error.hpp"

#include <atomic>
#include <string_view>

namespace tutti::transport::team {

/// Ends a team, for a reason that all of its ranks learn, and logs it. All waits of all ranks, on devices and
/// hosts, end with it. Thread-safe.
class Abort {
 public:
  Abort(const Membership& membership, backend::AbortWord& word, LocalNews& news);
  Abort(const Abort&) = delete;
  Abort& operator=(const Abort&) = delete;
  ~Abort() = default;

  [[nodiscard]] bool is_set() const noexcept { return word_.is_set(); }
  /// Returns the word that kernels poll.
  [[nodiscard]] backend::AbortWord& word() const noexcept { return word_; }

  /// Ends the team. The first reason is kept; returns true if it is this one.
  bool set(ErrorCode code, std::string_view reason) noexcept;
  /// Ends the team and logs "rank 1 `cannot`: " and the error, unless the process ends. Allocates no memory
  /// to end the team.
  void fail(std::string_view cannot, const backend::Escaped& escaped) noexcept;

  /// Throws the reason if the team has been ended.
  void require_running() const;
  /// Returns the reason; the team must have been ended.
  [[nodiscard]] Error reason() const;
  /// Logs the reason, once, unless a rank has asked for the end.
  void log_reason() noexcept;

 private:
  const Membership& membership_;
  backend::AbortWord& word_;
  LocalNews& news_;
  std::atomic<bool> has_logged_reason_ = false;
  std::atomic<bool> has_logged_failure_ = false;
};

}  // namespace tutti::transport::team
