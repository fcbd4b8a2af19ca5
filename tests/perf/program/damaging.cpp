// SPDX-License-Identifier: Apache-2.0
#include "perf/measure/fill_and_check.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

/// Linked with tutti-perf's main, makes a tutti-perf that finds the first element of every result wrong.
namespace tutti::perf {
namespace {

void damage(std::span<const Buffer> buffers) {
  std::vector<Buffer> first_elements(buffers.begin(), buffers.end());
  for (Buffer& buffer : first_elements) {
    const std::int64_t elements = std::min<std::int64_t>(buffer.tensor.numel(), 1);
    buffer.tensor = buffer.tensor.view({buffer.tensor.numel()}).narrow(0, 0, elements);
  }
  poison(first_elements);
}

[[maybe_unused]] const bool damages = [] {
  set_before_check(&damage);
  return true;
}();

}  // namespace
}  // namespace tutti::perf
