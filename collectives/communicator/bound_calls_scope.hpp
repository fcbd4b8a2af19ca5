// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"
#include "collectives/call/arguments.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::collectives {

class TeamContext;

/// A scope in which its thread makes calls of a communicator that are being bound.
class BoundCallsScope {
 public:
  /// Begins the scope. Calls are recorded in these `captures`; if there are none, each launch makes them
  /// anew.
  explicit BoundCallsScope(const TeamContext& context, std::vector<std::uint64_t> captures = {});
  BoundCallsScope(const BoundCallsScope&) = delete;
  BoundCallsScope& operator=(const BoundCallsScope&) = delete;
  ~BoundCallsScope();

  /// Throws Error(invalid_argument) if the calling thread is recording calls of `context`, and none of a
  /// call's `streams` is part of a capture: the call would run now, and not at each launch.
  static void check(const TeamContext& context, std::span<const backend::StreamRef> streams,
                    const Arguments& arguments) {
    if (innermost != nullptr) [[unlikely]]
      innermost->check_streams(context, streams, arguments);
  }
  /// Notes that others may rely on a call of `context`.
  static void note(const TeamContext& context) noexcept {
    if (innermost != nullptr && &innermost->context_ == &context) [[unlikely]]
      innermost->has_made_calls_ = true;
  }
  [[nodiscard]] bool has_made_calls() const noexcept { return has_made_calls_; }

 private:
  void check_streams(const TeamContext& context, std::span<const backend::StreamRef> streams,
                     const Arguments& arguments) const;

  const TeamContext& context_;
  const std::vector<std::uint64_t> captures_;
  bool has_made_calls_ = false;
  BoundCallsScope* const outer_;

  static inline thread_local constinit BoundCallsScope* innermost = nullptr;
};

}  // namespace tutti::collectives
