#include "collectives/team_problem.hpp"

#include "transport/pieces.hpp"
#include "transport/tuning.hpp"

namespace tutti::collectives {
namespace {

/// Sums of fewer bytes per member than this are made by one member for all: cut into parts they would be as
/// slow.
constexpr std::uint64_t smallest_shared_sum = 16 << 10;

}  // namespace

void describe_shared_sums(TeamProblem& problem, std::span<const TeamColumn> columns) {
  std::vector<std::uint64_t> sizes;
  std::uint64_t bytes = 0;
  for (const TeamColumn& column : columns) {
    sizes.push_back(column.bytes());
    bytes += column.bytes();
  }
  const std::size_t parts = bytes < smallest_shared_sum * problem.members() ? 1 : problem.members();
  const auto slices = transport::split_evenly(sizes, parts, transport::split_alignment);
  for (std::size_t member = 0; member < slices.size(); ++member) {
    for (const transport::Slice& slice : slices[member]) {
      const TeamColumn& column = columns[slice.item];
      const std::uint64_t width = size_of(column.dtype);
      const std::uint64_t count = (slice.end - slice.begin) / width;
      problem.sum(slice.item, column, slice.begin / width, count,
                  problem.output(member, slice.item, slice.begin));
    }
  }
  for (std::size_t member = 0; member < slices.size(); ++member) {
    for (const transport::Slice& slice : slices[member]) {
      problem.flow(problem.output(member, slice.item, slice.begin),
                   problem.other_outputs(member, slice.item, slice.begin), slice.end - slice.begin);
    }
  }
}

}  // namespace tutti::collectives
