// SPDX-License-Identifier: Apache-2.0
#include "backend/host/kernels/kernels.hpp"
#include "backend/philox.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::backend::host {

namespace {

/// `make(block, elements)` makes the elements of one block.
template <class T, int PerBlock, class Make>
void random_fill_of(const RandomFill& task, std::byte* target, const Make& make) {
  constexpr auto per_block = static_cast<std::size_t>(PerBlock);
  std::uint64_t block = task.offset / 4;
  for (std::size_t begin = 0; begin < task.count; begin += per_block, ++block) {
    T elements[per_block];
    make(block, elements);
    std::memcpy(target + begin * sizeof(T), elements, std::min(per_block, task.count - begin) * sizeof(T));
  }
}

template <class T>
void float_fill_of(const RandomFill& task, std::byte* target) {
  if (task.distribution == Distribution::uniform) {
    random_fill_of<T, random_elements_per_block<T>>(task, target, [&](std::uint64_t block, auto& elements) {
      uniform_block<T>(task.seed, block, task.first, task.second, elements);
    });
  } else {
    random_fill_of<T, random_elements_per_block<T>>(task, target, [&](std::uint64_t block, auto& elements) {
      normal_block<T>(task.seed, block, task.first, task.second, elements);
    });
  }
}

void float_fill(const RandomFill& task, std::byte* target) {
  switch (task.dtype) {
    case DType::float16:
      return float_fill_of<Float16>(task, target);
    case DType::bfloat16:
      return float_fill_of<BFloat16>(task, target);
    case DType::float32:
      return float_fill_of<float>(task, target);
    default:
      return float_fill_of<double>(task, target);  // the backend has refused all others
  }
}

/// T is the unsigned type of the elements' size.
template <class T>
void bits_fill_of(const RandomFill& task, std::byte* target) {
  if (task.distribution == Distribution::integers) {
    random_fill_of<T, 2>(task, target, [&](std::uint64_t block, auto& elements) {
      integer_block<T>(task.seed, block, task.low, task.range, elements);
    });
  } else {
    const auto one = static_cast<T>(bits_of_one(task.dtype));
    random_fill_of<T, 4>(task, target, [&](std::uint64_t block, auto& elements) {
      bernoulli_block<T>(task.seed, block, task.range, one, elements);
    });
  }
}

}  // namespace

void random_fill_elements(const RandomFill& task, std::byte* target) {
  if (task.distribution == Distribution::uniform || task.distribution == Distribution::normal)
    return float_fill(task, target);
  switch (size_of(task.dtype)) {
    case 1:
      return bits_fill_of<std::uint8_t>(task, target);
    case 2:
      return bits_fill_of<std::uint16_t>(task, target);
    case 4:
      return bits_fill_of<std::uint32_t>(task, target);
    default:
      return bits_fill_of<std::uint64_t>(task, target);
  }
}

}  // namespace tutti::backend::host
