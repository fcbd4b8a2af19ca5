// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract_reductions.hpp"

#include "support/environment.hpp"
#include "support/host_array.hpp"
#include "support/reference_sum.hpp"
#include "support/test_tensor.hpp"

#include <cstddef>
#include <cstdint>
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
  for (const DType dtype : all_dtypes) {
    const std::vector<ReduceOp> operations = operations_of(dtype, members);
    for (const ReduceOp& op : operations) {
      ++seed;
      check_all_reduce(group, op, dtype, {331}, seed % 2 == 0, seed);
    }
    ++seed;
    check_reduce_scatter(group, operations[seed % operations.size()], dtype, 123, seed);
  }
  for (const ReduceOp& op : operations_of(DType::int16, members)) {
    ++seed;
    check_reduce(group, op, DType::int16, {1000}, group.members() - 1, seed % 2 == 0, seed);
  }
  for (const std::int64_t count : element_counts) {
    check_reduce(group, ReduceOp::min, DType::float32, {count}, 0, false, ++seed);
    check_all_reduce(group, ReduceOp::avg, DType::bfloat16, {count}, false, ++seed);
    check_reduce_scatter(group, ReduceOp::max, DType::float64, count, ++seed);
  }
  // Of these NCCL carries large ones, where there is one.
  check_all_reduce(group, ReduceOp::min, DType::int32, {scaled(1'200'007)}, true, ++seed);
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
