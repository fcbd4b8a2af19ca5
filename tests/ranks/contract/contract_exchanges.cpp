// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract/contract_exchanges.hpp"

#include "support/values/reference_sum.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/graph.hpp"
#include "tutti/stream.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test::ranks {
namespace {

bool is_in_place(InPlaceOf which, int member) {
  return which == InPlaceOf::all || (which == InPlaceOf::every_second && member % 2 == 0);
}

std::int64_t sum_of(const Sizes& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}
std::int64_t start_of(const Sizes& counts, int member) {
  return std::accumulate(counts.begin(), counts.begin() + member, std::int64_t{0});
}
/// What comes to a member from each.
Sizes column_of(const std::vector<Sizes>& counts, int member) {
  Sizes column;
  for (const Sizes& row : counts) column.push_back(row[static_cast<std::size_t>(member)]);
  return column;
}

std::vector<HostArray> arrays_of(DType dtype, const std::vector<Sizes>& counts, std::uint64_t seed) {
  std::vector<HostArray> arrays;
  for (const Sizes& row : counts)
    arrays.push_back(random_bits(dtype, {sum_of(row)}, 100 * seed + arrays.size()));
  return arrays;
}

/// What a member must hold after an exchange.
HostArray exchanged(const std::vector<HostArray>& arrays, const std::vector<Sizes>& counts, int member) {
  std::vector<HostArray> parts;
  for (std::size_t source = 0; source < arrays.size(); ++source) {
    parts.push_back(slice(arrays[source], 0, start_of(counts[source], member),
                          counts[source][static_cast<std::size_t>(member)]));
  }
  return concatenate(parts, 0);
}

/// Operands of the local members.
struct Exchanged {
  Exchanged(const Group& group, const std::vector<HostArray>& arrays, const std::vector<Sizes>& counts,
            InPlaceOf in_place, Placement placement) {
    for (int i = 0; i < group.locals(); ++i) {
      const int member = group.member(i);
      const HostArray& own = arrays[static_cast<std::size_t>(member)];
      const std::int64_t received = sum_of(column_of(counts, member));
      mine.emplace_back(own, group.device(i), placement);
      are_in_place.push_back(is_in_place(in_place, member) && own.numel() == received);
      out.push_back(are_in_place.back()
                        ? mine.back()
                        : TestTensor::poisoned(own.dtype, {received}, group.device(i), placement));
      expected.push_back(exchanged(arrays, counts, member));
    }
  }
  void check() const {
    for (std::size_t i = 0; i < out.size(); ++i) {
      EXPECT_TRUE(out[i].holds(expected[i])) << i;
      EXPECT_TRUE(are_in_place[i] || mine[i].untouched()) << i;
    }
  }
  std::vector<TestTensor> mine;
  std::vector<TestTensor> out;
  std::vector<bool> are_in_place;
  std::vector<HostArray> expected;
};

Placement placement_for(std::uint64_t seed) {
  return seed % 3 == 0 ? Placement::misaligned : Placement::contiguous;
}

/// A whole for each local member, and in it, or apart, its part.
struct WholesAndParts {
  std::vector<TestTensor> wholes;
  std::vector<TestTensor> apart;
  std::vector<Tensor> parts;
};

}  // namespace

Sizes uneven_counts(int members, std::int64_t largest, std::uint64_t seed) {
  Random random(seed);
  Sizes counts;
  for (int member = 0; member < members; ++member)
    counts.push_back(random.one_in(4) ? 0 : random.between(0, largest));
  return counts;
}

std::vector<Sizes> uneven_pairs(int members, std::int64_t largest, bool is_symmetric, std::uint64_t seed) {
  std::vector<Sizes> counts;
  for (int member = 0; member < members; ++member)
    counts.push_back(uneven_counts(members, largest, 50 * seed + static_cast<std::uint64_t>(member)));
  for (std::size_t i = 0; is_symmetric && i < counts.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) counts[i][j] = counts[j][i];
  }
  return counts;
}

