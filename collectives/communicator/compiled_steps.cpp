// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/compiled_steps.hpp"

#include "transport/plan/pieces.hpp"
#include "transport/plan/tuning.hpp"
#include "tutti/dtype.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace tutti::collectives {
namespace {

/// Builds the steps of one reduction.
class CompiledSteps {
 public:
  CompiledSteps(const Request& whole, std::size_t members, std::size_t root)
      : whole_(whole), members_(members), root_(root) {}

  /// Every member combines its own part of all.
  std::vector<CompiledStep> scatter() && {
    if (!whole_.parts.empty()) {
      add_exchange(0, whole_.parts);
      return std::move(steps_);
    }
    if (whole_.columns == 0) return {};
    add_exchange_of_equal_parts(0, whole_.columns);
    return std::move(steps_);
  }

  /// One member, or all, have the whole.
  std::vector<CompiledStep> combine(bool is_for_all) && {
    std::size_t column = 0;
    while (column < whole_.columns) {
      const std::size_t end = end_of_gather(column);
      // For the root alone an exchange moves less, and a single one is as fast.
      if (end - column > (is_for_all ? 0U : 1U)) {
        add_gather(column, end, is_for_all);
        column = end;
        continue;
      }
      const std::size_t end_of_even = is_for_all ? end_of_batch(column) : column;
      if (end_of_even - column > 1) {
        add_exchange_of_equal_parts(column, end_of_even);
        add_spread(column, end_of_even);
        column = end_of_even;
        continue;
      }
      const std::vector<std::uint64_t> shares =
          is_for_all ? even_shares(column) : shares_of_root(elements_of(column));
      add_exchange(column, shares);
      if (is_for_all) add_spread(column, column + 1);
      ++column;
    }
    return std::move(steps_);
  }

 private:
  [[nodiscard]] std::uint64_t elements_of(std::size_t column) const {
    return whole_.reduced().columns[column].elements;
  }
  [[nodiscard]] std::uint64_t width_of(std::size_t column) const {
    return size_of(whole_.reduced().columns[column].dtype);
  }
  [[nodiscard]] std::uint64_t bytes_of(std::size_t column) const {
    return whole_.reduced().columns[column].bytes();
  }
  [[nodiscard]] std::vector<std::uint64_t> shares_of_root(std::uint64_t elements) const {
    std::vector<std::uint64_t> shares(members_, 0);
    shares[root_] = elements;
    return shares;
  }

  /// The columns from `first` on that are gathered together end before this one.
  [[nodiscard]] std::size_t end_of_gather(std::size_t first) const {
    std::uint64_t bytes = 0;
    std::size_t end = first;
    while (end < whole_.columns && bytes_of(end) <= transport::compiled_gathers_to - bytes)
      bytes += bytes_of(end++);
    return end;
  }

  /// The columns from `first` on that are shared out together end before this one: `first` itself if it is to
  /// be alone.
  [[nodiscard]] std::size_t end_of_batch(std::size_t first) const {
    std::uint64_t bytes = 0;
    std::size_t end = first;
    while (end < whole_.columns && elements_of(end) % members_ == 0 &&
           bytes_of(end) <= transport::compiled_batches_to - bytes)
      bytes += bytes_of(end++);
    return end;
  }

  /// In elements, by member.
  [[nodiscard]] std::vector<std::uint64_t> even_shares(std::size_t column) const {
    const std::array sizes{elements_of(column)};
    const std::uint64_t multiple = transport::compiled_split_alignment / width_of(column);
    std::vector<std::uint64_t> shares;
    for (const auto& slices : transport::split_evenly(sizes, members_, multiple))
      shares.push_back(slices.empty() ? 0 : slices.front().end - slices.front().begin);
    return shares;
  }

  [[nodiscard]] CompiledStep exchange_of(std::size_t first, std::size_t columns) const {
    CompiledStep step{.kind = CompiledStep::Kind::exchange, .first = first, .columns = columns};
    step.request.reset(Collective::all_to_all, name_of(CollectiveForm(Collective::all_to_all, columns != 1)),
                       columns);
    return step;
  }

