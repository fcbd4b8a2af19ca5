// SPDX-License-Identifier: Apache-2.0
#include "backend/host/queues/table_work.hpp"

#include "tutti/error.hpp"

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

SwapWork::SwapWork(const FanOut& task)
    : segments_(task.segments.begin(), task.segments.end()),
      pointers_(task.pointers.begin(), task.pointers.end()) {
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    check_entries("team_round", i, segments_[i].source, 1, pointers_.size());
    check_entries("team_round", i, segments_[i].first_target, segments_[i].swap == Swap::never ? 1 : 2,
                  pointers_.size());
    if (segments_[i].rows != 1 || segments_[i].target_count != 1) {
      refuse_table("team_round", fmt::format("segment {} of a round that swaps has {} rows and {} targets; "
                                             "one of each is expected",
                                             i, segments_[i].rows, segments_[i].target_count));
    }
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

}  // namespace tutti::backend::host
