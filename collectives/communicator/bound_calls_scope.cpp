// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/bound_calls_scope.hpp"

#include "collectives/communicator/team_context.hpp"
#include "device/runtime.hpp"

#include <algorithm>
#include <utility>

namespace tutti::collectives {

BoundCallsScope::BoundCallsScope(const TeamContext& context, std::vector<std::uint64_t> captures)
    : context_(context), captures_(std::move(captures)), outer_(std::exchange(innermost, this)) {}

BoundCallsScope::~BoundCallsScope() {
  innermost = outer_;
}

void BoundCallsScope::check_streams(const TeamContext& context, std::span<const backend::StreamRef> streams,
                                    const Arguments& arguments) const {
  if (&context != &context_ || captures_.empty()) return;
  backend::Backend& backend = context.runtime().backend();
  const auto is_recorded = [&](backend::StreamRef stream) {
    return std::ranges::find(captures_, backend.capture_id(stream)) != captures_.end();
  };
  if (std::ranges::any_of(streams, is_recorded)) return;
  arguments.fail(
      "streams are not part of the recording, expected the current streams or streams that wait for them: "
      "otherwise the call runs once, and not at each launch");
}

}  // namespace tutti::collectives
