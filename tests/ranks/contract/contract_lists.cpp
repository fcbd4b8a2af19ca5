// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract/contract_lists.hpp"

#include "support/values/reference_sum.hpp"
#include "support/values/test_tensor.hpp"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test::ranks {
namespace {

/// The lists of the local members, and what must come of each tensor.
struct Lists {
  explicit Lists(const Group& group)
      : inputs(static_cast<std::size_t>(group.locals())), outputs(inputs.size()) {}

  void add(int local, const Tensor& input, const Tensor& output, Check check) {
    inputs[static_cast<std::size_t>(local)].push_back(input);
    outputs[static_cast<std::size_t>(local)].push_back(output);
    checks.push_back(std::move(check));
  }
  [[nodiscard]] Check check() const {
    return [all = checks] {
      for (const Check& each : all) each();
    };
  }

  std::vector<std::vector<Tensor>> inputs;
  std::vector<std::vector<Tensor>> outputs;
  std::vector<Check> checks;
};

std::uint64_t seed_of(std::uint64_t seed, std::size_t column) {
  return 100 * seed + column;
}

/// The results go to the root, or to all.
Lists reduced_lists(const Group& group, const ReduceOp& op, const std::vector<Column>& columns,
                    std::optional<int> root, bool in_place, std::uint64_t seed) {
  Lists lists(group);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const auto& [dtype, count] = columns[c];
    const auto arrays = numbers_for(group.members(), dtype, {count}, seed_of(seed, c));
    const HostArray expected = reference_reduction(arrays, op);
    for (int i = 0; i < group.locals(); ++i) {
      const TestTensor mine(arrays[static_cast<std::size_t>(group.member(i))], group.device(i));
      const TestTensor out = TestTensor::poisoned(dtype, {count}, group.device(i));
      const bool has_result = !root || group.member(i) == *root;
      lists.add(i, mine, in_place ? mine : out, [=, kind = op.kind()] {
        EXPECT_TRUE(has_result && in_place ? mine.holds(expected) : mine.untouched())
            << name_of(kind) << " at " << c;
        EXPECT_TRUE(has_result && !in_place ? out.holds(expected) : out.untouched())
            << name_of(kind) << " at " << c;
      });
    }
  }
  return lists;
}

}  // namespace

std::vector<ReduceOp> operations_for(const std::vector<Column>& columns, int members) {
  std::vector<DType> dtypes;
  for (const Column& column : columns) dtypes.push_back(column.dtype);
  return operations_of(dtypes, static_cast<std::size_t>(members));
}

Check start_broadcast_coalesced(const Group& group, const std::vector<Column>& columns, int root,
                                std::uint64_t seed) {
  Lists lists(group);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const auto& [dtype, count] = columns[c];
    const HostArray source = random_bits(dtype, {count}, seed_of(seed, c));
    for (int i = 0; i < group.locals(); ++i) {
      const TestTensor tensor = group.member(i) == root
                                    ? TestTensor(source, group.device(i))
                                    : TestTensor::poisoned(dtype, {count}, group.device(i));
      lists.add(i, tensor, tensor, [=] { EXPECT_TRUE(tensor.holds(source)) << c; });
    }
  }
  group.communicator.broadcast_coalesced(lists.outputs, root);
  return lists.check();
}

Check start_reduce_coalesced(const Group& group, const ReduceOp& op, const std::vector<Column>& columns,
                             int root, bool in_place, std::uint64_t seed) {
  const Lists lists = reduced_lists(group, op, columns, root, in_place, seed);
  group.communicator.reduce_coalesced(lists.inputs, lists.outputs, op, root);
  return lists.check();
}

Check start_all_reduce_coalesced(const Group& group, const ReduceOp& op, const std::vector<Column>& columns,
                                 bool in_place, std::uint64_t seed) {
  const Lists lists = reduced_lists(group, op, columns, std::nullopt, in_place, seed);
  group.communicator.all_reduce_coalesced(lists.inputs, lists.outputs, op);
  return lists.check();
}

