#include "collectives/team_problem.hpp"

#include "transport/pieces.hpp"
#include "transport/tuning.hpp"

namespace tutti::collectives {
namespace {

void sum_on_every_member(TeamProblem& problem, std::span<const TeamColumn> columns) {
  for (std::size_t member = 0; member < problem.members(); ++member) {
    for (std::size_t column = 0; column < columns.size(); ++column)
      problem.sum(column, columns[column], 0, columns[column].elements, problem.output(member, column));
  }
}

}  // namespace

void describe_shared_sums(TeamProblem& problem, std::span<const TeamColumn> columns,
                          const transport::RanksTuning& tuning) {
  std::vector<std::uint64_t> sizes;
  std::uint64_t bytes = 0;
  for (const TeamColumn& column : columns) {
    sizes.push_back(column.bytes());
    bytes += column.bytes();
  }
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

}  // namespace tutti::collectives
