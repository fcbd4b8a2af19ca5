// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/error.hpp"

#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// Describes a failure of one rank in a form that can be sent to the others.
namespace tutti::perf {

/// A mistake on the command line, or in a file it names. `what()` is one clear line.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Failure {
  enum class Kind : std::uint8_t { error, usage, interrupted, timed_out, other };
  Kind kind = Kind::other;
  ErrorCode code = ErrorCode::internal;  ///< of an `error`
  std::string message;

  [[nodiscard]] bool is(ErrorCode wanted) const noexcept { return kind == Kind::error && code == wanted; }
  friend bool operator==(const Failure&, const Failure&) = default;
};

[[nodiscard]] Failure failure_of(const std::exception_ptr& exception);
/// Throws the exception that `failure_of` would convert to `failure`.
[[noreturn]] void raise(const Failure& failure);

/// Converts a failure to bytes, never empty; `decode_failure` is the inverse.
[[nodiscard]] std::string encode(const Failure& failure);
[[nodiscard]] Failure decode_failure(std::string_view bytes);

/// Returns the failure to report out of those of all ranks, at least one. An interrupt comes first, then a
/// row that takes too long, then a cause before its consequences on other ranks, then the lowest rank. Its
/// message names the rank, unless all ranks have the same.
[[nodiscard]] Failure first_cause(const std::vector<std::optional<Failure>>& by_rank);

}  // namespace tutti::perf
