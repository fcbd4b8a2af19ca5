// SPDX-License-Identifier: Apache-2.0
#include "backend/host/table_work.hpp"

#include "backend/host/kernels.hpp"
#include "tutti/error.hpp"

#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace tutti::backend::host {
namespace {

[[noreturn]] void refuse_table(std::string_view operation, const std::string& reason) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", operation, reason));
}

/// Entries `first` to `first + count` of a pointer table must exist.
void check_entries(std::string_view operation, std::size_t segment, std::uint64_t first, std::uint64_t count,
                   std::size_t table_size) {
  if (first + count <= table_size) return;
  refuse_table(operation, fmt::format("segment {} refers to entries {} to {} of a pointer table with {}",
                                      segment, first, first + count, table_size));
}

}  // namespace

FanOutWork::FanOutWork(const FanOut& task)
    : segments_(task.segments.begin(), task.segments.end()),
      pointers_(task.pointers.begin(), task.pointers.end()) {
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    check_entries("fan_out", i, segments_[i].source, 1, pointers_.size());
    check_entries("fan_out", i, segments_[i].first_target, segments_[i].target_count, pointers_.size());
  }
}

void FanOutWork::operator()(Translation& translation) const {
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> targets;
  sources.reserve(segments_.size());
  targets.reserve(pointers_.size());
  std::uint64_t written = 0;
  for (const FanOutSegment& segment : segments_) {
    translation.begin_segment();
    sources.push_back(
        translation.read(pointers_[segment.source], {segment.row_bytes, segment.rows, segment.source_pitch}));
    written += segment.row_bytes * segment.rows * segment.target_count;
    for (std::byte* target : std::span(pointers_).subspan(segment.first_target, segment.target_count)) {
      targets.push_back(translation.write(target, {segment.row_bytes, segment.rows, segment.target_pitch}));
    }
  }
  const Stores stores = stores_for(written);
  std::span<std::byte* const> remaining = targets;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    fan_out_segment(segments_[i], sources[i], remaining.first(segments_[i].target_count), stores);
    remaining = remaining.subspan(segments_[i].target_count);
  }
}

OrderedReductionWork::OrderedReductionWork(const OrderedReduction& task)
    : dtype_(task.dtype),
      kind_(task.reducing.kind),
      factors_(task.reducing.factors.begin(), task.reducing.factors.end()),
      input_count_(task.input_count),
      output_count_(task.output_count),
      segments_(task.segments.begin(), task.segments.end()),
      pointers_(task.pointers.begin(), task.pointers.end()) {
  if (input_count_ == 0 || output_count_ == 0) {
    refuse_table("ordered_reduction",
                 fmt::format("{} inputs and {} outputs per segment; at least one of each is needed",
                             input_count_, output_count_));
  }
  const bool has_factors = kind_ == ReduceKind::premul_sum;
  if (has_factors ? factors_.size() != 1 && factors_.size() != input_count_ : !factors_.empty()) {
    refuse_table("ordered_reduction", fmt::format("{} factors of a {} of {} inputs", factors_.size(),
                                                  tutti::name_of(kind_), input_count_));
  }
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    check_entries("ordered_reduction", i, segments_[i].first_input, input_count_, pointers_.size());
    check_entries("ordered_reduction", i, segments_[i].first_output, output_count_, pointers_.size());
  }
}

void OrderedReductionWork::operator()(Translation& translation) const {
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  inputs.reserve(segments_.size() * input_count_);
  outputs.reserve(segments_.size() * output_count_);
  std::uint64_t written = 0;
  for (const OrderedReductionSegment& segment : segments_) {
    const std::size_t bytes = segment.count * size_of(dtype_);
    written += bytes * output_count_;
    translation.begin_segment();
    for (const std::byte* input : std::span(pointers_).subspan(segment.first_input, input_count_)) {
      inputs.push_back(translation.read(input, bytes));
    }
    for (std::byte* output : std::span(pointers_).subspan(segment.first_output, output_count_)) {
      outputs.push_back(translation.write(output, bytes));
    }
  }
  const Stores stores = stores_for(written);
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    ordered_reduction_segment(dtype_, {kind_, factors_}, segments_[i].count,
                              std::span(inputs).subspan(i * input_count_, input_count_),
                              std::span(outputs).subspan(i * output_count_, output_count_), stores);
  }
}

}  // namespace tutti::backend::host
