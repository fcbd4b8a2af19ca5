// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/tensor_lists.hpp"

#include <cstdint>
#include <vector>

/// How a payload is cut into parts, one for each member.
namespace tutti::perf {

/// Whether members have parts of one length, or of lengths from 1 to n, times as much as makes up the
/// payload: some are empty where there is little.
enum class Parts : std::uint8_t { equal, unequal };

/// A tensor of the payload, flat, as parts of all members.
class Payload {
 public:
  Payload(int members, Parts parts, const TensorSpec& tensor);
  /// One-dimensional.
  [[nodiscard]] const TensorSpec& whole() const { return whole_; }
  [[nodiscard]] std::int64_t elements() const { return whole_.sizes.front(); }
  [[nodiscard]] TensorSpec part(int index) const { return {{size(index)}, whole_.dtype}; }
  /// The first element of the part.
  [[nodiscard]] std::int64_t start(int index) const;
  [[nodiscard]] std::int64_t size(int index) const { return start(index + 1) - start(index); }
  [[nodiscard]] std::vector<std::int64_t> sizes() const;
  /// What an exchange's member sends to others: the part for itself comes first, then that for the next one.
  [[nodiscard]] std::int64_t sent(int from, int to) const { return size((to - from + members_) % members_); }

 private:
  int members_;
  Parts parts_;
  TensorSpec whole_;
};

/// One member's chunk of a dimension: the last ones are smaller, or empty.
struct Chunk {
  std::int64_t start = 0;
  std::int64_t length = 0;
};
[[nodiscard]] Chunk chunk_of(std::int64_t size, int index, int count);

}  // namespace tutti::perf
