// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/payload.hpp"

#include "tutti/layout.hpp"

#include <algorithm>

namespace tutti::perf {

Payload::Payload(int members, Parts parts, const TensorSpec& tensor)
    : members_(members), parts_(parts), whole_(tensor) {
  if (parts == Parts::none || parts == Parts::chunks) return;
  const std::int64_t elements = Layout(*tensor.dtype, tensor.sizes).numel();
  whole_.sizes = {parts == Parts::equal ? elements / members_ * members_ : elements};
}

TensorSpec Payload::part(int index) const {
  TensorSpec part = whole_;
  part.sizes.back() = size(index);
  return part;
}

std::int64_t Payload::start(int index) const {
  if (parts_ == Parts::equal) return length() / members_ * index;
  if (parts_ == Parts::chunks) return std::min(length(), (length() + members_ - 1) / members_ * index);
  // Lengths of 1, 2, … in all, rounded where they begin; quotient and remainder, so that nothing overflows.
  const std::int64_t units = std::int64_t{members_} * (members_ + 1) / 2;
  const std::int64_t before = std::int64_t{index} * (index + 1) / 2;
  return length() / units * before + length() % units * before / units;
}

std::vector<std::int64_t> Payload::sizes() const {
  std::vector<std::int64_t> all;
  for (int index = 0; index < members_; ++index) all.push_back(size(index));
  return all;
}

}  // namespace tutti::perf
