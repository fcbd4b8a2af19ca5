// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract_reductions.hpp"

#include "ranks/contract_exchanges.hpp"
#include "support/compiled_reduction.hpp"
#include "support/environment.hpp"
#include "support/host_array.hpp"
#include "support/reference_sum.hpp"
#include "support/test_tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test::ranks {

void sums_are_those_of_one_process_bit_for_bit(Group& group) {
  std::uint64_t seed = 100;
  for (const std::int64_t count : element_counts) {
    for (const bool in_place : {false, true}) {
      check_reduce(group, DType::float32, {count}, group.members() - 1, in_place, ++seed);
      check_all_reduce(group, DType::float32, {count}, in_place, ++seed);
    }
    check_reduce_scatter(group, DType::float32, count, ++seed);
  }
  for (const DType dtype : all_dtypes) {
    check_reduce(group, dtype, {5, 201}, 0, false, ++seed);
    check_all_reduce(group, dtype, {5, 2001}, true, ++seed);
    check_reduce_scatter(group, dtype, 321, ++seed);
  }
}

void every_operation_is_that_of_one_process_bit_for_bit(Group& group) {
  std::uint64_t seed = 1400;
  const auto members = static_cast<std::size_t>(group.members());
  const Sizes counts{331, 1, 123, 13, 0, 251, 1009};
  for (const DType dtype : all_dtypes) {
    for (const ReduceOp& op : operations_of(dtype, members)) {
      const std::int64_t count = counts[++seed % counts.size()];
      const std::vector<Check> checks{
          start_all_reduce(group, op, dtype, {count}, seed % 2 == 0, seed),
          start_reduce(group, op, dtype, {count}, static_cast<int>(seed % members), seed % 3 == 0, seed),
          start_reduce_scatter(group, op, dtype, count, seed)};
      for (const Check& check : checks) check();
    }
  }
  for (const std::int64_t count : element_counts) {
    check_reduce(group, ReduceOp::min, DType::float32, {count}, 0, false, ++seed);
    check_all_reduce(group, ReduceOp::avg, DType::bfloat16, {count}, false, ++seed);
    check_reduce_scatter(group, ReduceOp::max, DType::float64, count, ++seed);
  }
  // Of these NCCL carries large ones, where there is one.
  check_all_reduce(group, ReduceOp::min, DType::int32, {scaled(1'200'007)}, true, ++seed);
}

