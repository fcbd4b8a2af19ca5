// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/stream.hpp"

#include <deque>
#include <ranges>
#include <span>

namespace tutti {

/// Makes streams, and the first one's device, current while the object exists.
class CurrentStreams {
 public:
  explicit CurrentStreams(std::span<const Stream> streams) {
    for (const Stream& stream : streams | std::views::reverse) guards_.emplace_back(stream);
  }
  CurrentStreams(const CurrentStreams&) = delete;
  CurrentStreams& operator=(const CurrentStreams&) = delete;
  ~CurrentStreams() {
    while (!guards_.empty()) guards_.pop_back();  // they nest
  }

 private:
  std::deque<StreamGuard> guards_;
};

}  // namespace tutti
