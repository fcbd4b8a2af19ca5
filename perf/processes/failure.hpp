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

/// What went wrong on one rank, in a form that can be told to the others.
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
/// Throws what `failure_of` would turn into `failure`.
[[noreturn]] void raise(const Failure& failure);

/// As bytes, never empty; and back.
[[nodiscard]] std::string encode(const Failure& failure);
[[nodiscard]] Failure decode_failure(std::string_view bytes);

/// The one failure to report of those of all ranks, at least one: an interrupt before anything else, then a
/// row that takes too long, a cause before what it led to on the others, then the lowest rank's. Its message
/// names the rank, unless all say the same.
[[nodiscard]] Failure first_cause(const std::vector<std::optional<Failure>>& by_rank);

}  // namespace tutti::perf
