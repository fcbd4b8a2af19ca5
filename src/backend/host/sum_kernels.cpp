#include "backend/arithmetic.hpp"
#include "backend/host/kernels.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::backend::host {

namespace {

/// Elements accumulated at a time, so that the running sums stay in the first-level cache while inputs stream
/// by.
constexpr std::size_t block_elements = 1024;

/// Inputs added in one pass over the running sums.
constexpr std::size_t inputs_per_pass = 4;

template <class T>
using StorageOf = typename SumOf<T>::Storage;
template <class T>
using AccumulatorOf = typename SumOf<T>::Accumulator;

/// Element `begin` of an array.
template <class T>
const StorageOf<T>* element(const std::byte* array, std::size_t begin) {
  return reinterpret_cast<const StorageOf<T>*>(array) + begin;
}

/// Adds `Inputs` arrays in order: to `size` running sums, or, if they come first, to nothing.
template <class T, std::size_t Inputs, bool AreFirst>
void add_pass(AccumulatorOf<T>* sums, const std::byte* const* inputs, std::size_t begin, std::size_t size) {
  const StorageOf<T>* values[Inputs];
  for (std::size_t k = 0; k < Inputs; ++k) values[k] = element<T>(inputs[k], begin);
  for (std::size_t i = 0; i < size; ++i) {
    AccumulatorOf<T> sum = AreFirst ? SumOf<T>::load(values[0][i]) : sums[i];
    for (std::size_t k = AreFirst ? 1 : 0; k < Inputs; ++k) sum = SumOf<T>::add(sum, values[k][i]);
    sums[i] = sum;
  }
}

template <class T, bool AreFirst>
void add_some(AccumulatorOf<T>* sums, std::span<const std::byte* const> inputs, std::size_t begin,
              std::size_t size) {
  switch (inputs.size()) {
    case 1:
      return add_pass<T, 1, AreFirst>(sums, inputs.data(), begin, size);
    case 2:
      return add_pass<T, 2, AreFirst>(sums, inputs.data(), begin, size);
    case 3:
      return add_pass<T, 3, AreFirst>(sums, inputs.data(), begin, size);
    default:
      static_assert(inputs_per_pass == 4);
      return add_pass<T, 4, AreFirst>(sums, inputs.data(), begin, size);
  }
}

/// The sums of all inputs.
template <class T>
void add_all(AccumulatorOf<T>* sums, std::span<const std::byte* const> inputs, std::size_t begin,
             std::size_t size) {
  const auto next = [&inputs] {
    const auto some = inputs.first(std::min(inputs_per_pass, inputs.size()));
    inputs = inputs.subspan(some.size());
    return some;
  };
  add_some<T, true>(sums, next(), begin, size);
  while (!inputs.empty()) add_some<T, false>(sums, next(), begin, size);
}

template <class T>
void ordered_sum_of(std::size_t count, std::span<const std::byte* const> inputs,
                    std::span<std::byte* const> outputs) {
  AccumulatorOf<T> sums[block_elements];
  for (std::size_t begin = 0; begin < count; begin += block_elements) {
    const std::size_t size = std::min(block_elements, count - begin);
    add_all<T>(sums, inputs, begin, size);
    // An output may be one of the inputs: nothing is stored before all inputs of the block have been read.
    auto* stored = reinterpret_cast<StorageOf<T>*>(outputs.front()) + begin;
    for (std::size_t i = 0; i < size; ++i) stored[i] = SumOf<T>::store(sums[i]);
    for (std::byte* output : outputs.subspan(1)) {
      std::memcpy(output + begin * sizeof(T), stored, size * sizeof(T));
    }
  }
}

}  // namespace

void ordered_sum_segment(DType dtype, std::size_t count, std::span<const std::byte* const> inputs,
                         std::span<std::byte* const> outputs) {
  visit_dtype(dtype, [&]<class T>() { ordered_sum_of<T>(count, inputs, outputs); });
}

}  // namespace tutti::backend::host
