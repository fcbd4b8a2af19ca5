// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl/nccl.hpp"

#include "support/environment.hpp"
#include "transport/nccl/calls.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::transport::nccl {
namespace {

/// A problem whose buffers are named by the lanes they live on.
class ProblemOf {
 public:
  ProblemOf(Collective collective, std::vector<int> lane_devices) {
    problem_.collective = collective;
    problem_.lane_devices = std::move(lane_devices);
  }

  BufferId buffer(LaneId home) {
    problem_.homes.push_back(home);
    return static_cast<BufferId>(problem_.homes.size() - 1);
  }
  ProblemOf& flow(BufferId source, const std::vector<BufferId>& targets, std::uint64_t bytes,
                  std::uint64_t rows = 1) {
    problem_.flows.push_back(
        {.source = {source, 0}, .targets = places(targets), .row_bytes = bytes, .rows = rows});
    return *this;
  }
  ProblemOf& reduction(DType dtype, std::uint64_t count, const std::vector<BufferId>& inputs,
                       BufferId output) {
    problem_.reductions.push_back(
        {.dtype = dtype, .count = count, .inputs = places(inputs), .outputs = places({output})});
    return *this;
  }
  /// The lanes are the members of a team.
  ProblemOf& of_team() {
    problem_.is_of_team = true;
    return *this;
  }
  [[nodiscard]] Problem& get() { return problem_; }
  ProblemOf& bitwise() {
    problem_.determinism = Determinism::bitwise;
    return *this;
  }
  operator const Problem&() const { return problem_; }

 private:
  PlaceRange places(const std::vector<BufferId>& buffers) {
    const auto first = static_cast<std::uint32_t>(problem_.places.size());
    for (const BufferId buffer : buffers) problem_.places.push_back({buffer, 0});
    return {first, static_cast<std::uint32_t>(buffers.size())};
  }

  Problem problem_;
};

CallList calls(const Problem& problem) {
  auto result = calls_for(problem);
  if (const auto* refused = std::get_if<Refusal>(&result)) {
    ADD_FAILURE() << "refused: " << refused->reason;
    return {};
  }
  return std::get<CallList>(std::move(result));
}

std::string reason(const Problem& problem) {
  const auto result = calls_for(problem);
  const auto* refused = std::get_if<Refusal>(&result);
  return refused != nullptr ? refused->reason : "not refused";
}

/// The buffer of a place, -1 if there is none.
int buffer_of(const std::optional<Place>& place) {
  return place ? static_cast<int>(place->buffer) : -1;
}

TEST(Nccl, SaysWhetherItIsThere) {
  const Availability known = availability(Runtime::get());
  EXPECT_FALSE(known.detail.empty());
  if (test::on_virtual_devices()) {
    EXPECT_FALSE(known.available);
    EXPECT_EQ(known.detail, "not available: the devices are virtual");
  } else if (known.available) {
    EXPECT_EQ(known.detail.substr(0, 2), "2.");
  } else {
    EXPECT_EQ(known.detail.substr(0, 15), "not available: ");
  }
}

TEST(Nccl, RefusesEverythingOnVirtualDevices) {
  if (!test::on_virtual_devices()) GTEST_SKIP() << "the devices are GPUs";
  ProblemOf problem(Collective::broadcast, {0, 1});
  const BufferId source = problem.buffer(0);
  problem.flow(source, {problem.buffer(1)}, 64);
  EXPECT_EQ(refusal(Runtime::get(), problem), "not available: the devices are virtual");
}

TEST(NcclCalls, BroadcastIsOneCallPerRankInPlaceAtTheRoot) {
  ProblemOf problem(Collective::broadcast, {5, 2, 7});
  const BufferId source = problem.buffer(0);
  const BufferId on_two = problem.buffer(1);
  const BufferId on_seven = problem.buffer(2);
  problem.flow(source, {on_seven, on_two}, 1000);

  const CallList list = calls(problem);
  EXPECT_EQ(list.devices, (std::vector{2, 5, 7}));
  ASSERT_EQ(list.calls.size(), 3U);
  const std::vector<int> sources{-1, static_cast<int>(source), -1};
  const std::vector<int> targets{static_cast<int>(on_two), static_cast<int>(source),
                                 static_cast<int>(on_seven)};
  const std::vector<LaneId> lanes{1, 0, 2};
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const Call& call = list.calls[rank];
    EXPECT_EQ(call.function, Function::broadcast);
    EXPECT_EQ(call.rank, static_cast<int>(rank));
    EXPECT_EQ(call.peer, 1);
    EXPECT_EQ(call.lane, lanes[rank]);
    EXPECT_EQ(call.count, 1000U);
    EXPECT_EQ(call.dtype, DType::uint8);
    EXPECT_EQ(buffer_of(call.source), sources[rank]);
    EXPECT_EQ(buffer_of(call.target), targets[rank]);
  }
  EXPECT_EQ(list.group_ends, (std::vector<std::size_t>{3}));
}

