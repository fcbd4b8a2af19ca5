// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/host/translation.hpp"
#include "backend/operations.hpp"

#include <span>
#include <vector>

/// What kernels over tables of segments do when they run: all addresses are found first, so that a refused
/// access leaves everything untouched.
namespace tutti::backend::host {

class FanOutWork {
 public:
  /// Keeps a copy of the description. Throws Error(invalid_argument) if it contradicts itself.
  explicit FanOutWork(const FanOut& task);
  /// Calls `where(place)` for every source, which is what it returns from then on. Each has an entry of its
  /// own.
  template <class Where>
  void find_sources(const Where& where) {
    for (const FanOutSegment& segment : segments_)
      pointers_[segment.source] = where(pointers_[segment.source]);
  }
  /// Adds `shift` to every target. Each has an entry of its own.
  void shift_targets(std::uint64_t shift) {
    for (const FanOutSegment& segment : segments_) {
      for (std::byte*& target : std::span(pointers_).subspan(segment.first_target, segment.target_count))
        target += shift;
    }
  }
  void operator()(Translation& translation) const;

 private:
  std::vector<FanOutSegment> segments_;
  std::vector<std::byte*> pointers_;
};

class OrderedReductionWork {
 public:
  /// Likewise.
  explicit OrderedReductionWork(const OrderedReduction& task);
  /// Likewise for every input, and for outputs where there are several.
  template <class Where>
  void find_operands(const Where& where) {
    const auto find = [&](std::uint32_t first, std::uint32_t count) {
      for (std::byte*& place : std::span(pointers_).subspan(first, count)) place = where(place);
    };
    for (const OrderedReductionSegment& segment : segments_) {
      find(segment.first_input, input_count_);
      if (output_count_ > 1) find(segment.first_output, output_count_);
    }
  }
  void operator()(Translation& translation) const;

 private:
  DType dtype_;
  ReduceKind kind_;
  std::vector<double> factors_;
  std::uint32_t input_count_;
  std::uint32_t output_count_;
  std::vector<OrderedReductionSegment> segments_;
  std::vector<std::byte*> pointers_;
};

}  // namespace tutti::backend::host
