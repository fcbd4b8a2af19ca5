// SPDX-License-Identifier: Apache-2.0
#include "collectives/team_problem.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// How calls between processes are shared among members: everything once, and nothing by a root.
namespace tutti::collectives {
namespace {

using Columns = std::vector<TeamColumn>;

const std::vector<Columns> lists{
    {{1'000'000, DType::float32}},
    {{1, DType::float64}},  // fewer bytes than a share is aligned to
    {{0, DType::float32}, {300'001, DType::bfloat16}, {7, DType::complex128}, {0, DType::int8}},
    Columns(40, {1'234, DType::int16}),
};

/// Visits all lists, all roots of three to five members.
template <class Visit>
void for_each_call(const Visit& visit) {
  for (const Columns& columns : lists) {
    for (std::size_t members = 3; members <= 5; ++members) {
      for (std::size_t root = 0; root < members; ++root) visit(columns, members, root);
    }
  }
}

std::uint64_t bytes_of(const Columns& columns) {
  std::uint64_t bytes = 0;
  for (const TeamColumn& column : columns) bytes += column.bytes();
  return bytes;
}

/// From where to where bytes are written, by buffer; each byte must be written once.
class Written {
 public:
  void add(transport::Place place, std::uint64_t bytes) {
    if (bytes == 0) return;
    EXPECT_TRUE(ranges_.emplace(std::pair(place.buffer, place.offset), bytes).second);
  }
  /// Whether they cover `bytes` bytes of a buffer from its beginning, without gaps and overlaps.
  [[nodiscard]] bool cover(transport::BufferId buffer, std::uint64_t bytes) const {
    std::uint64_t end = 0;
    for (const auto& [place, count] : ranges_) {
      if (place.first != buffer) continue;
      if (place.second != end) return false;
      end += count;
    }
    return end == bytes;
  }

 private:
  std::map<std::pair<transport::BufferId, std::uint64_t>, std::uint64_t> ranges_;
};

/// The column whose output of `member` a place is in.
std::size_t column_of(const TeamProblem& problem, const Columns& columns, std::size_t member,
                      transport::Place output) {
  for (std::size_t column = 0; column < columns.size(); ++column) {
    if (problem.output(member, column).buffer == output.buffer) return column;
  }
  ADD_FAILURE() << "no output of member " << member;
  return 0;
}

TEST(TeamProblem, OthersThanTheRootHaveNearlyEvenShares) {
  for_each_call([](const Columns& columns, std::size_t members, std::size_t root) {
    const std::vector<Share> shares = shares_of_others(root, members, columns);
    ASSERT_EQ(shares.size(), members - 1);
    std::vector<std::uint64_t> next(columns.size(), 0);
    for (std::size_t i = 0; i < shares.size(); ++i) {
      EXPECT_EQ(shares[i].member, i < root ? i : i + 1);
      std::uint64_t bytes = 0;
      for (const transport::Slice& slice : shares[i].slices) {
        EXPECT_EQ(slice.begin, std::exchange(next[slice.item], slice.end)) << "column " << slice.item;
        bytes += slice.end - slice.begin;
      }
      EXPECT_LE(bytes, bytes_of(columns) / shares.size() + 2 * transport::split_alignment);
    }
    for (std::size_t t = 0; t < columns.size(); ++t) EXPECT_EQ(next[t], columns[t].bytes());
  });
}

TEST(TeamProblem, ARelayedSumIsMadeByOthersAndHandedOnToTheRoot) {
  for_each_call([](const Columns& columns, std::size_t members, std::size_t root) {
    TeamProblem problem(members, columns.size());
    describe_relayed_reduce(problem, columns, root);
    const transport::ranks::TeamWork& work = problem.work();
    ASSERT_EQ(work.stages.size(), 1U);
    const auto& [flows, reductions] = std::tie(work.stages[0].flows, work.stages[0].reductions);
    ASSERT_EQ(flows.size(), reductions.size());
    Written result;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const transport::Place made = reductions[i].output;
      EXPECT_NE(work.member_of(made), root);
      const auto inputs = work.places_of(reductions[i].inputs);
      ASSERT_EQ(inputs.size(), members);
      const auto column = column_of(problem, columns, work.member_of(made), made);
      EXPECT_EQ(reductions[i].dtype, columns[column].dtype);
      for (std::size_t member = 0; member < members; ++member)
        EXPECT_EQ(inputs[member], problem.input(member, column, made.offset)) << "in ascending order";
      EXPECT_EQ(flows[i].source, made);
      EXPECT_EQ(flows[i].bytes(), reductions[i].bytes());
      const auto targets = work.places_of(flows[i].targets);
      ASSERT_EQ(targets.size(), 1U);
      EXPECT_EQ(targets[0], problem.output(root, column, made.offset));
      result.add(targets[0], flows[i].bytes());
    }
    for (std::size_t t = 0; t < columns.size(); ++t)
      EXPECT_TRUE(result.cover(problem.output(root, t).buffer, columns[t].bytes())) << "column " << t;
  });
}

TEST(TeamProblem, ARelayedBroadcastGivesAllOfItToEveryOtherMember) {
  for_each_call([](const Columns& columns, std::size_t members, std::size_t root) {
    TeamProblem problem(members, columns.size());
    describe_relayed_broadcast(problem, columns, root, std::vector<std::uint64_t>(columns.size(), 0));
    const transport::ranks::TeamWork& work = problem.work();
    Written results;
    for (const transport::Reduction& taken : work.stages[0].reductions) {
      const auto inputs = work.places_of(taken.inputs);
      ASSERT_EQ(inputs.size(), 1U);
      const auto column = column_of(problem, columns, work.member_of(taken.output), taken.output);
      EXPECT_EQ(inputs[0], problem.input(root, column, taken.output.offset));
      results.add(taken.output, taken.bytes());
    }
    for (const transport::Flow& flow : work.stages[0].flows) {
      const auto column = column_of(problem, columns, work.member_of(flow.source), flow.source);
      for (const transport::Place target : work.places_of(flow.targets)) {
        EXPECT_EQ(target, problem.output(work.member_of(target), column, flow.source.offset));
        results.add(target, flow.bytes());
      }
    }
    for (std::size_t member = 0; member < members; ++member) {
      for (std::size_t t = 0; t < columns.size(); ++t) {
        EXPECT_TRUE(results.cover(problem.output(member, t).buffer, member == root ? 0 : columns[t].bytes()))
            << "column " << t << " of member " << member;
      }
    }
  });
}

}  // namespace
}  // namespace tutti::collectives