Check start_all_to_all(const Group& group, DType dtype, std::int64_t count, InPlaceOf in_place,
                       std::uint64_t seed) {
  const auto members = static_cast<std::size_t>(group.members());
  const std::vector<Sizes> counts(members, Sizes(members, count));
  const Exchanged operands(group, arrays_of(dtype, counts, seed), counts, in_place, placement_for(seed));
  group.communicator.all_to_all(tensors_of(operands.mine), tensors_of(operands.out));
  return [operands] { operands.check(); };
}

Check start_all_to_all(const Group& group, DType dtype, const std::vector<Sizes>& counts, InPlaceOf in_place,
                       std::uint64_t seed) {
  const Exchanged operands(group, arrays_of(dtype, counts, seed), counts, in_place, placement_for(seed));
  std::vector<Sizes> input_sizes;
  std::vector<Sizes> out_sizes;
  for (int i = 0; i < group.locals(); ++i) {
    input_sizes.push_back(counts[static_cast<std::size_t>(group.member(i))]);
    out_sizes.push_back(column_of(counts, group.member(i)));
  }
  group.communicator.all_to_all(tensors_of(operands.mine), tensors_of(operands.out), input_sizes, out_sizes);
  return [operands] { operands.check(); };
}

Check start_all_gather(const Group& group, DType dtype, const Sizes& counts, InPlaceOf in_place,
                       std::uint64_t seed) {
  std::vector<HostArray> parts;
  for (const std::int64_t count : counts)
    parts.push_back(random_bits(dtype, {count}, 100 * seed + parts.size()));
  const HostArray joined = concatenate(parts, 0);
  WholesAndParts operands;
  for (int i = 0; i < group.locals(); ++i) {
    const int member = group.member(i);
    const HostArray& own = parts[static_cast<std::size_t>(member)];
    operands.wholes.push_back(
        TestTensor::poisoned(dtype, joined.sizes, group.device(i), placement_for(seed)));
    operands.apart.emplace_back(own, group.device(i));
    operands.parts.push_back(operands.apart.back());
    if (!is_in_place(in_place, member)) continue;
    operands.parts.back() = operands.wholes.back().tensor().narrow(0, start_of(counts, member), own.numel());
    operands.parts.back().copy_(operands.apart.back());
  }
  group.communicator.all_gather(operands.parts, tensors_of(operands.wholes), counts);
  return [operands, joined] {
    for (const TestTensor& whole : operands.wholes) EXPECT_TRUE(whole.holds(joined));
    for (const TestTensor& part : operands.apart) EXPECT_TRUE(part.untouched());
  };
}

Check start_reduce_scatter(const Group& group, const ReduceOp& op, DType dtype, const Sizes& counts,
                           InPlaceOf in_place, std::uint64_t seed) {
  const std::vector<HostArray> inputs = numbers_for(group.members(), dtype, {sum_of(counts)}, seed);
  const HostArray combined = reference_reduction(inputs, op);
  WholesAndParts operands;
  std::vector<HostArray> expected;
  for (int i = 0; i < group.locals(); ++i) {
    const int member = group.member(i);
    const std::int64_t start = start_of(counts, member);
    const std::int64_t count = counts[static_cast<std::size_t>(member)];
    operands.wholes.emplace_back(inputs[static_cast<std::size_t>(member)], group.device(i));
    operands.apart.push_back(TestTensor::poisoned(dtype, {count}, group.device(i)));
    operands.parts.push_back(is_in_place(in_place, member)
                                 ? operands.wholes.back().tensor().narrow(0, start, count)
                                 : operands.apart.back().tensor());
    expected.push_back(slice(combined, 0, start, count));
  }
  group.communicator.reduce_scatter(tensors_of(operands.wholes), operands.parts, op, counts);
  return [operands, expected, devices = group.communicator.devices()] {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const bool is_apart = operands.parts[i].data() == operands.apart[i].tensor().data();
      EXPECT_TRUE(holds(operands.parts[i], devices[i], expected[i])) << i;
      EXPECT_TRUE(is_apart ? operands.wholes[i].untouched() : operands.apart[i].untouched()) << i;
    }
  };
}

