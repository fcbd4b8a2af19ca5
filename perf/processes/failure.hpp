// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/error.hpp"

#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

/// Describes a failure of one rank in a form that can be sent to the others.
namespace tutti::perf {

/// A mistake on the command line, or in a file it names. `what()` is one clear line.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum ExitStatus : int {
  all_right = 0,
  wrong_data = 1,  ///< of tutti's
  bad_usage = 2,
  is_slower = 3,      ///< than the baseline, or nothing of it could be compared
  peer_is_wrong = 4,  ///< and tutti is right
  run_failed = 5,     ///< or something had no memory
  timed_out = 6,      ///< a row has taken longer than it may
  was_interrupted = 130
};

struct Failure {
  ExitStatus status = run_failed;
  std::optional<ErrorCode> code{};  ///< of an Error
  std::string message;

  [[nodiscard]] bool is(ErrorCode wanted) const noexcept { return code == wanted; }
  friend bool operator==(const Failure&, const Failure&) = default;
};

/// Describes an exception, which is a std::exception.
[[nodiscard]] Failure failure_of(const std::exception_ptr& exception);
/// Throws the exception that `failure_of` would convert to `failure`.
[[noreturn]] void raise(const Failure& failure);

/// Converts a failure to text, never empty; `decode_failure` is the inverse.
[[nodiscard]] std::string encode(const Failure& failure);
[[nodiscard]] Failure decode_failure(const std::string& text);

/// Returns the failure to report out of those of all ranks, at least one. An interrupt comes first, then a
/// row that takes too long, then a cause before its consequences on other ranks, then the lowest rank. Its
/// message names the rank, unless all ranks have the same.
[[nodiscard]] Failure first_cause(const std::vector<std::optional<Failure>>& by_rank);

}  // namespace tutti::perf
