// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/link_table.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

namespace tutti::backend::cuda {

void build_table(const TeamLinks& task, LinkTable& table) {
  table.bytes = 0;
  std::ranges::copy(std::as_bytes(task.windows), extend(table, task.windows.size_bytes()));
  table.parts_offset = static_cast<std::uint32_t>(table.bytes);
  std::ranges::copy(std::as_bytes(task.parts), extend(table, task.parts.size_bytes()));
  table.messages_offset = static_cast<std::uint32_t>(table.bytes);
  std::ranges::copy(std::as_bytes(task.messages), extend(table, task.messages.size_bytes()));
}

}  // namespace tutti::backend::cuda
