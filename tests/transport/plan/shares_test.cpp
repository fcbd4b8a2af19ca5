// SPDX-License-Identifier: Apache-2.0
#include "transport/plan/shares.hpp"

#include "collectives/call/describe.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/rounds/round_stages.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// How calls of a team are shared among members: everything once, and nothing by a root.
namespace tutti::transport::team {
namespace {

/// One tensor of every member.
struct Column {
  std::uint64_t elements = 0;
  DType dtype = DType::float32;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return elements * size_of(dtype); }
};
using Columns = std::vector<Column>;

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
  for (const Column& column : columns) bytes += column.bytes();
  return bytes;
}

/// From where to where bytes are written, by buffer; each byte must be written once.
class Written {
 public:
  void add(Place place, std::uint64_t bytes) {
    if (bytes == 0) return;
    EXPECT_TRUE(ranges_.emplace(std::pair(place.buffer, place.offset), bytes).second);
  }
  /// Whether they cover `bytes` bytes of a buffer from its beginning, without gaps and overlaps.
  [[nodiscard]] bool cover(BufferId buffer, std::uint64_t bytes) const {
    std::uint64_t end = 0;
    for (const auto& [place, count] : ranges_) {
      if (place.first != buffer) continue;
      if (place.second != end) return false;
      end += count;
    }
    return end == bytes;
  }

 private:
  std::map<std::pair<BufferId, std::uint64_t>, std::uint64_t> ranges_;
};

/// A call of a team whose members are all elsewhere. Buffers: inputs by member and column, then outputs.
class TeamCallOf {
 public:
  TeamCallOf(Collective collective, const Columns& columns, std::size_t members, std::size_t root)
      : columns_(columns), members_(members) {
    collectives::Request request(collective, {}, columns.size());
    for (const Column& column : columns) request.add_column(column.elements, column.dtype);
    if (!traits_of(collective).reduces) {
      for (std::size_t column = 0; column < columns.size(); ++column)
        request.copied().left_alone.push_back(output(root, column).buffer);
    }
    problem_.collective = collective;
    problem_.is_of_team = true;
    problem_.root = static_cast<LaneId>(root);
    problem_.lane_devices.assign(members, remote_device);
    for (int side = 0; side < 2; ++side) {
      for (std::size_t member = 0; member < members; ++member)
        problem_.homes.insert(problem_.homes.end(), columns.size(), static_cast<LaneId>(member));
    }
    problem_.ready = problem_.homes;
    collectives::describe(request, problem_);
  }

  [[nodiscard]] TeamWork relayed() const {
    return share_work(problem_, true, round_tuning_of(BackendKind::host));
  }
  [[nodiscard]] const Problem& problem() const noexcept { return problem_; }
  [[nodiscard]] Place input(std::size_t member, std::size_t column, std::uint64_t offset = 0) const {
    return {static_cast<BufferId>(member * columns_.size() + column), offset};
  }
  [[nodiscard]] Place output(std::size_t member, std::size_t column, std::uint64_t offset = 0) const {
    return {static_cast<BufferId>((members_ + member) * columns_.size() + column), offset};
  }
  /// The column whose output, or input, a place is in.
  [[nodiscard]] std::size_t column_of(Place place) const { return place.buffer % columns_.size(); }

 private:
  const Columns& columns_;
  std::size_t members_;
  Problem problem_;
};

TEST(Shares, OthersThanTheRootHaveNearlyEvenOnes) {
  for_each_call([](const Columns& columns, std::size_t members, std::size_t root) {
    std::vector<std::uint64_t> sizes;
    for (const Column& column : columns) sizes.push_back(column.bytes());
    const std::vector<Share> shares = share_out(sizes, lanes_but(static_cast<LaneId>(root), members));
    ASSERT_EQ(shares.size(), members - 1);
    std::vector<std::uint64_t> next(columns.size(), 0);
    for (std::size_t i = 0; i < shares.size(); ++i) {
      EXPECT_EQ(shares[i].lane, i < root ? i : i + 1);
      std::uint64_t bytes = 0;
      for (const Slice& slice : shares[i].slices) {
        EXPECT_EQ(slice.begin, std::exchange(next[slice.item], slice.end)) << "column " << slice.item;
        bytes += slice.end - slice.begin;
      }
      EXPECT_LE(bytes, bytes_of(columns) / shares.size() + 2 * split_alignment);
    }
    for (std::size_t t = 0; t < columns.size(); ++t) EXPECT_EQ(next[t], columns[t].bytes());
  });
}

TEST(Shares, ARelayedSumIsMadeByOthersAndHandedOnToTheRoot) {
  for_each_call([](const Columns& columns, std::size_t members, std::size_t root) {
    const TeamCallOf call(Collective::reduce, columns, members, root);
    const TeamWork work = call.relayed();
    ASSERT_EQ(work.stages.size(), 1U);
    const auto& [flows, reductions] = std::tie(work.stages[0].flows, work.stages[0].reductions);
    ASSERT_EQ(flows.size(), reductions.size());
    Written result;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const Place made = work.output_of(reductions[i]);
      EXPECT_NE(work.member_of(made), root);
      EXPECT_GE(made.buffer, call.problem().homes.size()) << "memory of its own";
      const auto inputs = work.places_of(reductions[i].inputs);
      ASSERT_EQ(inputs.size(), members);
      const std::size_t column = call.column_of(inputs[0]);
      EXPECT_EQ(reductions[i].dtype, columns[column].dtype);
      for (std::size_t member = 0; member < members; ++member)
        EXPECT_EQ(inputs[member], call.input(member, column, made.offset)) << "in ascending order";
      EXPECT_LE(made.offset + reductions[i].bytes(),
                work.share_bytes[made.buffer - call.problem().homes.size()]);
      EXPECT_EQ(flows[i].source, made);
      EXPECT_EQ(flows[i].bytes(), reductions[i].bytes());
      const auto targets = work.places_of(flows[i].targets);
      ASSERT_EQ(targets.size(), 1U);
      EXPECT_EQ(targets[0], call.output(root, column, made.offset));
      result.add(targets[0], flows[i].bytes());
    }
    for (std::size_t t = 0; t < columns.size(); ++t)
      EXPECT_TRUE(result.cover(call.output(root, t).buffer, columns[t].bytes())) << "column " << t;
  });
}

TEST(Shares, ARelayedBroadcastGivesAllOfItToEveryOtherMember) {
  for_each_call([](const Columns& columns, std::size_t members, std::size_t root) {
    const TeamCallOf call(Collective::broadcast, columns, members, root);
    const TeamWork work = call.relayed();
    Written results;
    for (const Reduction& taken : work.stages[0].reductions) {
      const auto inputs = work.places_of(taken.inputs);
      ASSERT_EQ(inputs.size(), 1U);
      const Place output = work.output_of(taken);
      EXPECT_EQ(inputs[0], call.input(root, call.column_of(output), output.offset));
      results.add(output, taken.bytes());
    }
    for (const Flow& flow : work.stages[0].flows) {
      for (const Place target : work.places_of(flow.targets)) {
        EXPECT_EQ(target,
                  call.output(work.member_of(target), call.column_of(flow.source), flow.source.offset));
        results.add(target, flow.bytes());
      }
    }
    for (std::size_t member = 0; member < members; ++member) {
      for (std::size_t t = 0; t < columns.size(); ++t) {
        EXPECT_TRUE(results.cover(call.output(member, t).buffer, member == root ? 0 : columns[t].bytes()))
            << "column " << t << " of member " << member;
      }
    }
  });
}

}  // namespace
}  // namespace tutti::transport::team