TEST(NcclCalls, ACopyOnTheRootsDeviceIsTheRootsOwnTarget) {
  ProblemOf problem(Collective::broadcast, {0, 1});
  const BufferId source = problem.buffer(0);
  const BufferId copy = problem.buffer(0);
  problem.flow(source, {copy, problem.buffer(1)}, 64);
  const CallList list = calls(problem);
  ASSERT_EQ(list.calls.size(), 2U);
  EXPECT_EQ(buffer_of(list.calls[0].source), static_cast<int>(source));
  EXPECT_EQ(buffer_of(list.calls[0].target), static_cast<int>(copy));
}

TEST(NcclCalls, ManyTensorsAreGroupedAndAllCallsThatMeetAreInOneGroup) {
  ProblemOf problem(Collective::broadcast, {0, 1, 2});
  constexpr std::size_t tensors = 1500;
  for (std::size_t i = 0; i < tensors; ++i) {
    const BufferId source = problem.buffer(0);
    problem.flow(source, {problem.buffer(1), problem.buffer(2)}, 4);
  }
  const CallList list = calls(problem);
  EXPECT_EQ(list.calls.size(), tensors * 3);
  ASSERT_GT(list.group_ends.size(), 1U);
  EXPECT_EQ(list.group_ends.back(), list.calls.size());
  for (const std::size_t end : list.group_ends) EXPECT_EQ(end % 3, 0U);
}

TEST(NcclCalls, BroadcastsThatDifferInTheirDevicesAreRefused) {
  ProblemOf problem(Collective::broadcast, {0, 1, 2});
  const BufferId source = problem.buffer(0);
  problem.flow(source, {problem.buffer(1), problem.buffer(2)}, 4).flow(source, {problem.buffer(1)}, 4);
  EXPECT_EQ(reason(problem), "not every tensor goes to device 2");

  ProblemOf roots(Collective::broadcast, {0, 1});
  const BufferId on_zero = roots.buffer(0);
  const BufferId on_one = roots.buffer(1);
  roots.flow(on_zero, {on_one}, 4).flow(on_one, {on_zero}, 4);
  EXPECT_EQ(reason(roots), "tensors come from different devices");
}

TEST(NcclCalls, TwoCopiesOnADeviceAreRefused) {
  ProblemOf problem(Collective::broadcast, {0, 1});
  const BufferId source = problem.buffer(0);
  problem.flow(source, {problem.buffer(1), problem.buffer(1)}, 4);
  EXPECT_EQ(reason(problem), "device 1 gets two copies");
}

TEST(NcclCalls, HostMemoryStreamsRowsAndSingleDevicesAreRefused) {
  ProblemOf host(Collective::broadcast, {0, 1});
  const BufferId pageable = host.buffer(host_lane);
  host.flow(pageable, {host.buffer(0), host.buffer(1)}, 4);
  EXPECT_EQ(reason(host), "a buffer is in host memory");

  ProblemOf streams(Collective::scatter, {0, 1, 1});
  const BufferId source = streams.buffer(0);
  streams.flow(source, {streams.buffer(1)}, 4).flow(source, {streams.buffer(2)}, 4);
  EXPECT_EQ(reason(streams), "device 1 takes part on two streams");

  ProblemOf rows(Collective::scatter, {0, 1});
  const BufferId strided = rows.buffer(0);
  rows.flow(strided, {rows.buffer(1)}, 4, 2);
  EXPECT_EQ(reason(rows), "rows are apart in memory");

  ProblemOf local(Collective::gather, {3});
  const BufferId here = local.buffer(0);
  local.flow(here, {local.buffer(0)}, 4);
  EXPECT_EQ(reason(local), "no two devices take part");
}

