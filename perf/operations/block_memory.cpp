// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/block_memory.hpp"

#include "tutti/error.hpp"
#include "tutti/layout.hpp"

#include <algorithm>

namespace tutti::perf {

void BlockMemory::start_set(std::size_t set) {
  set_ = set;
  std::ranges::fill(used_, 0);
}

Tensor BlockMemory::make(const std::vector<std::int64_t>& sizes, DType dtype, std::size_t local) {
  const std::size_t taken = taken_by(Layout(dtype, sizes).nbytes());
  std::size_t& used = used_[local];
  if (used + taken > bytes_of_set_)
    throw Error(ErrorCode::internal, "a call has more operands than were announced");
  std::byte* const memory = block(local) + set_ * bytes_of_set_ + used;
  used += taken;
  return Tensor(TensorView(memory, dtype, sizes, devices_[local]));
}

}  // namespace tutti::perf