void all_to_all_hands_every_part_to_its_member(Group& group) {
  std::uint64_t seed = 2000;
  for (const std::int64_t count : {0, 1, 7, 333, 11'111, 100'003}) {
    for (const InPlaceOf in_place : {InPlaceOf::none, InPlaceOf::every_second, InPlaceOf::all})
      start_all_to_all(group, DType::float32, count, in_place, ++seed)();
  }
  for (const DType dtype : {DType::int8, DType::bfloat16, DType::complex128})
    start_all_to_all(group, dtype, 77, InPlaceOf::none, ++seed)();
  // Large enough to be read where they lie, and written; such parts can be swapped.
  const bool is_cuda = backend_kind() == BackendKind::cuda;
  for (const std::int64_t count : {is_cuda ? 262'144 : 25'600, is_cuda ? 1'048'640 : 98'304}) {
    for (const InPlaceOf in_place : {InPlaceOf::none, InPlaceOf::every_second, InPlaceOf::all})
      start_all_to_all(group, DType::float32, count, in_place, ++seed)();
  }
}

Check start_all_to_all_coalesced(const Group& group, const std::vector<Column>& columns, std::uint64_t seed) {
  const auto members = static_cast<std::size_t>(group.members());
  std::vector<std::vector<Tensor>> inputs(static_cast<std::size_t>(group.locals()));
  std::vector<std::vector<Tensor>> out = inputs;
  std::vector<Exchanged> operands;
  for (const auto& [dtype, count] : columns) {
    const std::vector<Sizes> counts(members, Sizes(members, count));
    const Exchanged& column = operands.emplace_back(
        group, arrays_of(dtype, counts, 100 * seed + operands.size()), counts,
        operands.size() % 2 == 0 ? InPlaceOf::none : InPlaceOf::every_second, Placement::contiguous);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      inputs[i].push_back(column.mine[i]);
      out[i].push_back(column.out[i]);
    }
  }
  group.communicator.all_to_all_coalesced(inputs, out);
  return [operands] {
    for (const Exchanged& column : operands) column.check();
  };
}

