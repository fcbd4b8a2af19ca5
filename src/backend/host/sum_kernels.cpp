#include "backend/arithmetic.hpp"
#include "backend/host/kernels.hpp"

#include <algorithm>
#include <iterator>

namespace tutti::backend::host {

namespace {

/// Elements accumulated at a time, so that the running sums stay in the first-level cache while inputs stream
/// by.
constexpr std::size_t block_elements = 1024;

/// Bytes at a time that are streamed: few, so that the processor writes some while it reads the next.
constexpr std::size_t streamed_bytes = 512;

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

/// Adds `Inputs` arrays in order: to `size` running sums, or, if they come first, to nothing. The sums go on
/// running, or, if these are the last, become elements of `made`, which may be one of the arrays.
template <class T, std::size_t Inputs, bool AreFirst, bool AreLast>
void add_pass(AccumulatorOf<T>* sums, StorageOf<T>* made, const std::byte* const* inputs, std::size_t begin,
              std::size_t size) {
  const StorageOf<T>* values[Inputs];
  for (std::size_t k = 0; k < Inputs; ++k) values[k] = element<T>(inputs[k], begin);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < size; ++i) {
    AccumulatorOf<T> sum = AreFirst ? SumOf<T>::load(values[0][i]) : sums[i];
    for (std::size_t k = AreFirst ? 1 : 0; k < Inputs; ++k) sum = SumOf<T>::add(sum, values[k][i]);
    if constexpr (AreLast) {
      made[i] = SumOf<T>::store(sum);
    } else {
      sums[i] = sum;
    }
  }
}

template <class T, bool AreFirst, bool AreLast>
void add_some(AccumulatorOf<T>* sums, StorageOf<T>* made, std::span<const std::byte* const> inputs,
              std::size_t begin, std::size_t size) {
  switch (inputs.size()) {
    case 1:
      return add_pass<T, 1, AreFirst, AreLast>(sums, made, inputs.data(), begin, size);
    case 2:
      return add_pass<T, 2, AreFirst, AreLast>(sums, made, inputs.data(), begin, size);
    case 3:
      return add_pass<T, 3, AreFirst, AreLast>(sums, made, inputs.data(), begin, size);
    default:
      static_assert(inputs_per_pass == 4);
      return add_pass<T, 4, AreFirst, AreLast>(sums, made, inputs.data(), begin, size);
  }
}

/// The sums of all inputs.
template <class T>
void add_all(AccumulatorOf<T>* sums, StorageOf<T>* made, std::span<const std::byte* const> inputs,
             std::size_t begin, std::size_t size) {
  const auto next = [&inputs] {
    const auto some = inputs.first(std::min(inputs_per_pass, inputs.size()));
    inputs = inputs.subspan(some.size());
    return some;
  };
  if (inputs.size() <= inputs_per_pass) return add_some<T, true, true>(sums, made, inputs, begin, size);
  add_some<T, true, false>(sums, made, next(), begin, size);
  while (inputs.size() > inputs_per_pass) add_some<T, false, false>(sums, made, next(), begin, size);
  add_some<T, false, true>(sums, made, inputs, begin, size);
}

template <class T>
void ordered_sum_of(std::size_t count, std::span<const std::byte* const> inputs,
                    std::span<std::byte* const> outputs, Stores stores) {
  const bool streams = stores == Stores::streamed;
  AccumulatorOf<T> sums[block_elements];
  alignas(64) StorageOf<T> streamed[streamed_bytes / sizeof(T)];
  const std::size_t most = streams ? std::size(streamed) : block_elements;
  for (std::size_t begin = 0; begin < count; begin += most) {
    const std::size_t size = std::min(most, count - begin);
    auto* const made = streams ? streamed : reinterpret_cast<StorageOf<T>*>(outputs.front()) + begin;
    add_all<T>(sums, made, inputs, begin, size);
    for (std::byte* output : outputs.subspan(streams ? 0 : 1)) {
      put(output + begin * sizeof(T), reinterpret_cast<const std::byte*>(made), size * sizeof(T), stores);
    }
  }
  finish(stores);
}

/// What is read is in the caches anyway, and had better stay there.
bool is_in_place(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs) {
  return std::ranges::find_first_of(outputs, inputs) != outputs.end();
}

}  // namespace

void ordered_sum_segment(DType dtype, std::size_t count, std::span<const std::byte* const> inputs,
                         std::span<std::byte* const> outputs, Stores stores) {
  if (is_in_place(inputs, outputs)) stores = Stores::cached;
  visit_dtype(dtype, [&]<class T>() { ordered_sum_of<T>(count, inputs, outputs, stores); });
}

}  // namespace tutti::backend::host