TEST(NcclCalls, ReduceWritesOnlyAtTheRoot) {
  ProblemOf problem(Collective::reduce, {4, 1});
  const BufferId on_four = problem.buffer(0);
  const BufferId on_one = problem.buffer(1);
  const BufferId output = problem.buffer(0);
  problem.reduction(DType::float16, 33, {on_one, on_four}, output);

  const CallList list = calls(problem);
  EXPECT_EQ(list.devices, (std::vector{1, 4}));
  ASSERT_EQ(list.calls.size(), 2U);
  EXPECT_EQ(buffer_of(list.calls[0].source), static_cast<int>(on_one));
  EXPECT_EQ(buffer_of(list.calls[0].target), -1);
  EXPECT_EQ(buffer_of(list.calls[1].source), static_cast<int>(on_four));
  EXPECT_EQ(buffer_of(list.calls[1].target), static_cast<int>(output));
  for (const Call& call : list.calls) {
    EXPECT_EQ(call.function, Function::reduce);
    EXPECT_EQ(call.peer, 1);
    EXPECT_EQ(call.count, 33U);
    EXPECT_EQ(call.dtype, DType::float16);
  }
}

TEST(NcclCalls, ComplexNumbersAreAddedAsTheirParts) {
  ProblemOf problem(Collective::reduce, {0, 1});
  const BufferId on_zero = problem.buffer(0);
  problem.reduction(DType::complex64, 10, {on_zero, problem.buffer(1)}, on_zero);
  problem.reduction(DType::complex128, 10, {on_zero, problem.buffer(1)}, on_zero);
  const CallList list = calls(problem);
  ASSERT_EQ(list.calls.size(), 4U);
  EXPECT_EQ(list.calls[0].dtype, DType::float32);
  EXPECT_EQ(list.calls[2].dtype, DType::float64);
  for (const Call& call : list.calls) EXPECT_EQ(call.count, 20U);
}

TEST(NcclCalls, SumsNcclDoesNotHaveAreRefused) {
  const auto sum_of = [](DType dtype) {
    ProblemOf problem(Collective::reduce, {0, 1});
    const BufferId on_zero = problem.buffer(0);
    problem.reduction(dtype, 8, {on_zero, problem.buffer(1)}, on_zero);
    return problem;
  };
  for (const DType dtype :
       {DType::int16, DType::uint16, DType::boolean, DType::float8_e4m3, DType::float8_e5m2}) {
    EXPECT_EQ(reason(sum_of(dtype)), "it does not sum " + std::string(tutti::name_of(dtype)));
  }
  EXPECT_EQ(reason(sum_of(DType::float32).bitwise()), "it adds in an order of its own");
}

TEST(NcclCalls, UnsignedIntegersOf32And64BitsAreReducedAsTheyAre) {
  for (const DType dtype : {DType::uint32, DType::uint64}) {
    for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::prod, ReduceKind::min, ReduceKind::max}) {
      const std::optional<Carrier> carrier = carrier_of(dtype, kind);
      ASSERT_TRUE(carrier.has_value()) << tutti::name_of(kind);
      EXPECT_EQ(carrier->dtype, dtype);
    }
    EXPECT_FALSE(carrier_of(dtype, ReduceKind::avg).has_value());
  }
}

TEST(NcclCalls, ReductionsNeedOneInputOnEveryDevice) {
  ProblemOf nowhere(Collective::reduce, {0, 1, 2});
  const BufferId on_zero = nowhere.buffer(0);
  nowhere.reduction(DType::float32, 8, {on_zero, nowhere.buffer(1)}, nowhere.buffer(2));
  EXPECT_EQ(reason(nowhere), "the destination, device 2 holds no input");

  ProblemOf twice(Collective::reduce, {0, 1});
  const BufferId first = twice.buffer(0);
  twice.reduction(DType::float32, 8, {first, twice.buffer(1), twice.buffer(1)}, first);
  EXPECT_EQ(reason(twice), "device 1 holds two inputs");
}

TEST(NcclCalls, ScatterSendsAllChunksAndTheRootsOwnToo) {
  ProblemOf problem(Collective::scatter, {0, 1, 2});
  const BufferId source = problem.buffer(0);
  const BufferId own = problem.buffer(0);
  const BufferId on_one = problem.buffer(1);
  const BufferId on_two = problem.buffer(2);
  problem.flow(source, {own}, 8).flow(source, {on_one}, 16).flow(source, {on_two}, 24);

  const CallList list = calls(problem);
  ASSERT_EQ(list.calls.size(), 6U);
  for (std::size_t i = 0; i < 6; i += 2) {
    const Call& send = list.calls[i];
    const Call& receive = list.calls[i + 1];
    EXPECT_EQ(send.function, Function::send);
    EXPECT_EQ(receive.function, Function::receive);
    EXPECT_EQ(send.rank, receive.peer);
    EXPECT_EQ(send.peer, receive.rank);
    EXPECT_EQ(send.count, receive.count);
    EXPECT_EQ(buffer_of(send.source), static_cast<int>(source));
    EXPECT_EQ(send.target, std::nullopt);
    EXPECT_EQ(receive.source, std::nullopt);
  }
  EXPECT_EQ(buffer_of(list.calls[1].target), static_cast<int>(own));
  EXPECT_EQ(buffer_of(list.calls[3].target), static_cast<int>(on_one));
  EXPECT_EQ(buffer_of(list.calls[5].target), static_cast<int>(on_two));
  EXPECT_EQ(list.group_ends, (std::vector<std::size_t>{6}));
}