void all_to_all_takes_lists(Group& group) {
  // Some members have some of them in place, and swap these.
  const std::int64_t large = backend_kind() == BackendKind::cuda ? 262'144 : 25'600;
  start_all_to_all_coalesced(group,
                             {{DType::float32, large},
                              {DType::float32, 64},
                              {DType::int8, 256},
                              {DType::float32, 4 * large},
                              {DType::float64, large}},
                             20)();
  start_all_to_all_coalesced(
      group, {{DType::float32, 12}, {DType::int8, 0}, {DType::float64, 20'001}, {DType::bfloat16, 7}}, 21)();
  start_all_to_all_coalesced(group, {}, 22)();
}

void parts_may_be_of_unequal_lengths(Group& group) {
  const int members = group.members();
  const auto one_for_all = [&](std::int64_t count, int owner) {
    Sizes counts(static_cast<std::size_t>(members), 0);
    counts[static_cast<std::size_t>(owner)] = count;
    return counts;
  };
  std::uint64_t seed = 2200;
  for (const Sizes& counts :
       {uneven_counts(members, 9, 1), uneven_counts(members, 3'000, 2), uneven_counts(members, 70'000, 3),
        one_for_all(5, members - 1), one_for_all(90'001, 0), one_for_all(0, 0),
        Sizes(static_cast<std::size_t>(members), 50)}) {
    for (const InPlaceOf in_place : {InPlaceOf::none, InPlaceOf::every_second}) {
      start_all_gather(group, DType::int16, counts, in_place, ++seed)();
      start_reduce_scatter(group, ReduceOp::sum, DType::float32, counts, in_place, ++seed)();
    }
    start_reduce_scatter(group, ReduceOp::max, DType::int8, counts, InPlaceOf::all, ++seed)();
  }
}

Check start_all_gather(const Group& group, DType dtype, const PartsAlong& parts, std::uint64_t seed) {
  std::vector<HostArray> arrays;
  for (const std::int64_t count : parts.counts)
    arrays.push_back(random_bits(dtype, parts.with(count), 100 * seed + arrays.size()));
  std::vector<TestTensor> inputs;
  std::vector<TestTensor> out;
  for (int i = 0; i < group.locals(); ++i) {
    inputs.emplace_back(arrays[static_cast<std::size_t>(group.member(i))], group.device(i), parts.placement);
    out.push_back(
        TestTensor::poisoned(dtype, parts.with(sum_of(parts.counts)), group.device(i), parts.placement));
  }
  group.communicator.all_gather(tensors_of(inputs), tensors_of(out), parts.counts, parts.dim);
  return [inputs, out, joined = concatenate(arrays, static_cast<int>(parts.along()))] {
    for (const TestTensor& whole : out) EXPECT_TRUE(whole.holds(joined));
    for (const TestTensor& input : inputs) EXPECT_TRUE(input.untouched());
  };
}

Check start_reduce_scatter(const Group& group, const ReduceOp& op, DType dtype, const PartsAlong& parts,
                           std::uint64_t seed) {
  const std::vector<HostArray> arrays =
      numbers_for(group.members(), dtype, parts.with(sum_of(parts.counts)), seed);
  const HostArray combined = reference_reduction(arrays, op);
  std::vector<TestTensor> inputs;
  std::vector<TestTensor> out;
  std::vector<HostArray> expected;
  for (int i = 0; i < group.locals(); ++i) {
    const auto member = static_cast<std::size_t>(group.member(i));
    inputs.emplace_back(arrays[member], group.device(i), parts.placement);
    out.push_back(
        TestTensor::poisoned(dtype, parts.with(parts.counts[member]), group.device(i), parts.placement));
    expected.push_back(slice(combined, static_cast<int>(parts.along()),
                             start_of(parts.counts, group.member(i)), parts.counts[member]));
  }
  group.communicator.reduce_scatter(tensors_of(inputs), tensors_of(out), op, parts.counts, parts.dim);
  return [inputs, out, expected] {
    for (std::size_t i = 0; i < out.size(); ++i) {
      EXPECT_TRUE(out[i].holds(expected[i])) << i;
      EXPECT_TRUE(inputs[i].untouched()) << i;
    }
  };
}

void parts_may_be_of_unequal_lengths_along_any_dimension(Group& group) {
  const int members = group.members();
  Sizes last_alone(static_cast<std::size_t>(members), 0);
  last_alone.back() = 13;
  const Sizes few = uneven_counts(members, 7, 5);
  const Sizes many = uneven_counts(members, 3'000, 6);
  const Sizes nothing(static_cast<std::size_t>(members), 0);
  std::uint64_t seed = 2600;
  for (const PartsAlong& parts : std::vector<PartsAlong>{{{0, 5, 3}, 0, few},
                                                         {{4, 0, 3}, 1, few, Placement::misaligned},
                                                         {{4, 5, 0}, -1, few, Placement::gapped},
                                                         {{1, 1, 0, 2}, 2, few, Placement::transposed},
                                                         {{7, 0}, 1, many},
                                                         {{0, 11}, -2, many},
                                                         {{5, 0, 2}, 1, last_alone},
                                                         {{5, 0, 2}, 1, nothing},
                                                         {{0, 3, 0}, 2, few},
                                                         {{3, 0}, 1, Sizes(nothing.size(), 6)}}) {
    SCOPED_TRACE(testing::Message() << "case " << seed);
    ++seed;
    start_all_gather(group, DType::int16, parts, seed)();
    start_reduce_scatter(group, seed % 2 == 0 ? ReduceOp::sum : ReduceOp::min, DType::float32, parts, seed)();
  }
}

void exchanges_take_parts_of_unequal_lengths(Group& group) {
  const int members = group.members();
  const auto size = static_cast<std::size_t>(members);
  std::vector<Sizes> own(size, Sizes(size, 0));  // nothing goes from member to member
  std::vector<Sizes> to_one = own;
  std::vector<Sizes> heavy_own = uneven_pairs(members, 100, false, 4);
  for (std::size_t member = 0; member < size; ++member) {
    own[member][member] = 30'011;
    to_one[member][size - 1] = 1 + static_cast<std::int64_t>(member);
    heavy_own[member][member] = 50'021;
  }
  std::uint64_t seed = 2300;
  for (const auto& counts :
       {uneven_pairs(members, 20, false, 1), uneven_pairs(members, 4'000, true, 2),
        uneven_pairs(members, 90'000, true, 3), heavy_own, own, to_one,
        std::vector<Sizes>(size, Sizes(size, 0)), std::vector<Sizes>(size, Sizes(size, 60))}) {
    start_all_to_all(group, DType::int32, counts, InPlaceOf::none, ++seed)();
    start_all_to_all(group, DType::uint8, counts, InPlaceOf::every_second, ++seed)();
  }
}

void members_may_be_silent_in_long_exchanges(Group& group) {
  const auto members = static_cast<std::size_t>(group.members());
  std::uint64_t seed = 2500;
  // Of a few pieces, and of many, which take many rounds where they go through windows.
  for (const std::int64_t count : {100'003, 900'001}) {
    std::vector<Sizes> counts(members, Sizes(members, 0));
    counts[0][1] = count;  // the others neither send nor receive
    start_all_to_all(group, DType::int32, counts, InPlaceOf::none, ++seed)();
    counts[2][0] = 5;
    start_all_to_all(group, DType::int32, counts, InPlaceOf::none, ++seed)();
    counts[2] = Sizes(members, 0);
    counts[1][2] = 17;
    counts[2][1] = 3;
    start_all_to_all(group, DType::int32, counts, InPlaceOf::none, ++seed)();
    counts[0][0] = 40'009;  // what stays takes rounds as well
    counts[2][1] = 17;      // in place, as much comes as goes
    start_all_to_all(group, DType::int32, counts, InPlaceOf::every_second, ++seed)();
  }
}

void exchanges_in_place_can_be_captured(Group& group) {
  // Between hosts only what NCCL carries can be captured.
  if (group.communicator.explain().find(" hosts:") != std::string::npos) return;
  std::vector<Stream> streams;
  for (int i = 0; i < group.locals(); ++i) streams.emplace_back(group.device(i).index());
  const auto members = static_cast<std::size_t>(group.members());
  for (const std::int64_t count : {50, 60'001}) {
    const std::vector<Sizes> counts(members, Sizes(members, count));
    const Exchanged operands(group, arrays_of(DType::float32, counts, 2400), counts, InPlaceOf::all,
                             Placement::contiguous);
    for (int i = 0; i < group.locals(); ++i) current_stream(group.device(i).index()).synchronize();
    const std::vector<Tensor> tensors = tensors_of(operands.out);
    const Graph graph =
        Graph::capture(streams, [&] { group.communicator.all_to_all(tensors, tensors, streams); });
    // Each undoes the one before.
    for (int launch = 0; launch < 3; ++launch) graph.launch(streams.front());
    for (const Stream& stream : streams) stream.wait_stream(streams.front());
    for (const Stream& stream : streams) stream.synchronize();
    operands.check();
  }
}

}  // namespace tutti::test::ranks