  void add_gather(std::size_t first, std::size_t end, bool is_for_all) {
    CompiledStep step{.kind = CompiledStep::Kind::gather, .first = first, .columns = end - first};
    step.request.reset(Collective::all_gather,
                       name_of(CollectiveForm(Collective::all_gather, step.columns != 1)), step.columns);
    for (std::size_t column = first; column < end; ++column) {
      step.request.copied().bytes.push_back(bytes_of(column));
      const std::uint64_t elements = elements_of(column);
      step.shares.push_back(is_for_all ? std::vector<std::uint64_t>(members_, elements)
                                       : shares_of_root(elements));
    }
    steps_.push_back(std::move(step));
  }

  void add_exchange(std::size_t column, const std::vector<std::uint64_t>& shares) {
    CompiledStep step = exchange_of(column, 1);
    const std::uint64_t width = width_of(column);
    const std::uint64_t largest = *std::ranges::max_element(shares);
    step.request.copied().bytes.push_back(std::max(bytes_of(column), largest * members_ * width));
    if (!are_equal(shares)) {
      for (std::size_t sender = 0; sender < members_; ++sender) {
        for (const std::uint64_t share : shares) step.request.parts.push_back(share * width);
      }
    }
    step.shares.push_back(shares);
    steps_.push_back(std::move(step));
  }

  void add_exchange_of_equal_parts(std::size_t first, std::size_t end) {
    CompiledStep step = exchange_of(first, end - first);
    for (std::size_t column = first; column < end; ++column) {
      step.request.copied().bytes.push_back(bytes_of(column));
      step.shares.emplace_back(members_, elements_of(column) / members_);
    }
    steps_.push_back(std::move(step));
  }

  /// Adds a step that distributes the results of the step before: several columns have equal shares.
  void add_spread(std::size_t first, std::size_t end) {
    CompiledStep step{.kind = CompiledStep::Kind::spread, .first = first, .columns = end - first};
    step.request.reset(Collective::all_gather,
                       name_of(CollectiveForm(Collective::all_gather, step.columns != 1)), step.columns);
    step.shares = steps_.back().shares;
    for (std::size_t k = 0; k < step.columns; ++k) {
      const std::vector<std::uint64_t>& shares = step.shares[k];
      const std::uint64_t width = width_of(first + k);
      if (are_equal(shares)) {
        step.request.copied().bytes.push_back(shares.front() * width);
      } else {
        step.request.copied().bytes.push_back(bytes_of(first + k));
        for (const std::uint64_t share : shares) step.request.parts.push_back(share * width);
      }
    }
    steps_.push_back(std::move(step));
  }

  static bool are_equal(const std::vector<std::uint64_t>& shares) {
    return std::ranges::all_of(shares, [&](std::uint64_t share) { return share == shares.front(); });
  }

  const Request& whole_;
  std::size_t members_;
  std::size_t root_;
  std::vector<CompiledStep> steps_{};
};

}  // namespace

std::uint64_t CompiledStep::start_of(std::size_t column, std::size_t member) const {
  if (kind == Kind::gather) return 0;
  const std::vector<std::uint64_t>& all = shares[column];
  return std::accumulate(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(member), std::uint64_t{0});
}

std::vector<CompiledStep> compiled_steps(const Request& whole, std::size_t members, std::size_t root) {
  CompiledSteps steps(whole, members, root);
  switch (traits_of(whole.collective).output) {
    case CollectiveOutput::part:
      return std::move(steps).scatter();
    case CollectiveOutput::one:
      return std::move(steps).combine(false);
    default:
      return std::move(steps).combine(true);
  }
}

std::string in_words(const CompiledStep& step) {
  const std::string tensors =
      step.columns == 1 ? fmt::format("tensor {}", step.first)
                        : fmt::format("tensors {} to {}", step.first, step.first + step.columns - 1);
  if (step.kind == CompiledStep::Kind::spread)
    return fmt::format("{} of what has been combined of {}", step.request.name, tensors);
  return fmt::format("{} of {}, which who has results then combines by what is compiled at run time",
                     step.request.name, tensors);
}

}  // namespace tutti::collectives
