// SPDX-License-Identifier: Apache-2.0
#include "perf/session/memory_taken.hpp"

#include "tutti/memory.hpp"

#include <algorithm>

namespace tutti::perf {

void MemoryTaken::start() {
  add_free(1.0);
  processes_.barrier();
}

void MemoryTaken::stop() {
  processes_.barrier();
  add_free(-1.0);
}

std::size_t MemoryTaken::most() const {
  double most = std::ranges::max(taken_);
  processes_.maximum({&most, 1});
  return static_cast<std::size_t>(std::max(most, 0.0));
}

void MemoryTaken::add_free(double sign) {
  for (std::size_t i = 0; i < devices_.size(); ++i)
    taken_[i] += sign * static_cast<double>(mem_get_info(devices_[i].index()).free);
}

}  // namespace tutti::perf
