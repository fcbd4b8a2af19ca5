// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract/contract_in_place.hpp"

#include "support/values/host_array.hpp"
#include "support/values/reference_sum.hpp"
#include "support/values/test_tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test::ranks {

void broadcast_leaves_its_source_alone(Group& group) {
  const int root = group.members() - 1;
  for (const std::int64_t count : element_counts) {
    const HostArray source = random_bits(DType::float32, {count}, 800);
    std::optional<TestTensor> given;
    std::vector<TestTensor> out;
    for (int i = 0; i < group.locals(); ++i) {
      if (group.member(i) == root) given.emplace(source, group.device(i));
      out.push_back(TestTensor::poisoned(DType::float32, {count}, group.device(i)));
    }
    group.communicator.broadcast(given ? given->tensor() : Tensor(), tensors_of(out), root);
    for (const TestTensor& tensor : out) EXPECT_TRUE(tensor.holds(source));
    EXPECT_TRUE(!given || given->untouched());
  }
  // The root's own tensor as its output, in an order of its own.
  std::vector<TestTensor> turned;
  std::optional<Tensor> same;
  for (int i = 0; i < group.locals(); ++i) {
    const HostArray values = random_bits(DType::float32, {30, 40}, 850);
    const auto placement = group.member(i) == root ? Placement::transposed : Placement::contiguous;
    turned.push_back(group.member(i) == root
                         ? TestTensor(values, group.device(i), placement)
                         : TestTensor::poisoned(DType::float32, {30, 40}, group.device(i)));
    if (group.member(i) == root) same = turned.back().tensor();
  }
  group.communicator.broadcast(same.value_or(Tensor()), tensors_of(turned), root);
  for (const TestTensor& tensor : turned)
    EXPECT_TRUE(tensor.holds(random_bits(DType::float32, {30, 40}, 850)));
  // Lists, the root's written in place.
  const std::vector<std::int64_t> counts{7, 0, 70'001, 3};
  std::vector<std::vector<TestTensor>> lists;
  std::vector<std::vector<Tensor>> out;
  std::vector<Tensor> given;
  for (int i = 0; i < group.locals(); ++i) {
    auto& list = lists.emplace_back();
    for (std::size_t t = 0; t < counts.size(); ++t) {
      list.push_back(group.member(i) == root
                         ? TestTensor(random_bits(DType::int16, {counts[t]}, 900 + t), group.device(i))
                         : TestTensor::poisoned(DType::int16, {counts[t]}, group.device(i)));
    }
    out.push_back(tensors_of(list));
    if (group.member(i) == root) given = tensors_of(list);
  }
  group.communicator.broadcast_coalesced(given, out, root);
  for (const auto& list : lists) {
    for (std::size_t t = 0; t < counts.size(); ++t)
      EXPECT_TRUE(list[t].holds(random_bits(DType::int16, {counts[t]}, 900 + t))) << t;
  }
}

/// Every second tensor of the root's list is written in place, which the others do not know.
void broadcast_takes_lists_that_are_partly_in_place(Group& group) {
  const int root = group.members() - 1;
  for (const std::int64_t count : {5, 300, 70'001}) {
    const auto values = [&](std::size_t t) { return random_bits(DType::float32, {count}, 920 + t); };
    std::vector<std::vector<TestTensor>> lists;
    std::vector<TestTensor> sources;
    std::vector<std::vector<Tensor>> out;
    std::vector<Tensor> given;
    for (int i = 0; i < group.locals(); ++i) {
      auto& list = lists.emplace_back();
      for (std::size_t t = 0; t < 4; ++t) {
        const bool is_in_place = group.member(i) == root && t % 2 == 1;
        list.push_back(is_in_place ? TestTensor(values(t), group.device(i))
                                   : TestTensor::poisoned(DType::float32, {count}, group.device(i)));
        if (group.member(i) == root) sources.emplace_back(values(t), group.device(i));
      }
      out.push_back(tensors_of(list));
      if (group.member(i) != root) continue;
      given = tensors_of(sources);
      for (std::size_t t = 1; t < 4; t += 2) given[t] = list[t];
    }
    group.communicator.broadcast_coalesced(given, out, root);
    for (const auto& list : lists) {
      for (std::size_t t = 0; t < 4; ++t) EXPECT_TRUE(list[t].holds(values(t))) << count << " " << t;
    }
  }
}

void all_gather_takes_inputs_that_are_in_their_place(Group& group) {
  for (const std::int64_t count : {1, 1000, 40'001}) {
    const auto inputs = numbers_for(group.members(), DType::int32, {count}, 950);
    std::vector<Tensor> whole;
    std::vector<Tensor> mine;
    for (int i = 0; i < group.locals(); ++i) {
      whole.push_back(zeros({count * group.members()}, {.dtype = DType::int32, .device = group.device(i)}));
      mine.push_back(whole.back().narrow(0, group.member(i) * count, count));
      const TestTensor values(inputs[static_cast<std::size_t>(group.member(i))], group.device(i));
      mine.back().copy_(values);
    }
    group.communicator.all_gather(mine, whole);
    for (const Tensor& tensor : whole) EXPECT_EQ(read(tensor).bytes, concatenate(inputs, 0).bytes);
  }
}

/// Of every second member, which the others do not know, and of all.
void reduce_scatter_takes_outputs_that_are_in_their_place(Group& group) {
  const int members = group.members();
  for (const std::int64_t count : {1, 300, 4000, 70'001}) {
    for (const int step : {2, 1}) {
      const auto inputs = numbers_for(members, DType::float32, {count * members}, 970);
      const HostArray sum = reference_sum(inputs);
      std::vector<TestTensor> mine;
      std::vector<TestTensor> apart;
      std::vector<Tensor> out;
      for (int i = 0; i < group.locals(); ++i) {
        const int member = group.member(i);
        mine.emplace_back(inputs[static_cast<std::size_t>(member)], group.device(i));
        apart.push_back(TestTensor::poisoned(DType::float32, {count}, group.device(i)));
        out.push_back(member % step == 0 ? mine.back().tensor().narrow(0, member * count, count)
                                         : apart.back().tensor());
      }
      group.communicator.reduce_scatter_add(tensors_of(mine), out);
      for (int i = 0; i < group.locals(); ++i) {
        const int member = group.member(i);
        const auto at = static_cast<std::size_t>(i);
        const HostArray part = slice(sum, 0, member * count, count);
        if (member % step != 0) {
          EXPECT_TRUE(apart[at].holds(part));
          EXPECT_TRUE(mine[at].untouched());
          continue;
        }
        const HostArray& before = inputs[static_cast<std::size_t>(member)];
        const std::int64_t end = (member + 1) * count;
        EXPECT_TRUE(mine[at].holds(concatenate(std::vector{slice(before, 0, 0, member * count), part,
                                                           slice(before, 0, end, count * members - end)},
                                               0)));
      }
    }
  }
}

}  // namespace tutti::test::ranks
