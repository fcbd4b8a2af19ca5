// SPDX-License-Identifier: Apache-2.0
#include "collectives/team_problem.hpp"

#include "transport/pieces.hpp"
#include "transport/tuning.hpp"

#include <numeric>
#include <utility>

namespace tutti::collectives {
namespace {

std::vector<std::uint64_t> sizes_of(std::span<const TeamColumn> columns) {
  std::vector<std::uint64_t> sizes;
  for (const TeamColumn& column : columns) sizes.push_back(column.bytes());
  return sizes;
}

void sum_on_every_member(TeamProblem& problem, std::span<const TeamColumn> columns) {
  for (std::size_t member = 0; member < problem.members(); ++member) {
    for (std::size_t column = 0; column < columns.size(); ++column)
      problem.sum(column, columns[column], 0, columns[column].elements, problem.output(member, column));
  }
}

}  // namespace

void describe_shared_sums(TeamProblem& problem, std::span<const TeamColumn> columns,
                          const transport::RanksTuning& tuning) {
  const std::vector<std::uint64_t> sizes = sizes_of(columns);
  const std::uint64_t bytes = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
  const std::size_t members = problem.members();
  if (bytes <= tuning.shared_sums_from) return sum_on_every_member(problem, columns);

  const std::size_t stages = (bytes + tuning.message_bytes - 1) / tuning.message_bytes;
  const auto slices = transport::split_evenly(sizes, stages * members, transport::split_alignment);
  for (std::size_t part = 0; part < slices.size(); ++part) {
    const std::size_t member = part % members;
    if (member == 0 && part > 0) problem.next_stage();
    for (const transport::Slice& slice : slices[part]) {
      const TeamColumn& column = columns[slice.item];
      const std::uint64_t width = size_of(column.dtype);
      const transport::Place output = problem.output(member, slice.item, slice.begin);
      problem.sum(slice.item, column, slice.begin / width, (slice.end - slice.begin) / width, output);
      problem.flow(output, problem.other_outputs(member, slice.item, slice.begin), slice.end - slice.begin);
    }
  }
}

std::vector<Share> shares_of_others(std::size_t root, std::size_t members,
                                    std::span<const TeamColumn> columns) {
  auto slices = transport::split_evenly(sizes_of(columns), members - 1, transport::split_alignment);
  std::vector<Share> shares;
  for (std::size_t i = 0; i < slices.size(); ++i)
    shares.push_back({.member = i < root ? i : i + 1, .slices = std::move(slices[i])});
  return shares;
}

void describe_relayed_reduce(TeamProblem& problem, std::span<const TeamColumn> columns, std::size_t root) {
  for (const Share& share : shares_of_others(root, problem.members(), columns)) {
    for (const transport::Slice& slice : share.slices) {
      const TeamColumn& column = columns[slice.item];
      const std::uint64_t width = size_of(column.dtype);
      const std::uint64_t bytes = slice.end - slice.begin;
      const transport::Place output = problem.output(share.member, slice.item, slice.begin);
      problem.sum(slice.item, column, slice.begin / width, bytes / width, output);
      problem.flow(output, {problem.output(root, slice.item, slice.begin)}, bytes);
    }
  }
}

void describe_relayed_broadcast(TeamProblem& problem, std::span<const TeamColumn> columns, std::size_t root,
                                std::span<const std::uint64_t> to_itself) {
  problem.outputs_are_apart();
  for (const Share& share : shares_of_others(root, problem.members(), columns)) {
    for (const transport::Slice& slice : share.slices) {
      const std::uint64_t bytes = slice.end - slice.begin;
      const transport::Place output = problem.output(share.member, slice.item, slice.begin);
      problem.sum_of_one(problem.input(root, slice.item, slice.begin), bytes, output);
      problem.flow(output, problem.other_outputs(root, share.member, slice.item, slice.begin), bytes);
    }
  }
  for (std::size_t column = 0; column < to_itself.size(); ++column) {
    if (to_itself[column] != 0)
      problem.sum_of_one(problem.input(root, column), columns[column].bytes(), problem.output(root, column));
  }
}

}  // namespace tutti::collectives
