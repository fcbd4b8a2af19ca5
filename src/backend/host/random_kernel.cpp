// SPDX-License-Identifier: Apache-2.0
#include "backend/host/kernels.hpp"
#include "backend/philox.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::backend::host {

namespace {

template <class T>
void random_fill_of(const RandomFill& task, std::byte* target) {
  constexpr auto per_block = static_cast<std::size_t>(random_elements_per_block<T>);
  std::uint64_t block = task.offset / 4;
  for (std::size_t begin = 0; begin < task.count; begin += per_block, ++block) {
    T elements[per_block];
    if (task.distribution == Distribution::uniform) {
      uniform_block<T>(task.seed, block, task.first, task.second, elements);
    } else {
      normal_block<T>(task.seed, block, task.first, task.second, elements);
    }
    std::memcpy(target + begin * sizeof(T), elements, std::min(per_block, task.count - begin) * sizeof(T));
  }
}

}  // namespace

void random_fill_elements(const RandomFill& task, std::byte* target) {
  switch (task.dtype) {
    case DType::float16:
      return random_fill_of<Float16>(task, target);
    case DType::bfloat16:
      return random_fill_of<BFloat16>(task, target);
    case DType::float32:
      return random_fill_of<float>(task, target);
    default:
      return random_fill_of<double>(task, target);  // the backend has refused all others
  }
}

}  // namespace tutti::backend::host