namespace {

/// Lists of tensors small and large by a compiled operation, all in one call: in place, and to the root
/// alone.
void check_compiled_lists(Group& group, const ReduceOp& op) {
  const std::vector<std::pair<DType, std::int64_t>> columns{
      {DType::float32, 12},     {DType::bfloat16, 0},    {DType::float32, 40'001},  {DType::bfloat16, 7},
      {DType::float32, 25'200}, {DType::float32, 2'520}, {DType::bfloat16, 50'400}, {DType::bfloat16, 5}};
  const int root = group.members() - 1;
  std::vector<std::vector<HostArray>> arrays;
  std::vector<std::vector<Tensor>> inputs(static_cast<std::size_t>(group.locals()));
  std::vector<std::vector<Tensor>> results(inputs.size());
  for (const auto& [dtype, count] : columns) {
    arrays.push_back(numbers_for(group.members(), dtype, {count}, 1700 + arrays.size()));
    for (int i = 0; i < group.locals(); ++i) {
      const HostArray& own = arrays.back()[static_cast<std::size_t>(group.member(i))];
      inputs[static_cast<std::size_t>(i)].push_back(make_tensor(own, group.device(i)));
      results[static_cast<std::size_t>(i)].push_back(make_tensor(own, group.device(i)));
    }
  }
  group.communicator.reduce_coalesced(inputs, results, op, root);
  group.communicator.all_reduce_coalesced(inputs, inputs, op);
  for (int i = 0; i < group.locals(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    for (std::size_t t = 0; t < columns.size(); ++t) {
      const HostArray expected = reference_reduction(arrays[t], op);
      EXPECT_TRUE(holds(inputs[at][t], group.device(i), expected)) << t;
      const bool is_root = group.member(i) == root;
      EXPECT_TRUE(holds(results[at][t], group.device(i),
                        is_root ? expected : arrays[t][static_cast<std::size_t>(group.member(i))]))
          << t;
    }
  }
}

/// Parts of unequal lengths, of which one is empty.
void check_compiled_parts(Group& group, const ReduceOp& op) {
  std::vector<std::int64_t> sizes;
  std::int64_t total = 0;
  for (int member = 0; member < group.members(); ++member) {
    sizes.push_back(member == 1 ? 0 : 100 + 301 * member);
    total += sizes.back();
  }
  const auto arrays = numbers_for(group.members(), DType::float32, {total}, 1800);
  std::vector<Tensor> inputs;
  std::vector<TestTensor> out;
  for (int i = 0; i < group.locals(); ++i) {
    const auto member = static_cast<std::size_t>(group.member(i));
    inputs.push_back(make_tensor(arrays[member], group.device(i)));
    out.push_back(TestTensor::poisoned(DType::float32, {sizes[member]}, group.device(i), Placement::gapped));
  }
  group.communicator.reduce_scatter(inputs, tensors_of(out), op, sizes);
  const HostArray whole = reference_reduction(arrays, op);
  for (int i = 0; i < group.locals(); ++i) {
    const int member = group.member(i);
    const std::int64_t start = std::accumulate(sizes.begin(), sizes.begin() + member, std::int64_t{0});
    EXPECT_TRUE(out[static_cast<std::size_t>(i)].holds(
        slice(whole, 0, start, sizes[static_cast<std::size_t>(member)])));
  }
}

/// Operands that are not dense, small ones and such that are cut into shares.
void check_compiled_strides(Group& group, const ReduceOp& op) {
  for (const Sizes& sizes : {Sizes{3, 5}, Sizes{33, 701}}) {
    const auto arrays = numbers_for(group.members(), DType::float32, sizes, 1900);
    std::vector<TestTensor> inputs;
    std::vector<TestTensor> out;
    for (int i = 0; i < group.locals(); ++i) {
      inputs.emplace_back(arrays[static_cast<std::size_t>(group.member(i))], group.device(i),
                          Placement::gapped);
      out.push_back(TestTensor::poisoned(DType::float32, sizes, group.device(i), Placement::transposed));
    }
    group.communicator.all_reduce(tensors_of(inputs), tensors_of(out), op);
    for (const TestTensor& found : out) EXPECT_TRUE(found.holds(reference_reduction(arrays, op)));
  }
}

}  // namespace

void a_compiled_operation_goes_through_members_in_order(Group& group) {
  if (!can_compile()) return;
  const ReduceOp& op = compiled_difference();
  std::uint64_t seed = 1650;
  for (const std::int64_t count : {0, 7, 1000, 33'333}) {
    const bool in_place = ++seed % 2 == 0;
    check_reduce(group, op, DType::float32, {count}, group.members() - 1, in_place, seed);
    check_all_reduce(group, op, DType::float32, {count}, in_place, seed);
    check_reduce_scatter(group, op, DType::bfloat16, count, seed);
  }
  check_compiled_lists(group, op);
  check_compiled_parts(group, op);
  const Sizes counts = uneven_counts(group.members(), 900, 7);
  for (const PartsAlong& parts : std::vector<PartsAlong>{{{4, 0, 3}, 1, counts, Placement::gapped},
                                                         {{7, 0}, -1, counts},
                                                         {{0, 5}, 0, counts},
                                                         {{3, 0}, 1, Sizes(counts.size(), 6)},
                                                         {{3, 0}, 1, Sizes(counts.size(), 0)}})
    start_reduce_scatter(group, op, DType::float32, parts, ++seed)();
  check_compiled_strides(group, op);
  const std::string together = group.communicator.explain({.collective = Collective::all_reduce_coalesced,
                                                           .tensor_bytes = {2520 << 10, 2520 << 10},
                                                           .reduce_kind = ReduceKind::compiled});
  for (const char* const words : {"step: all_to_all_coalesced of tensors 0 to 1",
                                  "step: all_gather_coalesced of what has been combined of tensors 0 to 1"})
    EXPECT_NE(together.find(words), std::string::npos) << together;
  const std::string steps = group.communicator.explain(
      {.collective = Collective::all_reduce, .bytes = 1 << 20, .reduce_kind = ReduceKind::compiled});
  for (const char* const words :
       {"step: all_to_all of tensor 0", "step: all_gather of what has been combined"})
    EXPECT_NE(steps.find(words), std::string::npos) << steps;
}

void flat_lists_go_as_one_call(Group& group) {
  struct Column {
    DType dtype;
    std::int64_t count;
  };
  const std::vector<Column> columns{
      {DType::float32, 12}, {DType::int8, 0}, {DType::float64, 40'001}, {DType::bfloat16, 7}};
  std::vector<std::vector<HostArray>> parts;
  std::vector<std::vector<HostArray>> wholes;
  std::vector<std::vector<Tensor>> part_lists(static_cast<std::size_t>(group.locals()));
  std::vector<std::vector<Tensor>> whole_lists = part_lists;
  std::vector<std::vector<TestTensor>> joined(part_lists.size());
  std::vector<std::vector<TestTensor>> shares(part_lists.size());
  std::vector<std::vector<Tensor>> joined_lists = part_lists;
  std::vector<std::vector<Tensor>> share_lists = part_lists;
  for (const auto& [dtype, count] : columns) {
    const std::int64_t all = count * group.members();
    parts.push_back(numbers_for(group.members(), dtype, {count}, 1500 + parts.size()));
    wholes.push_back(numbers_for(group.members(), dtype, {all}, 1600 + parts.size()));
    for (int i = 0; i < group.locals(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto member = static_cast<std::size_t>(group.member(i));
      part_lists[at].push_back(make_tensor(parts.back()[member], group.device(i)));
      whole_lists[at].push_back(make_tensor(wholes.back()[member], group.device(i)));
      joined[at].push_back(TestTensor::poisoned(dtype, {all}, group.device(i)));
      shares[at].push_back(TestTensor::poisoned(dtype, {count}, group.device(i)));
      joined_lists[at].push_back(joined[at].back().tensor());
      share_lists[at].push_back(shares[at].back().tensor());
    }
  }
  group.communicator.all_gather_coalesced(part_lists, joined_lists);
  group.communicator.reduce_scatter_coalesced(whole_lists, share_lists, ReduceOp::avg);
  for (int i = 0; i < group.locals(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    for (std::size_t t = 0; t < columns.size(); ++t) {
      EXPECT_TRUE(joined[at][t].holds(concatenate(parts[t], 0))) << t;
      EXPECT_TRUE(shares[at][t].holds(slice(reference_reduction(wholes[t], ReduceOp::avg), 0,
                                            group.member(i) * columns[t].count, columns[t].count)))
          << t;
    }
  }
  // In place: each part where it belongs in its whole.
  std::vector<std::vector<Tensor>> own(part_lists.size());
  for (int i = 0; i < group.locals(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    for (std::size_t t = 0; t < columns.size(); ++t) {
      const Tensor place =
          joined_lists[at][t].narrow(0, group.member(i) * columns[t].count, columns[t].count);
      place.copy_(part_lists[at][t]);
      own[at].push_back(place);
    }
  }
  group.communicator.all_gather_coalesced(own, joined_lists);
  group.communicator.reduce_scatter_coalesced(joined_lists, own, ReduceOp::max);
  for (int i = 0; i < group.locals(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    for (std::size_t t = 0; t < columns.size(); ++t) {
      EXPECT_TRUE(holds(own[at][t], group.device(i), parts[t][static_cast<std::size_t>(group.member(i))]))
          << t;
    }
  }
  group.communicator.all_gather_coalesced(std::vector<std::vector<Tensor>>(part_lists.size()),
                                          std::vector<std::vector<Tensor>>(part_lists.size()));
}

}  // namespace tutti::test::ranks
