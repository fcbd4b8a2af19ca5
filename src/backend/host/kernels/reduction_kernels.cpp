// SPDX-License-Identifier: Apache-2.0
#include "backend/host/kernels/kernels.hpp"
#include "backend/numbers/arithmetic.hpp"
#include "backend/numbers/reduction.hpp"

#include <algorithm>
#include <concepts>
#include <cstring>
#include <optional>
#include <type_traits>

namespace tutti::backend::host {

namespace {

/// Elements accumulated at a time, so that the running sums stay in the first-level cache while inputs stream
/// by.
constexpr std::size_t block_elements = 1024;

/// The bytes that are streamed at a time: few, so that the processor writes some while it reads the next.
constexpr std::size_t streamed_bytes = 512;

/// The inputs added in one pass over the running sums.
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
    // An element of `made` may lie where one of the arrays has that element, but none of the others.
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

/// Sums of elements of type T.
template <class T>
struct Adding {
  using Element = T;
  void operator()(AccumulatorOf<T>* sums, StorageOf<T>* made, std::span<const std::byte* const> inputs,
                  std::size_t begin, std::size_t size) const {
    add_all<T>(sums, made, inputs, begin, size);
  }
};

/// Combines inputs by any other operation: the first two at once, then one after another.
template <class T, ReduceKind kind>
class Combining {
 public:
  using Element = T;
  explicit Combining(const Reducing& reducing) : reducing_(reducing) {}

  void operator()(AccumulatorOf<T>* totals, StorageOf<T>* made, std::span<const std::byte* const> inputs,
                  std::size_t begin, std::size_t size) const {
    const Block block{totals, made, inputs, begin, size};
    const auto leave = [](AccumulatorOf<T> value) { return value; };
    const auto leave_all = [leave](std::size_t) { return leave; };
    if constexpr (kind == ReduceKind::sum) {
      if (reducing_.kind == ReduceKind::premul_sum) {
        const auto multiply = [this](std::size_t input) {
          return [factor = reducing_.factor(input)](AccumulatorOf<T> value) {
            return ReductionOf<T>::times_factor(value, factor);
          };
        };
        return combine(block, multiply, leave);
      }
      const auto count = static_cast<std::uint32_t>(inputs.size());
      combine(block, leave_all,
              [count](AccumulatorOf<T> total) { return ReductionOf<T>::mean(total, count); });
    } else {
      combine(block, leave_all, leave);
    }
  }

 private:
  struct Block {
    AccumulatorOf<T>* totals;
    StorageOf<T>* made;
    std::span<const std::byte* const> inputs;
    std::size_t begin;
    std::size_t size;
  };

  /// `change_of`: of an input, what becomes of its values first. `finish`: what becomes of totals at last.
  template <class ChangeOf, class Finish>
  static void combine(const Block& block, const ChangeOf& change_of, const Finish& finish) {
    const std::size_t count = block.inputs.size();
    if (count == 1) return pass<1, true, true>(block, 0, change_of, finish);
    if (count == 2) return pass<2, true, true>(block, 0, change_of, finish);
    pass<2, true, false>(block, 0, change_of, finish);
    for (std::size_t k = 2; k + 1 < count; ++k) pass<1, false, false>(block, k, change_of, finish);
    pass<1, false, true>(block, count - 1, change_of, finish);
  }

  /// Works like `add_pass`.
  template <std::size_t Inputs, bool AreFirst, bool AreLast, class ChangeOf, class Finish>
  static void pass(const Block& block, std::size_t first, const ChangeOf& change_of, const Finish& finish) {
    const StorageOf<T>* const values = element<T>(block.inputs[first], block.begin);
    const StorageOf<T>* const others = element<T>(block.inputs[first + Inputs - 1], block.begin);
    const auto change = change_of(first);
    const auto change_other = change_of(first + Inputs - 1);
    AccumulatorOf<T>* const totals = block.totals;
    StorageOf<T>* const made = block.made;
    const std::size_t size = block.size;
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep
#endif
    for (std::size_t i = 0; i < size; ++i) {
      AccumulatorOf<T> total = change(ReductionOf<T>::load(values[i]));
      if constexpr (!AreFirst) total = ReductionOf<T>::template combine<kind>(totals[i], total);
      if constexpr (Inputs == 2)
        total = ReductionOf<T>::template combine<kind>(total, change_other(ReductionOf<T>::load(others[i])));
      if constexpr (AreLast) {
        made[i] = ReductionOf<T>::store(finish(total));
      } else {
        totals[i] = total;
      }
    }
  }

