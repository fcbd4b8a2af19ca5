// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract/contract_edges.hpp"

#include "ranks/contract/contract_exchanges.hpp"
#include "support/collectives/compiled_reduction.hpp"
#include "support/values/reference_sum.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test::ranks {

void lists_of_no_tensors_are_calls_of_nothing(Group& group) {
  Communicator& communicator = group.communicator;
  const std::vector<std::vector<Tensor>> none(static_cast<std::size_t>(group.locals()));
  for (int repetition = 0; repetition < 3; ++repetition) {
    communicator.broadcast_coalesced(none, 0);
    communicator.broadcast_coalesced(std::vector<Tensor>{}, none, group.members() - 1);
    communicator.reduce_add_coalesced(none, none, 0);
    communicator.all_reduce_add_coalesced(none, none);
    EXPECT_EQ(communicator.last_plan().transport, "none");
    check_all_reduce(group, DType::float32, {100}, false, 60);
    if (!can_compile()) continue;
    communicator.reduce_coalesced(none, none, compiled_difference(), 0);
    EXPECT_EQ(communicator.last_plan().transport, "none");
    check_all_reduce(group, DType::float32, {100}, false, 61);
    communicator.all_reduce_coalesced(none, none, compiled_difference());
    EXPECT_EQ(communicator.last_plan().transport, "none");
    communicator.reduce_scatter_coalesced(none, none, compiled_difference());
  }
  communicator.check();
}

/// What is flat need not be of one shape, on one rank as between ranks; scalars are joined to a vector.
void flat_calls_take_tensors_of_all_shapes(Group& group) {
  Communicator& communicator = group.communicator;
  const int members = group.members();
  std::vector<Tensor> parts;
  std::vector<Tensor> wholes;
  std::vector<Tensor> sums;
  std::vector<Tensor> scalars;
  for (int i = 0; i < group.locals(); ++i) {
    const TensorOptions options{.dtype = DType::int32, .device = group.device(i)};
    const int member = group.member(i);
    const bool is_even = member % 2 == 0;
    parts.push_back(is_even ? full({2, 3}, member, options) : full({6}, member, options));
    wholes.push_back(is_even ? zeros({members, 6}, options) : zeros({6 * members}, options));
    sums.push_back(is_even ? zeros({3, 2}, options) : zeros({6, 1}, options));
    scalars.push_back(full({}, member, options));
  }
  communicator.all_gather(parts, wholes);
  communicator.reduce_scatter_add(wholes, sums);
  const int root = members - 1;
  const bool has_root =
      root >= communicator.first_member() && root < communicator.first_member() + group.locals();
  const Tensor joined =
      has_root ? zeros({members},
                       {.dtype = DType::int32, .device = group.device(root - communicator.first_member())})
               : Tensor();
  communicator.gather(scalars, joined, root);
  for (int i = 0; i < group.locals(); ++i) {
    const std::vector<std::int32_t> whole = wholes[static_cast<std::size_t>(i)].to_vector<std::int32_t>();
    for (int member = 0; member < members; ++member)
      EXPECT_EQ(whole[static_cast<std::size_t>(6 * member + 5)], member);
    EXPECT_EQ(sums[static_cast<std::size_t>(i)].to_vector<std::int32_t>(),
              std::vector<std::int32_t>(6, members * (communicator.first_member() + i)));
  }
  if (has_root) {
    const std::vector<std::int32_t> all = joined.to_vector<std::int32_t>();
    for (int member = 0; member < members; ++member) EXPECT_EQ(all[static_cast<std::size_t>(member)], member);
  }
}

/// Each operation gets each element type, and each number of elements: none, one, and primes.
void every_operation_takes_every_type_and_size(Group& group) {
  const Sizes counts{0, 1, 2, 13, 251, 4'099, 65'537};
  const int members = group.members();
  std::uint64_t seed = 2700;
  std::size_t turn = 0;
  for (const DType dtype : all_dtypes) {
    const std::vector<ReduceOp> operations = operations_of(dtype, static_cast<std::size_t>(members));
    const ReduceOp& op = operations[turn % operations.size()];
    const int root = static_cast<int>(turn) % members;
    std::size_t operation = 0;
    const auto next = [&] {
      ++seed;
      return counts[(turn + operation++) % counts.size()];
    };
    const auto uneven = [&] { return uneven_counts(members, next(), seed); };
    SCOPED_TRACE(name_of(dtype));
    start_broadcast(group, dtype, {next()}, root, seed)();
    start_reduce(group, op, dtype, {next()}, root, seed % 2 == 0, seed)();
    start_all_reduce(group, op, dtype, {next()}, seed % 2 == 0, seed)();
    start_all_gather(group, dtype, next(), seed)();
    start_reduce_scatter(group, op, dtype, next(), seed)();
    start_all_to_all(group, dtype, next(), InPlaceOf::every_second, seed)();
    start_all_gather(group, dtype, uneven(), InPlaceOf::every_second, seed)();
    start_reduce_scatter(group, op, dtype, uneven(), InPlaceOf::every_second, seed)();
    start_all_to_all(group, dtype, uneven_pairs(members, next(), false, seed), InPlaceOf::none, seed)();
    start_all_gather(group, dtype, PartsAlong{{3, 0, 2}, 1, uneven()}, seed)();
    start_reduce_scatter(group, op, dtype, PartsAlong{{2, 0}, 1, uneven()}, seed)();
    for (const int dim : {0, 1, 2})
      start_scatter_and_gather(group, dtype, {next() % 100, 3, 5}, dim, root, seed)();
    ++turn;
  }
}

}  // namespace tutti::test::ranks
