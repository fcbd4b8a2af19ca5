// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract/checks.hpp"

#include "ranks/contract/contract_exchanges.hpp"
#include "ranks/contract/contract_lists.hpp"
#include "support/values/reference_sum.hpp"
#include "support/values/test_tensor.hpp"

#include <array>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test::ranks {

std::vector<HostArray> numbers_for(int members, DType dtype, const Sizes& sizes, std::uint64_t seed) {
  std::vector<HostArray> arrays;
  for (int member = 0; member < members; ++member) {
    arrays.push_back(random_numbers(dtype, sizes, seed * 100 + static_cast<std::uint64_t>(member)));
  }
  return arrays;
}

Check start_broadcast(const Group& group, DType dtype, const Sizes& sizes, int root, std::uint64_t seed) {
  const HostArray source = random_bits(dtype, sizes, seed);
  std::vector<TestTensor> tensors;
  for (int i = 0; i < group.locals(); ++i) {
    tensors.push_back(group.member(i) == root ? TestTensor(source, group.device(i))
                                              : TestTensor::poisoned(dtype, sizes, group.device(i)));
  }
  group.communicator.broadcast(tensors_of(tensors), root);
  return [=] {
    for (const TestTensor& tensor : tensors) EXPECT_TRUE(tensor.holds(source));
  };
}

namespace {

/// Every local member's tensor of `arrays`, and a poisoned one of `out_sizes`.
struct Operands {
  Operands(const Group& group, const std::vector<HostArray>& arrays, const Sizes& out_sizes) {
    for (int i = 0; i < group.locals(); ++i) {
      const HostArray& own = arrays[static_cast<std::size_t>(group.member(i))];
      mine.emplace_back(own, group.device(i));
      out.push_back(TestTensor::poisoned(own.dtype, out_sizes, group.device(i)));
    }
  }
  [[nodiscard]] const std::vector<TestTensor>& outputs(bool are_in_place) const {
    return are_in_place ? mine : out;
  }
  std::vector<TestTensor> mine;
  std::vector<TestTensor> out;
};

}  // namespace