  const Reducing& reducing_;
};

/// The signed integers of T's width, if T is an unsigned one; otherwise T. Their sums, products and bits are
/// the same, and compiled once.
template <class T>
using SignedForm = typename std::conditional_t<std::unsigned_integral<T> && !std::is_same_v<T, bool>,
                                               std::make_signed<T>, std::type_identity<T>>::type;

/// The type as which elements of type T are combined. `sum` also stands for means and for sums of products.
template <class T, ReduceKind kind>
using ReducedAs =
    std::conditional_t<kind == ReduceKind::min || kind == ReduceKind::max || kind == ReduceKind::sum, T,
                       SignedForm<T>>;

/// Bytes from the outputs' beginnings to those of lines, if they are the same number of whole elements.
std::optional<std::size_t> bytes_to_line(std::span<std::byte* const> outputs, std::size_t element_bytes) {
  const auto into_line = [](const std::byte* output) {
    return reinterpret_cast<std::uintptr_t>(output) % line_bytes;
  };
  const std::size_t first = into_line(outputs.front());
  const std::size_t rest = (line_bytes - first) % line_bytes;
  const bool are_alike =
      std::ranges::all_of(outputs, [&](const std::byte* output) { return into_line(output) == first; });
  if (!are_alike || rest % element_bytes != 0) return std::nullopt;
  return rest;
}

template <class Combine>
void reduce_in_caches(const Combine& combine, std::size_t count, std::span<const std::byte* const> inputs,
                      std::span<std::byte* const> outputs) {
  using T = typename Combine::Element;
  AccumulatorOf<T> sums[block_elements];
  for (std::size_t begin = 0; begin < count; begin += block_elements) {
    const std::size_t size = std::min(block_elements, count - begin);
    auto* const made = reinterpret_cast<StorageOf<T>*>(outputs.front()) + begin;
    combine(sums, made, inputs, begin, size);
    for (std::byte* output : outputs.subspan(1)) {
      std::memcpy(output + begin * sizeof(T), made, size * sizeof(T));
    }
  }
}

/// No output is an input. A line of each begins `to_line` bytes from its beginning.
template <class Combine>
void reduce_past_caches(const Combine& combine, std::size_t count, std::span<const std::byte* const> inputs,
                        std::span<std::byte* const> outputs, std::size_t to_line) {
  using T = typename Combine::Element;
  constexpr std::size_t most = streamed_bytes / sizeof(T);
  AccumulatorOf<T> sums[most];
  alignas(line_bytes) StorageOf<T> made[most];
  std::size_t size = std::min(to_line == 0 ? most : to_line / sizeof(T), count);
  for (std::size_t begin = 0; begin < count; begin += size, size = std::min(most, count - begin)) {
    combine(sums, made, inputs, begin, size);
    for (std::byte* output : outputs) {
      put(output + begin * sizeof(T), reinterpret_cast<const std::byte*>(made), size * sizeof(T),
          Stores::streamed);
    }
  }
  finish(Stores::streamed);
}

/// Returns true if an output is an input: its bytes are in the caches anyway, and should stay there.
bool is_in_place(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs) {
  return std::ranges::find_first_of(outputs, inputs) != outputs.end();
}

}  // namespace

void ordered_reduction_segment(DType dtype, const Reducing& reducing, std::size_t count,
                               std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                               Stores stores) {
  std::optional<std::size_t> to_line;  // if they are streamed
  if (stores_for_rows(stores, count * size_of(dtype)) == Stores::streamed && !is_in_place(inputs, outputs))
    to_line = bytes_to_line(outputs, size_of(dtype));
  const auto reduce = [&](const auto& combine) {
    if (to_line) {
      reduce_past_caches(combine, count, inputs, outputs, *to_line);
    } else {
      reduce_in_caches(combine, count, inputs, outputs);
    }
  };
  visit_dtype(dtype, [&]<class T>() {
    if (reducing.kind == ReduceKind::sum) return reduce(Adding<SignedForm<T>>());
    visit_kind(reducing.kind, [&]<ReduceKind kind>() {
      if constexpr (has_operation<T>(kind)) reduce(Combining<ReducedAs<T, kind>, kind>(reducing));
    });
  });
}

}  // namespace tutti::backend::host
