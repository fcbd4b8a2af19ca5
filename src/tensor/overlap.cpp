// SPDX-License-Identifier: Apache-2.0
#include "tensor/overlap.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace tutti {
namespace {

/// Stands for `steps` different multiples of `coefficient`, from 0.
struct Term {
  std::int64_t coefficient = 0;  // bytes
  std::int64_t steps = 1;
};

/// A sum that takes one multiple from each term.
class TermSum {
 public:
  /// Adds a dimension. Dimensions of one stride join: the sum of their multiples has no gaps.
  void add(std::int64_t coefficient, std::int64_t size) {
    if (size == 1 || coefficient == 0) return;
    for (std::size_t i = 0; i < count_; ++i) {
      if (terms_[i].coefficient == coefficient) {
        terms_[i].steps += size - 1;
        return;
      }
    }
    terms_[count_++] = {coefficient, size};
  }

  /// Returns whether some choice lies in [low, high]; true also if the search gives up.
  [[nodiscard]] bool can_reach(std::int64_t low, std::int64_t high) {
    std::sort(terms_.begin(), terms_.begin() + static_cast<std::ptrdiff_t>(count_),
              [](const Term& a, const Term& b) { return a.coefficient > b.coefficient; });
    std::int64_t rest = 0;
    for (std::size_t i = count_; i-- > 0;) {
      rest_[i] = rest;
      rest += (terms_[i].steps - 1) * terms_[i].coefficient;
    }
    budget_ = search_budget;
    return search(0, low, high);
  }

 private:
  static constexpr int search_budget = 100'000;

  bool search(std::size_t index, std::int64_t low, std::int64_t high) {
    if (high < 0) return false;
    if (index == count_) return low <= 0;
    if (--budget_ < 0) return true;
    const Term& term = terms_[index];
    // Only multiples from which the smaller terms can still reach the range; largest first, then few remain.
    const std::int64_t last = std::min(term.steps - 1, high / term.coefficient);
    const std::int64_t missing = low - rest_[index];
    const std::int64_t first = missing <= 0 ? 0 : (missing + term.coefficient - 1) / term.coefficient;
    for (std::int64_t step = last; step >= first; --step) {
      const std::int64_t taken = step * term.coefficient;
      if (search(index + 1, low - taken, high - taken)) return true;
    }
    return false;
  }

  std::array<Term, 2 * std::size_t{max_dimensions}> terms_{};
  std::array<std::int64_t, 2 * std::size_t{max_dimensions}> rest_{};  // maximum sum of all later terms
  std::size_t count_ = 0;
  int budget_ = 0;
};

void add_dimensions(TermSum& sum, const TensorView& view) {
  const auto element = static_cast<std::int64_t>(size_of(view.dtype()));
  for (std::size_t i = 0; i < view.sizes().size(); ++i) sum.add(view.strides()[i] * element, view.sizes()[i]);
}

}  // namespace

bool shares_memory(const TensorView& a, const TensorView& b) {
  if (a.device() != b.device() || a.numel() == 0 || b.numel() == 0) return false;
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.data());
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b.data());
  const std::size_t a_span = a.layout()->span_bytes();
  const std::size_t b_span = b.layout()->span_bytes();
  if (a_begin >= b_begin + b_span || b_begin >= a_begin + a_span) return false;
  if (a.layout()->is_dense() && b.layout()->is_dense()) return true;

  // a_begin + (a's index, in bytes) + p == b_begin + (b's index, in bytes) + q for bytes p and q of an
  // element each. Counting b's indices from its last element turns the difference of two sums into one sum.
  TermSum sum;
  add_dimensions(sum, a);
  add_dimensions(sum, b);
  const auto a_element = static_cast<std::int64_t>(size_of(a.dtype()));
  const auto b_element = static_cast<std::int64_t>(size_of(b.dtype()));
  const std::int64_t distance =
      static_cast<std::int64_t>(b_begin - a_begin) + static_cast<std::int64_t>(b_span) - b_element;
  return sum.can_reach(distance - (a_element - 1), distance + (b_element - 1));
}

bool is_same_memory(const TensorView& a, const TensorView& b) {
  return a.data() == b.data() && a.device() == b.device() && *a.layout() == *b.layout();
}

}  // namespace tutti
