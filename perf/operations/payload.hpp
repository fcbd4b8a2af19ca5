// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/tensor_lists.hpp"

#include <cstdint>
#include <vector>

/// Cuts a payload into parts, one for each member.
namespace tutti::perf {

enum class Parts : std::uint8_t {
  equal,    ///< of one length, of the flat tensor
  unequal,  ///< of lengths from 1 to n, times as much as makes up the flat tensor: some are empty if it is
            ///< short
  chunks,   ///< along the last dimension: the last ones are smaller, or empty
  none,     ///< the tensor stays whole
};

/// A tensor of the payload, cut into parts of all members.
class Payload {
 public:
  Payload(int members, Parts parts, const TensorSpec& tensor);
  /// Returns the tensor that is cut. It is one-dimensional if parts are of a flat tensor.
  [[nodiscard]] const TensorSpec& whole() const { return whole_; }
  /// Returns the length that is cut: the number of elements of a flat tensor, otherwise the size of the last
  /// dimension.
  [[nodiscard]] std::int64_t length() const { return whole_.sizes.empty() ? 1 : whole_.sizes.back(); }
  [[nodiscard]] TensorSpec part(int index) const;
  /// Returns the beginning of a part.
  [[nodiscard]] std::int64_t start(int index) const;
  [[nodiscard]] std::int64_t size(int index) const { return start(index + 1) - start(index); }
  [[nodiscard]] std::vector<std::int64_t> sizes() const;
  /// Returns the length of the part that member `from` sends to member `to` in an exchange: the first part is
  /// for `from` itself, the second for the next member, and so on.
  [[nodiscard]] std::int64_t sent(int from, int to) const { return size((to - from + members_) % members_); }

 private:
  int members_;
  Parts parts_;
  TensorSpec whole_;
};

}  // namespace tutti::perf
