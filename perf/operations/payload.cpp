// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/payload.hpp"

#include "tutti/layout.hpp"

#include <algorithm>

namespace tutti::perf {

Payload::Payload(int members, Parts parts, const TensorSpec& tensor) : members_(members), parts_(parts) {
  const std::int64_t elements = Layout(*tensor.dtype, tensor.sizes).numel();
  whole_ = {{parts == Parts::equal ? elements / members_ * members_ : elements}, tensor.dtype};
}

std::int64_t Payload::start(int index) const {
  if (parts_ == Parts::equal) return elements() / members_ * index;
  // Lengths of 1, 2, … in all, rounded where they begin; quotient and remainder, so that nothing overflows.
  const std::int64_t units = std::int64_t{members_} * (members_ + 1) / 2;
  const std::int64_t before = std::int64_t{index} * (index + 1) / 2;
  return elements() / units * before + elements() % units * before / units;
}

std::vector<std::int64_t> Payload::sizes() const {
  std::vector<std::int64_t> all;
  for (int index = 0; index < members_; ++index) all.push_back(size(index));
  return all;
}

Chunk chunk_of(std::int64_t size, int index, int count) {
  const std::int64_t most = (size + count - 1) / count;
  const std::int64_t start = std::min(size, most * index);
  return {start, std::min(most, size - start)};
}

}  // namespace tutti::perf
