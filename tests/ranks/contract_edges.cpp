// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract_edges.hpp"

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

}  // namespace tutti::test::ranks
