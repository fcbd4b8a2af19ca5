// SPDX-License-Identifier: Apache-2.0
#include "collectives/team_request.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tutti::collectives {
namespace {

bool stays(const TeamRequest& request, std::size_t index) {
  return !request.to_itself.empty() && request.to_itself[index] != 0;
}

void describe_broadcast(TeamProblem& problem, const TeamRequest& request) {
  for (std::size_t t = 0; t < request.columns.size(); ++t) {
    const std::uint64_t bytes = request.columns[t].bytes();
    const transport::Place source = problem.input(request.root, t);
    problem.flow(source, problem.other_outputs(request.root, t), bytes);
    // By a flow of its own: what only the root knows must not change what goes to the others.
    if (stays(request, t)) problem.flow(source, {problem.output(request.root, t)}, bytes);
  }
}

void describe_reduce(TeamProblem& problem, const TeamRequest& request) {
  for (std::size_t t = 0; t < request.columns.size(); ++t)
    problem.sum(t, request.columns[t], 0, request.columns[t].elements, problem.output(request.root, t));
}

void describe_all_gather(TeamProblem& problem, const TeamRequest& request) {
  const std::uint64_t bytes = request.columns.front().bytes();
  for (std::size_t member = 0; member < problem.members(); ++member) {
    auto targets = problem.other_outputs(member, 0, member * bytes);
    if (stays(request, member)) targets.push_back(problem.output(member, 0, member * bytes));
    problem.flow(problem.input(member, 0), targets, bytes);
  }
}

void describe_reduce_scatter(TeamProblem& problem, const TeamRequest& request) {
  problem.outputs_are_apart();
  const TeamColumn& column = request.columns.front();
  const std::uint64_t count = column.elements / problem.members();
  for (std::size_t member = 0; member < problem.members(); ++member)
    problem.sum(0, column, member * count, count, problem.output(member, 0));
}

/// Scatter and gather: rows of the whole are at its pitch, rows of a part at the part's own.
void describe_cut(TeamProblem& problem, const TeamRequest& request) {
  const Cut& cut = request.geometry;
  const std::uint64_t total =
      std::accumulate(request.lengths.begin(), request.lengths.end(), std::uint64_t{0});
  const std::uint64_t whole_pitch = total * cut.slab_bytes;
  std::uint64_t next = 0;
  for (std::size_t member = 0; member < problem.members(); ++member) {
    const std::uint64_t part_pitch = request.lengths[member] * cut.slab_bytes;
    const std::uint64_t start = std::exchange(next, next + part_pitch);
    const bool is_all = part_pitch == whole_pitch;
    const std::uint64_t row_bytes = is_all ? part_pitch * cut.rows : part_pitch;
    const std::uint64_t rows = is_all ? 1 : cut.rows;
    if (request.collective == Collective::scatter) {
      problem.rows(problem.input(request.root, 0, start), whole_pitch, problem.output(member, 0), part_pitch,
                   row_bytes, rows);
    } else {
      problem.rows(problem.input(member, 0), part_pitch, problem.output(request.root, 0, start), whole_pitch,
                   row_bytes, rows);
    }
  }
}

}  // namespace

void TeamRequest::clear() noexcept {
  collective = Collective::barrier;
  root = 0;
  columns.clear();
  geometry = {};
  lengths.clear();
  to_itself.clear();
}

transport::ranks::CallShape TeamRequest::shape(std::size_t members) const noexcept {
  transport::ranks::CallShape shape{
      .collective = of_one_tensor(), .members = members, .tensors = columns.size()};
  if (traits_of(collective).has_own_sizes) {
    shape.has_rows_apart = geometry.rows > 1;
    if (lengths.empty()) return shape;
    const std::uint64_t unit = geometry.slab_bytes * geometry.rows;
    shape.payload = unit * std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
    shape.kept_by_root = unit * lengths[root];
    shape.largest_tensor = shape.payload;
    return shape;
  }
  for (const TeamColumn& column : columns) {
    shape.payload += column.bytes();
    shape.largest_tensor = std::max(shape.largest_tensor, column.bytes());
  }
  if (collective == Collective::all_gather) shape.payload *= members;
  return shape;
}

void TeamRequest::add_to(transport::PlanKey& key) const {
  key.add(static_cast<std::uint64_t>(collective) << 32U | root);
  key.add(columns.size());
  for (const TeamColumn& column : columns) {
    key.add(column.elements);
    key.add(static_cast<std::uint64_t>(column.dtype));
  }
  key.add(geometry.rows);
  key.add(geometry.slab_bytes);
  key.add_all(lengths);
  key.add_all(to_itself);
}

TeamProblem problem_of(const TeamRequest& request, std::size_t members, bool is_relayed,
                       const transport::RanksTuning& tuning) {
  TeamProblem problem(members, request.columns.size());
  switch (request.of_one_tensor()) {
    case Collective::broadcast:
      if (is_relayed) {
        describe_relayed_broadcast(problem, request.columns, request.root, request.to_itself);
      } else {
        describe_broadcast(problem, request);
      }
      break;
    case Collective::reduce_add:
      if (is_relayed) {
        describe_relayed_reduce(problem, request.columns, request.root);
      } else {
        describe_reduce(problem, request);
      }
      break;
    case Collective::all_reduce_add:
      describe_shared_sums(problem, request.columns, tuning);
      break;
    case Collective::all_gather:
      describe_all_gather(problem, request);
      break;
    case Collective::reduce_scatter_add:
      describe_reduce_scatter(problem, request);
      break;
    case Collective::scatter:
    case Collective::gather:
      describe_cut(problem, request);
      break;
    default:  // nothing is moved
      break;
  }
  return problem;
}

}  // namespace tutti::collectives
