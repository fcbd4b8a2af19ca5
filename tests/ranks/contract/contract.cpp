// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract/contract.hpp"

#include "ranks/contract/checks.hpp"
#include "ranks/contract/contract_edges.hpp"
#include "ranks/contract/contract_exchanges.hpp"
#include "ranks/contract/contract_explain.hpp"
#include "ranks/contract/contract_in_place.hpp"
#include "ranks/contract/contract_lists.hpp"
#include "ranks/contract/contract_memory.hpp"
#include "ranks/contract/contract_messages.hpp"
#include "ranks/contract/contract_reductions.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/values/host_array.hpp"
#include "support/values/random.hpp"
#include "support/values/reference_sum.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/stream.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tutti::test::ranks {
namespace {

void broadcast_reaches_all_from_every_root(Group& group) {
  std::uint64_t seed = 1;
  for (int root = 0; root < group.members(); ++root) {
    for (const std::int64_t count : element_counts)
      check_broadcast(group, DType::float32, {count}, root, ++seed);
  }
  for (const DType dtype : all_dtypes) check_broadcast(group, dtype, {3, 5, 7}, 0, ++seed);
}

void all_gather_joins_in_order_of_members(Group& group) {
  std::uint64_t seed = 200;
  for (const std::int64_t count : element_counts) check_all_gather(group, DType::int32, count, ++seed);
  for (const DType dtype : all_dtypes) check_all_gather(group, dtype, 77, ++seed);
}

void scatter_and_gather_take_unequal_parts_along_any_dimension(Group& group) {
  std::uint64_t seed = 300;
  for (int root = 0; root < group.members(); ++root) {
    for (const int dim : {0, 1, 2})
      check_scatter_and_gather(group, DType::float32, {31, 17, 23}, dim, root, ++seed);
  }
  // As many numbers in a row of one as in a column of the other: their plans are not the same.
  for (const int dim : {2, 1, 0}) check_scatter_and_gather(group, DType::float32, {6, 6, 6}, dim, 0, 399);
  check_scatter_and_gather(group, DType::int16, {3, 1001, 5}, 0, 0, ++seed);
  check_scatter_and_gather(group, DType::complex128, {1, 5, 3000}, 0, 0, ++seed);
}

void check_coalesced_calls(Group& group, std::int64_t largest) {
  const std::vector<std::pair<DType, Sizes>> shapes{{DType::float32, {3, 4}},    {DType::float64, {0}},
                                                    {DType::float32, {largest}}, {DType::bfloat16, {7}},
                                                    {DType::float32, {}},        {DType::int8, {999}}};
  const int root = group.members() / 2;
  std::vector<std::vector<TestTensor>> copies;
  std::vector<std::vector<TestTensor>> inputs;
  std::vector<std::vector<TestTensor>> sums;
  std::vector<std::vector<Tensor>> copy_lists;
  std::vector<std::vector<Tensor>> input_lists;
  std::vector<std::vector<Tensor>> sum_lists;
  const auto source = [&](std::size_t t) { return random_bits(shapes[t].first, shapes[t].second, 400 + t); };
  const auto numbers = [&](std::size_t t) {
    return numbers_for(group.members(), shapes[t].first, shapes[t].second, 500 + t);
  };
  for (int i = 0; i < group.locals(); ++i) {
    auto& copy = copies.emplace_back();
    auto& input = inputs.emplace_back();
    auto& sum = sums.emplace_back();
    for (std::size_t t = 0; t < shapes.size(); ++t) {
      const auto& [dtype, sizes] = shapes[t];
      copy.push_back(group.member(i) == root ? TestTensor(source(t), group.device(i))
                                             : TestTensor::poisoned(dtype, sizes, group.device(i)));
      input.emplace_back(numbers(t)[static_cast<std::size_t>(group.member(i))], group.device(i));
      sum.push_back(TestTensor::poisoned(dtype, sizes, group.device(i)));
    }
    copy_lists.push_back(tensors_of(copy));
    input_lists.push_back(tensors_of(input));
    sum_lists.push_back(tensors_of(sum));
  }
  group.communicator.broadcast_coalesced(copy_lists, root);
  group.communicator.all_reduce_add_coalesced(input_lists, sum_lists);
  for (int i = 0; i < group.locals(); ++i) {
    for (std::size_t t = 0; t < shapes.size(); ++t) {
      EXPECT_TRUE(copies[static_cast<std::size_t>(i)][t].holds(source(t))) << t;
      EXPECT_TRUE(sums[static_cast<std::size_t>(i)][t].holds(reference_sum(numbers(t)))) << t;
    }
  }
  group.communicator.reduce_add_coalesced(input_lists, input_lists, root);
  for (int i = 0; i < group.locals(); ++i) {
    for (std::size_t t = 0; t < shapes.size(); ++t) {
      const TestTensor& input = inputs[static_cast<std::size_t>(i)][t];
      if (group.member(i) == root) {
        EXPECT_TRUE(input.holds(reference_sum(numbers(t)))) << t;
      } else {
        EXPECT_TRUE(input.untouched()) << t;
      }
    }
  }
}

void coalesced_calls_move_lists_of_all_sizes(Group& group) {
  check_coalesced_calls(group, 100'003);
  // Shares of three members and more are relayed, of several types: on virtual devices, and on GPUs.
  check_coalesced_calls(group, 301);
  check_coalesced_calls(group, 300'001);
}

void calls_follow_one_another_whatever_their_streams(Group& group) {
  // The root changes the tensor between the calls: every call must have taken what it held then.
  const std::int64_t count = 50'000;
  std::vector<Tensor> history;
  std::vector<Tensor> mine;
  for (int i = 0; i < group.locals(); ++i)
    mine.push_back(zeros({count}, {.dtype = DType::int32, .device = group.device(i)}));
  for (int round = 1; round <= 40; ++round) {
    std::vector<Stream> streams;
    for (int i = 0; i < group.locals(); ++i)
      streams.push_back(round % 3 == 0 ? Stream(group.device(i).index())
                                       : current_stream(group.device(i).index()));
    const int root = round % group.members();
    for (int i = 0; i < group.locals(); ++i) {
      const StreamGuard guard(streams[static_cast<std::size_t>(i)]);
      if (group.member(i) == root) mine[static_cast<std::size_t>(i)].fill_(round);
    }
    group.communicator.broadcast(mine, root, streams);
    for (int i = 0; i < group.locals(); ++i) {
      const StreamGuard guard(streams[static_cast<std::size_t>(i)]);
      history.push_back(mine[static_cast<std::size_t>(i)].to(DType::int64));
    }
    // The next round's current stream need not be this one.
    for (int i = 0; i < group.locals(); ++i) streams[static_cast<std::size_t>(i)].synchronize();
  }
  for (std::size_t at = 0; at < history.size(); ++at) {
    const auto values = history[at].to_vector<std::int64_t>();
    const auto round = static_cast<std::int64_t>(at) / group.locals() + 1;
    EXPECT_EQ(std::ranges::count(values, round), count) << "round " << round;
  }
}

void a_barrier_holds_back_work_queued_after_it(Group& group) {
  for (int round = 0; round < 20; ++round) group.communicator.barrier();
  for (int i = 0; i < group.locals(); ++i) synchronize(group.device(i).index());
  EXPECT_TRUE(group.communicator.is_running());
}

/// Payloads of many rounds, which go by NCCL where there is one; numbers whose sums are exact in any order.
void large_calls_are_all_right(Group& group) {
  std::uint64_t seed = 1200;
  const std::int64_t count = scaled(1'200'007);
  check_broadcast(group, DType::int64, {count}, group.members() - 1, ++seed);
  check_all_gather(group, DType::uint8, count, ++seed);
  check_reduce_scatter(group, DType::int32, count / 2, ++seed);
  start_all_to_all(group, DType::int16, count / 2, InPlaceOf::none, ++seed)();
  for (int round = 0; round < 2; ++round) {
    check_reduce(group, DType::int32, {count}, 0, round == 1, ++seed);
    check_all_reduce(group, DType::int32, {count}, round == 1, ++seed);
    check_scatter_and_gather(group, DType::float32, {31, 97, scaled(1023)}, round, 0, ++seed);
  }
}

void parts_of_the_ranks_work_by_themselves(Group& group) {
  Communicator& all = group.communicator;
  for (int round = 0; round < 2; ++round) {
    // The last rank stays out; the others are split into even and odd ones, in descending order.
    const bool stays_out = all.rank_count() > 1 && all.rank() + 1 == all.rank_count();
    std::optional<Communicator> part =
        all.split(stays_out ? std::nullopt : std::optional(all.rank() % 2), -all.rank());
    EXPECT_EQ(part.has_value(), !stays_out);
    if (part) {
      const int ranks = all.rank_count() - (all.rank_count() > 1 ? 1 : 0);
      const int others = (ranks + 1 - all.rank() % 2) / 2;
      EXPECT_EQ(part->rank_count(), others);
      EXPECT_EQ(part->rank(), others - 1 - all.rank() / 2);
      EXPECT_EQ(part->devices(), all.devices());
      Group smaller(*part);
      check_all_reduce(smaller, DType::int32, {20'000}, false, 1100);
      check_broadcast(smaller, DType::float64, {777}, 0, 1101);
    }
    check_all_reduce(group, DType::int32, {20'000}, true, 1102);
  }
}

void random_calls_are_all_right(Group& group) {
  Random random(77);  // the same on all ranks
  for (int call = 0; call < 120; ++call) {
    SCOPED_TRACE(testing::Message() << "call " << call);
    start_random_call(group, random, static_cast<std::uint64_t>(1000 + call))();
  }
}

void refuses_bad_arguments_and_goes_on(Group& group) {
  Communicator& communicator = group.communicator;
  const auto invalid = ErrorCode::invalid_argument;
  const int elsewhere = (group.device(0).index() + 1) % device_count();
  std::vector<Tensor> threes;
  std::vector<Tensor> fours;
  std::vector<Stream> streams;
  for (int i = 0; i < group.locals(); ++i) {
    threes.push_back(zeros({3}, {.device = group.device(i)}));
    fours.push_back(zeros({4}, {.device = group.device(i)}));
    streams.push_back(current_stream(group.device(i).index()));
  }
  std::vector<Tensor> undefined = threes;
  undefined[0] = Tensor();
  std::vector<Tensor> misplaced = threes;
  misplaced[0] = zeros({3}, {.device = elsewhere});
  std::vector<Stream> too_many = streams;
  too_many.push_back(streams[0]);
  EXPECT_TRUE(
      refuses([&] { communicator.broadcast(threes, 0, too_many); }, invalid,
              {fmt::format("broadcast: streams has {} entries, expected none or one per local member, {}",
                           group.locals() + 1, group.locals())}));
  streams[0] = Stream(elsewhere);

  EXPECT_TRUE(refuses([&] { communicator.broadcast(threes, group.members()); }, invalid,
                      {"broadcast", fmt::format("root is {}", group.members()),
                       fmt::format("0 to {}", group.members() - 1)}));
  EXPECT_TRUE(refuses([&] { communicator.broadcast(threes, -1); }, invalid, {"broadcast", "root is -1"}));
  EXPECT_TRUE(
      refuses([&] { communicator.broadcast({}, 0); }, invalid, {"tensors has 0 entries", "local member"}));
  EXPECT_TRUE(refuses([&] { communicator.broadcast(undefined, 0); }, invalid, {"tensors[0]"}));
  if (communicator.rank() == 0) {
    EXPECT_TRUE(
        refuses([&] { communicator.broadcast(Tensor(), threes, 0); }, invalid, {"tensor is undefined"}));
    EXPECT_TRUE(refuses([&] { communicator.broadcast(fours[0], threes, 0); }, invalid,
                        {"broadcast: tensor has sizes [4], expected [3] as out[0]"}));
  }
  if (device_count() > 1) {
    EXPECT_TRUE(refuses([&] { communicator.broadcast(misplaced, 0); }, invalid,
                        {"tensors[0]", to_string(Device(elsewhere)), to_string(group.device(0))}));
    EXPECT_TRUE(refuses([&] { communicator.broadcast(threes, 0, streams); }, invalid, {"streams[0]"}));
  }
  EXPECT_TRUE(refuses([&] { communicator.all_reduce_add(threes, fours); }, invalid, {"all_reduce", "out"}));
  EXPECT_TRUE(refuses([&] { communicator.all_reduce_add(threes, {}); }, invalid, {"out has 0 entries"}));
  EXPECT_TRUE(refuses([&] { communicator.all_gather(threes, fours); }, invalid,
                      {"all_gather", fmt::format("expected {}", 3 * group.members())}));
  EXPECT_TRUE(refuses([&] { communicator.reduce_scatter_add(threes, fours); }, invalid,
                      {fmt::format("expected {}", 4 * group.members())}));
  EXPECT_TRUE(refuses([&] { communicator.scatter(threes[0], fours, 0, 1); }, invalid, {"scatter", "dim"}));
  EXPECT_NE(communicator.explain().find(
                fmt::format("{} members in {} ranks", group.members(), communicator.rank_count())),
            std::string::npos)
      << communicator.explain();
  // None of them was announced to the other ranks.
  check_all_reduce(group, DType::float32, {1000}, false, 9);
}

template <void (*rule)(Group&)>
void check(Communicator& communicator) {
  Group group(communicator);
  rule(group);
}

Rule in_short(Rule rule) {
  rule.is_in_short = true;
  return rule;
}
Rule of_all_operations(Rule rule) {
  rule.is_of_all_operations = true;
  return rule;
}

}  // namespace

std::ostream& operator<<(std::ostream& stream, const Rule& rule) {
  return stream << rule.name;
}

const std::vector<Rule>& contract() {
  static const std::vector<Rule> rules{
      {"BroadcastReachesAllFromEveryRoot", check<broadcast_reaches_all_from_every_root>},
      {"SumsAreThoseOfOneProcessBitForBit", check<sums_are_those_of_one_process_bit_for_bit>},
      of_all_operations({"EveryOperationIsThatOfOneProcessBitForBit",
                         check<every_operation_is_that_of_one_process_bit_for_bit>}),
      of_all_operations({"NumbersAtTheEdgesGoByTheRules", check<numbers_at_the_edges_go_by_the_rules>}),
      {"ACompiledOperationGoesThroughMembersInOrder",
       check<a_compiled_operation_goes_through_members_in_order>},
      {"FlatListsGoAsOneCall", check<flat_lists_go_as_one_call>},
      {"EveryOperationTakesLists", check<every_operation_takes_lists>},
      {"AllToAllHandsEveryPartToItsMember", check<all_to_all_hands_every_part_to_its_member>},
      {"AllToAllTakesLists", check<all_to_all_takes_lists>},
      {"PartsMayBeOfUnequalLengths", check<parts_may_be_of_unequal_lengths>},
      {"PartsMayBeOfUnequalLengthsAlongAnyDimension",
       check<parts_may_be_of_unequal_lengths_along_any_dimension>},
      {"ExchangesTakePartsOfUnequalLengths", check<exchanges_take_parts_of_unequal_lengths>},
      {"ExchangesInPlaceCanBeCaptured", check<exchanges_in_place_can_be_captured>},
      {"AllGatherJoinsInOrderOfMembers", check<all_gather_joins_in_order_of_members>},
      {"ScatterAndGatherTakeUnequalPartsAlongAnyDimension",
       check<scatter_and_gather_take_unequal_parts_along_any_dimension>},
      in_short({"CoalescedCallsMoveListsOfAllSizes", check<coalesced_calls_move_lists_of_all_sizes>}),
      {"CallsFollowOneAnotherWhateverTheirStreams", check<calls_follow_one_another_whatever_their_streams>},
      {"ListsOfNoTensorsAreCallsOfNothing", check<lists_of_no_tensors_are_calls_of_nothing>},
      {"EveryOperationTakesEveryTypeAndSize", check<every_operation_takes_every_type_and_size>},
      {"FlatCallsTakeTensorsOfAllShapes", check<flat_calls_take_tensors_of_all_shapes>},
      in_short({"ABarrierHoldsBackWorkQueuedAfterIt", check<a_barrier_holds_back_work_queued_after_it>}),
      {"BroadcastLeavesItsSourceAlone", check<broadcast_leaves_its_source_alone>},
      {"BroadcastTakesListsThatArePartlyInPlace", check<broadcast_takes_lists_that_are_partly_in_place>},
      {"AllGatherTakesInputsThatAreInTheirPlace", check<all_gather_takes_inputs_that_are_in_their_place>},
      {"ReduceScatterTakesOutputsThatAreInTheirPlace",
       check<reduce_scatter_takes_outputs_that_are_in_their_place>},
      {"LargeCallsAreAllRight", check<large_calls_are_all_right>, Determinism::fastest},
      {"LargeOperandsMayLieAnywhere", check<large_operands_may_lie_anywhere>},
      {"LargeExchangesInPlaceMayLieAnywhere", check<large_exchanges_in_place_may_lie_anywhere>},
      {"OperandsMayBeWrittenRightAfterALargeCall", check<operands_may_be_written_right_after_a_large_call>},
      {"MemoryOfLargeOperandsGoesBackToTheDevice", check<memory_of_large_operands_goes_back_to_the_device>},
      in_short(
          {"MemoryIsOpenedAndClosedWhileOthersWait", check<memory_is_opened_and_closed_while_others_wait>}),
      in_short({"PartsOfTheRanksWorkByThemselves", check<parts_of_the_ranks_work_by_themselves>}),
      {"EveryCallCanBeCaptured", check<every_call_can_be_captured>},
      in_short({"CapturedCallsCanBeReplayed", check<captured_calls_can_be_replayed>}),
      in_short({"MessagesGoFromMemberToMember", check<messages_go_from_member_to_member>}),
      {"MessagesCanBeCaptured", check<messages_can_be_captured>},
      {"WhatExplainTellsIsWhatCallsDo", check<what_explain_tells_is_what_calls_do>, Determinism::fastest},
      {"ExplainRefusesWhatCannotBeCalled", check<explain_refuses_what_cannot_be_called>},
      in_short({"RandomCallsAreAllRight", check<random_calls_are_all_right>}),
      in_short({"RefusesBadArgumentsAndGoesOn", check<refuses_bad_arguments_and_goes_on>}),
  };
  return rules;
}

std::vector<Rule> contract_of_few_operations() {
  std::vector<Rule> rules = contract();
  std::erase_if(rules, [](const Rule& rule) { return rule.is_of_all_operations; });
  return rules;
}

std::vector<Rule> short_contract() {
  std::vector<Rule> rules;
  std::ranges::copy_if(contract(), std::back_inserter(rules), &Rule::is_in_short);
  return rules;
}

void refuses_devices_it_cannot_take(Exchange& exchange) {
  const auto make = [&](CommunicatorOptions options) {
    return [&exchange, options] { const Communicator communicator(exchange, options); };
  };
  const auto invalid = ErrorCode::invalid_argument;
  EXPECT_TRUE(refuses(make({.devices = {Device(99)}}), invalid, {"options.devices[0]", "99"}));
  EXPECT_TRUE(
      refuses(make({.devices = {Device(0), Device(0)}}), invalid, {"options.devices[1]", "listed before"}));
  EXPECT_TRUE(
      refuses(make({.devices = {}, .timeout = std::chrono::milliseconds(0)}), invalid, {"options.timeout"}));
  EXPECT_TRUE(refuses(make({.devices = {}, .window_bytes = 1000}), invalid, {"options.window_bytes"}));
  EXPECT_TRUE(refuses(make({.devices = {}, .transport = static_cast<TransportKind>(9)}), invalid,
                      {"options.transport is 9", "automatic, p2p, nccl or staged"}));
}

}  // namespace tutti::test::ranks