TEST(NcclCalls, GatherSendsToTheDestination) {
  ProblemOf problem(Collective::gather, {0, 1});
  const BufferId on_zero = problem.buffer(0);
  const BufferId on_one = problem.buffer(1);
  const BufferId output = problem.buffer(1);
  problem.flow(on_zero, {output}, 8).flow(on_one, {output}, 8);
  const CallList list = calls(problem);
  ASSERT_EQ(list.calls.size(), 4U);
  EXPECT_EQ(list.calls[0].rank, 0);
  EXPECT_EQ(list.calls[0].lane, 0);
  EXPECT_EQ(list.calls[1].lane, 1);
  EXPECT_EQ(buffer_of(list.calls[1].target), static_cast<int>(output));
  EXPECT_EQ(list.calls[2].rank, list.calls[3].rank) << "what stays is sent to itself";
}

TEST(NcclCalls, WhatNothingLeavesItsDeviceForIsRefused) {
  ProblemOf problem(Collective::scatter, {0, 1});
  const BufferId source = problem.buffer(0);
  const BufferId elsewhere = problem.buffer(1);
  problem.flow(source, {problem.buffer(0)}, 8).flow(elsewhere, {problem.buffer(1)}, 8);
  EXPECT_EQ(reason(problem), "nothing moves between devices");
}

/// Three members, of which the middle one is here: input m and output 3 + m of member m.
ProblemOf team_of_three(Collective collective) {
  ProblemOf problem(collective, {remote_device, 0, remote_device});
  for (int side = 0; side < 2; ++side) {
    for (LaneId member = 0; member < 3; ++member) static_cast<void>(problem.buffer(member));
  }
  return problem.of_team();
}

TEST(NcclCalls, OfATeamOnlyTheCallsOfLocalMembersAreMade) {
  ProblemOf problem = team_of_three(Collective::broadcast);
  problem.flow(2, {3, 4}, 100);
  const CallList list = calls(problem);
  ASSERT_EQ(list.calls.size(), 1U);
  EXPECT_EQ(list.calls[0].rank, 1);
  EXPECT_EQ(list.calls[0].peer, 2);
  EXPECT_EQ(list.calls[0].source, std::nullopt);
  EXPECT_EQ(buffer_of(list.calls[0].target), 4);
  EXPECT_EQ(list.group_ends, (std::vector<std::size_t>{1}));
}

TEST(NcclCalls, ARemoteRootsOwnCopyChangesNothingHere) {
  ProblemOf problem = team_of_three(Collective::broadcast);
  problem.flow(2, {3, 4}, 100).flow(2, {5}, 100);
  const CallList list = calls(problem);
  ASSERT_EQ(list.calls.size(), 1U);
  EXPECT_EQ(list.calls[0].peer, 2);
  EXPECT_EQ(buffer_of(list.calls[0].target), 4);
}

TEST(NcclCalls, InATeamWhatAllStaysWithTheRootIsSentToItself) {
  ProblemOf problem = team_of_three(Collective::scatter);
  problem.flow(1, {4}, 100);
  EXPECT_EQ(calls(problem).calls.size(), 2U);
}

TEST(NcclCalls, TheRootsOwnCopyIsItsTarget) {
  ProblemOf problem = team_of_three(Collective::broadcast);
  problem.flow(1, {3, 5}, 100).flow(1, {4}, 100);
  const CallList list = calls(problem);
  ASSERT_EQ(list.calls.size(), 1U);
  EXPECT_EQ(buffer_of(list.calls[0].source), 1);
  EXPECT_EQ(buffer_of(list.calls[0].target), 4);
}

