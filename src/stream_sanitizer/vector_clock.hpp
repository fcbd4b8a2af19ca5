// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::stream_sanitizer {

/// Numbers the sequences of ordered operations: streams, and the host.
using Line = std::uint32_t;
inline constexpr Line host_line = 0;

/// A vector clock: on each line, everything up to a time is known to have happened. Times of a line count its
/// operations from 1.
class VectorClock {
 public:
  [[nodiscard]] std::uint64_t at(Line line) const noexcept { return line < times_.size() ? times_[line] : 0; }
  void advance(Line line, std::uint64_t time) {
    if (line >= times_.size()) times_.resize(std::size_t{line} + 1);
    times_[line] = std::max(times_[line], time);
  }
  void join(const VectorClock& other) {
    if (other.times_.size() > times_.size()) times_.resize(other.times_.size());
    for (std::size_t line = 0; line < other.times_.size(); ++line)
      times_[line] = std::max(times_[line], other.times_[line]);
  }

 private:
  std::vector<std::uint64_t> times_;
};

}  // namespace tutti::stream_sanitizer
