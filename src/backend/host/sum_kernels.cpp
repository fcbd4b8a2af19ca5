#include "backend/arithmetic.hpp"
#include "backend/host/kernels.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::backend::host {

namespace {

/// Elements accumulated at a time, so that the running sums stay in the first-level cache while inputs stream
/// by.
constexpr std::size_t block_elements = 1024;

template <class T>
void ordered_sum_of(std::size_t count, std::span<const std::byte* const> inputs,
                    std::span<std::byte* const> outputs) {
  using Sum = SumOf<T>;
  using Storage = typename Sum::Storage;
  typename Sum::Accumulator sums[block_elements];
  Storage results[block_elements];

  for (std::size_t begin = 0; begin < count; begin += block_elements) {
    const std::size_t size = std::min(block_elements, count - begin);
    const auto values_of = [begin](const std::byte* input) {
      return reinterpret_cast<const Storage*>(input) + begin;
    };
    const Storage* first = values_of(inputs.front());
    for (std::size_t i = 0; i < size; ++i) sums[i] = Sum::load(first[i]);
    for (const std::byte* input : inputs.subspan(1)) {
      const Storage* values = values_of(input);
      for (std::size_t i = 0; i < size; ++i) sums[i] = Sum::add(sums[i], values[i]);
    }
    // An output may be one of the inputs: nothing is stored before all inputs of the block have been read.
    for (std::size_t i = 0; i < size; ++i) results[i] = Sum::store(sums[i]);
    for (std::byte* output : outputs) {
      std::memcpy(output + begin * sizeof(Storage), results, size * sizeof(Storage));
    }
  }
}

}  // namespace

void ordered_sum_segment(DType dtype, std::size_t count, std::span<const std::byte* const> inputs,
                         std::span<std::byte* const> outputs) {
  visit_dtype(dtype, [&]<class T>() { ordered_sum_of<T>(count, inputs, outputs); });
}

}  // namespace tutti::backend::host
