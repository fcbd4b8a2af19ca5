// SPDX-License-Identifier: Apache-2.0
#include "transport/team/calls/ended_calls.hpp"

#include <algorithm>
#include <cstddef>

namespace tutti::transport::team {

std::size_t EndedCalls::local_of(int device) const noexcept {
  const std::vector<int>& devices = membership_.devices();
  return static_cast<std::size_t>(std::ranges::find(devices, device) - devices.begin());
}

std::optional<Error> EndedCalls::take_end(int device) {
  if (!abort_.is_set()) return std::nullopt;
  const std::size_t local = local_of(device);
  if (has_told_[local]) return std::nullopt;
  static_cast<void>(progress_.is_idle());  // looks
  // A call that was not queued as a whole has failed, and has said so. Of replays nobody knows.
  const bool was_over = !calls_.has_captured() && progress_.completed() >= calls_.last_queued() &&
                        !progress_.has_batches_under_way();
  if (was_over || has_told_[local].exchange(true)) return std::nullopt;
  return abort_.reason();
}

}  // namespace tutti::transport::team