namespace {

/// Makes the call on inputs and outputs, and then expects what the operation comes to.
template <class Call>
Check start_reduce_by(const Group& group, const ReduceOp& op, const std::vector<HostArray>& inputs, int root,
                      bool in_place, Call call) {
  const HostArray expected = reference_reduction(inputs, op);
  const Operands operands(group, inputs, expected.sizes);
  call(tensors_of(operands.mine), tensors_of(operands.outputs(in_place)));
  return [=] {
    for (int i = 0; i < group.locals(); ++i) {
      const TestTensor& mine = operands.mine[static_cast<std::size_t>(i)];
      const TestTensor& out = operands.out[static_cast<std::size_t>(i)];
      const bool is_root = group.member(i) == root;
      EXPECT_TRUE(is_root && in_place ? mine.holds(expected) : mine.untouched()) << name_of(op.kind());
      EXPECT_TRUE(is_root && !in_place ? out.holds(expected) : out.untouched()) << name_of(op.kind());
    }
  };
}

template <class Call>
Check start_all_reduce_by(const Group& group, const ReduceOp& op, const std::vector<HostArray>& inputs,
                          bool in_place, Call call) {
  const HostArray expected = reference_reduction(inputs, op);
  const Operands operands(group, inputs, expected.sizes);
  call(tensors_of(operands.mine), tensors_of(operands.outputs(in_place)));
  return [=] {
    for (const TestTensor& tensor : operands.outputs(in_place))
      EXPECT_TRUE(tensor.holds(expected)) << name_of(op.kind());
  };
}

template <class Call>
Check start_reduce_scatter_by(const Group& group, const ReduceOp& op, const std::vector<HostArray>& inputs,
                              Call call) {
  const HostArray expected = reference_reduction(inputs, op);
  const std::int64_t count = expected.numel() / group.members();
  const Operands operands(group, inputs, {count});
  call(tensors_of(operands.mine), tensors_of(operands.out));
  return [=] {
    for (int i = 0; i < group.locals(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_TRUE(operands.out[at].holds(slice(expected, 0, group.member(i) * count, count)))
          << name_of(op.kind());
      EXPECT_TRUE(operands.mine[at].untouched());
    }
  };
}

}  // namespace

Check start_reduce(const Group& group, DType dtype, const Sizes& sizes, int root, bool in_place,
                   std::uint64_t seed) {
  return start_reduce_by(group, ReduceOp::sum, numbers_for(group.members(), dtype, sizes, seed), root,
                         in_place, [&](const std::vector<Tensor>& inputs, const std::vector<Tensor>& out) {
                           group.communicator.reduce_add(inputs, out, root);
                         });
}
Check start_reduce(const Group& group, const ReduceOp& op, const std::vector<HostArray>& arrays, int root,
                   bool in_place) {
  return start_reduce_by(group, op, arrays, root, in_place,
                         [&](const std::vector<Tensor>& inputs, const std::vector<Tensor>& out) {
                           group.communicator.reduce(inputs, out, op, root);
                         });
}

Check start_all_reduce(const Group& group, DType dtype, const Sizes& sizes, bool in_place,
                       std::uint64_t seed) {
  return start_all_reduce_by(group, ReduceOp::sum, numbers_for(group.members(), dtype, sizes, seed), in_place,
                             [&](const std::vector<Tensor>& inputs, const std::vector<Tensor>& out) {
                               group.communicator.all_reduce_add(inputs, out);
                             });
}
Check start_all_reduce(const Group& group, const ReduceOp& op, const std::vector<HostArray>& arrays,
                       bool in_place) {
  return start_all_reduce_by(group, op, arrays, in_place,
                             [&](const std::vector<Tensor>& inputs, const std::vector<Tensor>& out) {
                               group.communicator.all_reduce(inputs, out, op);
                             });
}

Check start_reduce_scatter(const Group& group, DType dtype, std::int64_t count, std::uint64_t seed) {
  return start_reduce_scatter_by(group, ReduceOp::sum,
                                 numbers_for(group.members(), dtype, {count * group.members()}, seed),
                                 [&](const std::vector<Tensor>& inputs, const std::vector<Tensor>& out) {
                                   group.communicator.reduce_scatter_add(inputs, out);
                                 });
}
Check start_reduce_scatter(const Group& group, const ReduceOp& op, const std::vector<HostArray>& arrays) {
  return start_reduce_scatter_by(group, op, arrays,
                                 [&](const std::vector<Tensor>& inputs, const std::vector<Tensor>& out) {
                                   group.communicator.reduce_scatter(inputs, out, op);
                                 });
}

Check start_all_gather(const Group& group, DType dtype, std::int64_t count, std::uint64_t seed) {
  const auto inputs = numbers_for(group.members(), dtype, {count}, seed);
  const Operands operands(group, inputs, {count * group.members()});
  group.communicator.all_gather(tensors_of(operands.mine), tensors_of(operands.out));
  return [=] {
    for (const TestTensor& tensor : operands.out) EXPECT_TRUE(tensor.holds(concatenate(inputs, 0)));
  };
}

namespace {

/// Lengths that differ from member to member, one of them zero now and then.
Sizes lengths_for(int members, std::uint64_t seed) {
  Random random(seed);
  Sizes lengths;
  for (int member = 0; member < members; ++member) lengths.push_back(random.between(0, 40));
  return lengths;
}

}  // namespace

Check start_scatter_and_gather(const Group& group, DType dtype, Sizes sizes, int dim, int root,
                               std::uint64_t seed) {
  const Sizes lengths = lengths_for(group.members(), seed);
  sizes[static_cast<std::size_t>(dim)] = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  const HostArray whole = random_bits(dtype, sizes, seed);
  const auto parts = split(whole, dim, lengths);
  const int root_local = root - group.member(0);

  std::vector<TestTensor> out;
  std::vector<TestTensor> mine;
  for (int i = 0; i < group.locals(); ++i) {
    const HostArray& part = parts[static_cast<std::size_t>(group.member(i))];
    out.push_back(TestTensor::poisoned(dtype, part.sizes, group.device(i)));
    mine.emplace_back(part, group.device(i));
  }
  const std::optional<TestTensor> source =
      group.is_local(root) ? std::optional<TestTensor>(std::in_place, whole, group.device(root_local))
                           : std::nullopt;
  const std::optional<TestTensor> joined =
      group.is_local(root) ? std::optional(TestTensor::poisoned(dtype, sizes, group.device(root_local)))
                           : std::nullopt;
  group.communicator.scatter(source ? source->tensor() : Tensor(), tensors_of(out), root, dim);
  group.communicator.gather(tensors_of(mine), joined ? joined->tensor() : Tensor(), root, dim - 3);
  return [=] {
    for (int i = 0; i < group.locals(); ++i) {
      EXPECT_TRUE(out[static_cast<std::size_t>(i)].holds(parts[static_cast<std::size_t>(group.member(i))]));
    }
    EXPECT_TRUE(!joined || joined->holds(whole));
  };
}

Check start_random_call(const Group& group, Random& random, std::uint64_t seed) {
  const DType dtype = random.pick(all_dtypes);
  const std::int64_t count = random.between(0, std::int64_t{1} << random.between(0, 15));
  const int root = static_cast<int>(random.between(0, group.members() - 1));
  const auto op = [&] {
    return random.pick(operations_of(dtype, static_cast<std::size_t>(group.members())));
  };
  const auto in_place = [&] {
    return random.pick(std::array{InPlaceOf::none, InPlaceOf::every_second, InPlaceOf::all});
  };
  const auto along = [&] {
    Sizes shape;
    for (int dim = 0; dim < 3; ++dim) shape.push_back(random.between(1, 9));
    return PartsAlong{.shape = shape,
                      .dim = static_cast<int>(random.between(-3, 2)),
                      .counts = uneven_counts(group.members(), 1 + count / 64, seed),
                      .placement = random.pick(std::array{Placement::contiguous, Placement::misaligned,
                                                          Placement::gapped, Placement::transposed})};
  };
  const auto columns = [&] {
    std::vector<Column> drawn;
    for (std::int64_t left = random.between(0, 6); left > 0; --left)
      drawn.push_back({random.one_in(2) ? dtype : random.pick(all_dtypes), random.between(0, count)});
    return drawn;
  };
  const auto op_of = [&](const std::vector<Column>& lists) {
    return random.pick(operations_for(lists, group.members()));
  };
  switch (random.between(0, 19)) {
    case 0:
      return start_broadcast(group, dtype, {count}, root, seed);
    case 1:
      return start_reduce(group, dtype, {count}, root, random.one_in(2), seed);
    case 2:
      return start_all_reduce(group, dtype, {count}, random.one_in(2), seed);
    case 3:
      return start_all_gather(group, dtype, count, seed);
    case 4:
      return start_reduce_scatter(group, dtype, count, seed);
    case 5:
      return start_all_reduce(group, op(), dtype, {count}, random.one_in(2), seed);
    case 6:
      return start_reduce_scatter(group, op(), dtype, count, seed);
    case 7:
      return start_all_to_all(group, dtype, count / 4, in_place(), seed);
    case 8:
      return start_all_to_all(group, dtype, uneven_pairs(group.members(), count / 2, random.one_in(2), seed),
                              in_place(), seed);
    case 9:
      return start_all_gather(group, dtype, uneven_counts(group.members(), count, seed), in_place(), seed);
    case 10:
      return start_reduce_scatter(group, op(), dtype, uneven_counts(group.members(), count, seed), in_place(),
                                  seed);
    case 11:
      return start_all_gather(group, dtype, along(), seed);
    case 12:
      return start_reduce_scatter(group, op(), dtype, along(), seed);
    case 13: {
      const std::vector<Column> lists = columns();
      return start_reduce_coalesced(group, op_of(lists), lists, root, random.one_in(2), seed);
    }
    case 14: {
      const std::vector<Column> lists = columns();
      return start_all_reduce_coalesced(group, op_of(lists), lists, random.one_in(2), seed);
    }
    case 15: {
      const std::vector<Column> lists = columns();
      return start_reduce_scatter_coalesced(group, op_of(lists), lists, random.one_in(2), seed);
    }
    case 16:
      return start_broadcast_coalesced(group, columns(), root, seed);
    case 17:
      return start_all_gather_coalesced(group, columns(), random.one_in(2), seed);
    case 18:
      return start_all_to_all_coalesced(group, columns(), seed);
    default: {
      Sizes sizes;
      for (int dim = 0; dim < 3; ++dim) sizes.push_back(random.between(0, 9));
      return start_scatter_and_gather(group, dtype, sizes, static_cast<int>(random.between(0, 2)), root,
                                      seed);
    }
  }
}

}  // namespace tutti::test::ranks
