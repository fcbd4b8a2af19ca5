// SPDX-License-Identifier: Apache-2.0
#include "collectives/bound_calls_scope.hpp"

#include "collectives/team_context.hpp"
#include "runtime.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tutti::collectives {

BoundCallsScope::BoundCallsScope(const TeamContext& context, std::span<const Stream> streams)
    : context_(context), streams_(streams), outer_(std::exchange(innermost, this)) {}

BoundCallsScope::~BoundCallsScope() {
  innermost = outer_;
}

void BoundCallsScope::check_streams(const TeamContext& context, std::span<const backend::StreamRef> streams,
                                    const Arguments& arguments) const {
  if (&context != &context_) return;
  backend::Backend& backend = context.runtime().backend();
  const std::uint64_t capture = backend.capture_id(StreamAccess::ref(streams_.front()));
  const auto belongs = [&](std::size_t local) {
    if (streams[local] == StreamAccess::ref(streams_[local])) return true;
    return capture != 0 && backend.capture_id(streams[local]) == capture;
  };
  for (std::size_t local = 0; local < streams.size(); ++local) {
    if (belongs(local)) continue;
    arguments.fail(
        "streams has one of device {} that the call is not bound on, expected none, or the current streams: "
        "what is bound follows the stream that it is launched on",
        streams[local].device);
  }
}

}  // namespace tutti::collectives