TEST(NcclCalls, AnExchangeIsSentAndReceived) {
  ProblemOf problem = team_of_three(Collective::all_to_all);
  problem.flow(0, {4}, 8).flow(1, {3}, 8).flow(1, {4}, 16).flow(1, {5}, 8).flow(2, {4}, 8);
  const CallList list = calls(problem);
  EXPECT_EQ(std::ranges::count(list.calls, Function::send, &Call::function), 3);
  EXPECT_EQ(std::ranges::count(list.calls, Function::receive, &Call::function), 3);
  EXPECT_EQ(list.group_ends, (std::vector<std::size_t>{6}));
}

TEST(NcclCalls, UnequalPartsAreBroadcastAndReduced) {
  ProblemOf gather = team_of_three(Collective::all_gather);
  gather.get().shape.counted = CallShape::Counted{};
  // The middle member's is the larger one, and the last one has nothing.
  gather.flow(0, {4, 5}, 8).flow(0, {3}, 8).flow(1, {3, 5}, 24).flow(1, {4}, 24);
  const CallList gathered = calls(gather);
  ASSERT_EQ(gathered.calls.size(), 2U);
  for (const Call& call : gathered.calls) EXPECT_EQ(call.function, Function::broadcast);
  EXPECT_EQ(gathered.calls[0].peer, 0);
  EXPECT_EQ(buffer_of(gathered.calls[0].target), 4);
  EXPECT_EQ(gathered.calls[1].peer, 1);
  EXPECT_EQ(buffer_of(gathered.calls[1].source), 1);
  EXPECT_EQ(buffer_of(gathered.calls[1].target), 4);
  EXPECT_EQ(gathered.calls[1].count, 24U);

  ProblemOf scatter = team_of_three(Collective::reduce_scatter);
  scatter.get().shape.counted = CallShape::Counted{};
  scatter.reduction(DType::float32, 7, {0, 1, 2}, 3).reduction(DType::float32, 3, {0, 1, 2}, 4);
  const CallList scattered = calls(scatter);
  ASSERT_EQ(scattered.calls.size(), 2U);
  for (const Call& call : scattered.calls) EXPECT_EQ(call.function, Function::reduce);
  EXPECT_EQ(scattered.calls[0].peer, 0);
  EXPECT_EQ(scattered.calls[0].target, std::nullopt);
  EXPECT_EQ(scattered.calls[1].peer, 1);
  EXPECT_EQ(buffer_of(scattered.calls[1].target), 4);
}

TEST(NcclCalls, SumsForAllAreOneAllReduceOfEachRank) {
  ProblemOf problem = team_of_three(Collective::all_reduce);
  problem.reduction(DType::complex64, 10, {0, 1, 2}, 3);
  Problem& all = problem.get();
  all.reductions[0].outputs = {static_cast<std::uint32_t>(all.places.size()), 3};
  for (const BufferId output : {3U, 4U, 5U}) all.places.push_back({output, 0});
  const CallList list = calls(problem);
  ASSERT_EQ(list.calls.size(), 1U);
  EXPECT_EQ(list.calls[0].function, Function::all_reduce);
  EXPECT_EQ(buffer_of(list.calls[0].source), 1);
  EXPECT_EQ(buffer_of(list.calls[0].target), 4);
  EXPECT_EQ(list.calls[0].count, 20U);
}

TEST(NcclCalls, AllGatherAndReduceScatterAreOneCallOfEachRank) {
  ProblemOf gather = team_of_three(Collective::all_gather);
  gather.flow(0, {4, 5}, 8).flow(1, {3, 5}, 8).flow(1, {4}, 8).flow(2, {3, 4}, 8);
  const CallList gathered = calls(gather);
  ASSERT_EQ(gathered.calls.size(), 1U);
  EXPECT_EQ(gathered.calls[0].function, Function::all_gather);
  EXPECT_EQ(buffer_of(gathered.calls[0].source), 1);
  EXPECT_EQ(gathered.calls[0].target, (Place{4, 0}));
  EXPECT_EQ(gathered.calls[0].count, 8U);

  ProblemOf scatter = team_of_three(Collective::reduce_scatter);
  for (const BufferId output : {3U, 4U, 5U}) scatter.reduction(DType::float32, 7, {0, 1, 2}, output);
  const CallList scattered = calls(scatter);
  ASSERT_EQ(scattered.calls.size(), 1U);
  EXPECT_EQ(scattered.calls[0].function, Function::reduce_scatter);
  EXPECT_EQ(buffer_of(scattered.calls[0].source), 1);
  EXPECT_EQ(buffer_of(scattered.calls[0].target), 4);
  EXPECT_EQ(scattered.calls[0].count, 7U);
}

}  // namespace
}  // namespace tutti::transport::nccl
