// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"
#include "collectives/arguments.hpp"
#include "tutti/stream.hpp"

#include <span>

namespace tutti::collectives {

class TeamContext;

/// While it exists, its thread makes calls of a communicator that are being bound: they follow the streams
/// that they are bound on. A call that is given others would be made apart from its launches.
class BoundCallsScope {
 public:
  /// `streams`: those of the local members, current meanwhile, and captured where calls are recorded.
  BoundCallsScope(const TeamContext& context, std::span<const Stream> streams);
  BoundCallsScope(const BoundCallsScope&) = delete;
  BoundCallsScope& operator=(const BoundCallsScope&) = delete;
  ~BoundCallsScope();

  /// Throws Error(invalid_argument) if the calling thread is binding calls of `context`, and the `streams` of
  /// one of them are neither those that they are bound on nor part of the same capture.
  static void check(const TeamContext& context, std::span<const backend::StreamRef> streams,
                    const Arguments& arguments) {
    if (innermost != nullptr) [[unlikely]]
      innermost->check_streams(context, streams, arguments);
  }

 private:
  void check_streams(const TeamContext& context, std::span<const backend::StreamRef> streams,
                     const Arguments& arguments) const;

  const TeamContext& context_;
  const std::span<const Stream> streams_;
  const BoundCallsScope* const outer_;

  static inline thread_local constinit const BoundCallsScope* innermost = nullptr;
};

}  // namespace tutti::collectives