Check start_all_gather_coalesced(const Group& group, const std::vector<Column>& columns, bool in_place,
                                 std::uint64_t seed) {
  Lists lists(group);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const auto& [dtype, count] = columns[c];
    const auto parts = numbers_for(group.members(), dtype, {count}, seed_of(seed, c));
    const HostArray joined = concatenate(parts, 0);
    for (int i = 0; i < group.locals(); ++i) {
      const TestTensor apart(parts[static_cast<std::size_t>(group.member(i))], group.device(i));
      const TestTensor whole = TestTensor::poisoned(dtype, joined.sizes, group.device(i));
      Tensor part = apart;
      if (in_place) {
        part = whole.tensor().narrow(0, group.member(i) * count, count);
        part.copy_(apart);
      }
      lists.add(i, part, whole, [=] {
        EXPECT_TRUE(whole.holds(joined)) << c;
        EXPECT_TRUE(apart.untouched()) << c;
      });
    }
  }
  group.communicator.all_gather_coalesced(lists.inputs, lists.outputs);
  return lists.check();
}

Check start_reduce_scatter_coalesced(const Group& group, const ReduceOp& op,
                                     const std::vector<Column>& columns, bool in_place, std::uint64_t seed) {
  Lists lists(group);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const auto& [dtype, count] = columns[c];
    const auto arrays = numbers_for(group.members(), dtype, {count * group.members()}, seed_of(seed, c));
    const HostArray combined = reference_reduction(arrays, op);
    for (int i = 0; i < group.locals(); ++i) {
      const std::int64_t start = group.member(i) * count;
      const Device device = group.device(i);
      const TestTensor whole(arrays[static_cast<std::size_t>(group.member(i))], device);
      const TestTensor apart = TestTensor::poisoned(dtype, {count}, device);
      const Tensor part = in_place ? whole.tensor().narrow(0, start, count) : apart.tensor();
      const HostArray expected = slice(combined, 0, start, count);
      lists.add(i, whole, part, [=, kind = op.kind()] {
        EXPECT_TRUE(holds(part, device, expected)) << name_of(kind) << " at " << c;
        EXPECT_TRUE(in_place ? apart.untouched() : apart.holds(expected)) << name_of(kind) << " at " << c;
        EXPECT_TRUE(in_place || whole.untouched()) << name_of(kind) << " at " << c;
      });
    }
  }
  group.communicator.reduce_scatter_coalesced(lists.inputs, lists.outputs, op);
  return lists.check();
}

void flat_lists_go_as_one_call(Group& group) {
  const std::vector<Column> columns{
      {DType::float32, 12}, {DType::int8, 0}, {DType::float64, 40'001}, {DType::bfloat16, 7}};
  std::uint64_t seed = 1500;
  for (const bool in_place : {false, true}) {
    start_all_gather_coalesced(group, columns, in_place, ++seed)();
    start_reduce_scatter_coalesced(group, in_place ? ReduceOp::max : ReduceOp::avg, columns, in_place,
                                   ++seed)();
  }
  start_all_gather_coalesced(group, {}, false, ++seed)();
}

void every_operation_takes_lists(Group& group) {
  const int root = group.members() - 1;
  std::uint64_t seed = 1550;
  for (const std::vector<Column>& columns : std::vector<std::vector<Column>>{
           {{DType::float32, 12}, {DType::bfloat16, 0}, {DType::float64, 10'001}, {DType::float8_e5m2, 7}},
           {{DType::int8, 999}, {DType::int64, 0}, {DType::int32, 8'191}, {DType::uint8, 1}},
           {{DType::boolean, 333}, {DType::int16, 5}},
           {{DType::complex64, 40}, {DType::float16, 5'040}, {DType::int32, 2'520}}}) {
    for (const ReduceOp& op : operations_for(columns, group.members())) {
      const bool is_even = ++seed % 2 == 0;
      const std::vector<Check> checks{start_reduce_coalesced(group, op, columns, root, is_even, seed),
                                      start_all_reduce_coalesced(group, op, columns, !is_even, seed),
                                      start_reduce_scatter_coalesced(group, op, columns, is_even, seed)};
      for (const Check& check : checks) check();
    }
  }
  const std::vector<Column> large{{DType::float32, 100'003}, {DType::bfloat16, 50'400}, {DType::float16, 5}};
  for (const ReduceOp& op : {ReduceOp(ReduceOp::avg), ReduceOp(ReduceOp::min), ReduceOp::premul_sum(0.3)}) {
    start_reduce_coalesced(group, op, large, 0, true, ++seed)();
    start_all_reduce_coalesced(group, op, large, false, ++seed)();
    start_reduce_scatter_coalesced(group, op, large, true, ++seed)();
  }
}

}  // namespace tutti::test::ranks
