// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract/contract_reductions.hpp"

#include "ranks/contract/contract_exchanges.hpp"
#include "ranks/contract/contract_lists.hpp"
#include "support/collectives/compiled_reduction.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/stream_gate.hpp"
#include "support/values/host_array.hpp"
#include "support/values/number_formats.hpp"
#include "support/values/reference_sum.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/error.hpp"
#include "tutti/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
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

void numbers_at_the_edges_go_by_the_rules(Group& group) {
  std::uint64_t seed = 1950;
  const auto members = static_cast<std::size_t>(group.members());
  for (const DType dtype : all_dtypes) {
    if (!format_of(dtype).is_floating()) continue;
    for (const ReduceOp& op : operations_of(dtype, members)) {
      std::vector<HostArray> inputs;
      const std::int64_t count = ++seed % 2 == 0 ? 301 : 5'003;
      for (std::size_t member = 0; member < members; ++member)
        inputs.push_back(special_numbers(dtype, {count * group.members()}, 100 * seed + member));
      const std::vector<Check> checks{
          start_all_reduce(group, op, inputs, seed % 3 == 0),
          start_reduce(group, op, inputs, static_cast<int>(seed % members), false),
          start_reduce_scatter(group, op, inputs)};
      for (const Check& check : checks) check();
    }
  }
}

namespace {

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
  // They are copied behind the reduction, which is no part of a graph.
  std::vector<Stream> streams;
  std::vector<Tensor> inputs;
  std::vector<Tensor> out;
  for (int i = 0; i < group.locals(); ++i) {
    streams.emplace_back(group.device(i).index());
    inputs.push_back(ones({3, 5}, {.device = group.device(i)}));
    out.push_back(empty({5, 3}, {.device = group.device(i)}).transpose(0, 1));
  }
  EXPECT_TRUE(refuses(
      [&] {
        static_cast<void>(
            Graph::capture(streams, [&] { group.communicator.all_reduce(inputs, out, op, streams); }));
      },
      ErrorCode::unsupported, {"all_reduce: out", "has strides", "captured"}));
}

/// Outputs that are not dense are dropped while the call's streams are still held up.
void check_dropped_compiled_outputs(Group& group, const ReduceOp& op) {
  if (is_under_a_tool()) return;  // launches may wait for what the gate holds
  constexpr std::int64_t rows = 33;
  constexpr std::int64_t width = 701;
  std::vector<Stream> streams;
  std::vector<Tensor> inputs;
  std::vector<Tensor> out;
  for (int i = 0; i < group.locals(); ++i) {
    streams.emplace_back(group.device(i).index());
    inputs.push_back(ones({rows, width}, {.device = group.device(i)}));
    out.push_back(empty({width, rows}, {.device = group.device(i)}).transpose(0, 1));
    synchronize(group.device(i));
  }
  StreamGate gate(streams.front());
  group.communicator.all_reduce(inputs, out, op, streams);
  const void* const dropped = out.front().data();
  out.clear();
  const Tensor next = empty({width, rows}, {.device = group.device(0)});
  EXPECT_NE(next.data(), dropped) << "the call writes there";
  gate.open();
  for (const Stream& stream : streams) stream.synchronize();
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
  const std::vector<Column> columns{
      {DType::float32, 12},     {DType::bfloat16, 0},    {DType::float32, 40'001},  {DType::bfloat16, 7},
      {DType::float32, 25'200}, {DType::float32, 2'520}, {DType::bfloat16, 50'400}, {DType::bfloat16, 5}};
  start_reduce_coalesced(group, op, columns, group.members() - 1, false, ++seed)();
  start_all_reduce_coalesced(group, op, columns, true, ++seed)();
  check_compiled_parts(group, op);
  const Sizes counts = uneven_counts(group.members(), 900, 7);
  for (const PartsAlong& parts : std::vector<PartsAlong>{{{4, 0, 3}, 1, counts, Placement::gapped},
                                                         {{7, 0}, -1, counts},
                                                         {{0, 5}, 0, counts},
                                                         {{3, 0}, 1, Sizes(counts.size(), 6)},
                                                         {{3, 0}, 1, Sizes(counts.size(), 0)}})
    start_reduce_scatter(group, op, DType::float32, parts, ++seed)();
  check_compiled_strides(group, op);
  check_dropped_compiled_outputs(group, op);
  const std::string together = group.communicator.explain({.collective = Collective::all_reduce,
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

}  // namespace tutti::test::ranks
