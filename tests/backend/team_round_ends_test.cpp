// SPDX-License-Identifier: Apache-2.0
#include "backend/team_rounds.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

/// Rounds whose others never come: they wait, and end once the abort word is set, saying nothing to anybody.
namespace tutti::backend {
namespace {

TEST_P(TeamRounds, WaitForRoomUntilSomebodyGivesUp) {
  TeamCall call = call_of(300);
  for (std::uint32_t round = 1; round <= call.rounds; ++round) {
    TeamPart& part = call.part(0, round);
    TeamExercise::put(part, team().input(0), team().slot(0), round % 2 == 0 ? 100 : 100'000);
    part.readers = {1};
  }
  team().enqueue(call);  // member 1 never comes
  expect_to_wait([&] { return team().ready_flag(1, 0) == TeamWindowLayout::slot_count; });
  give_up();
  EXPECT_EQ(team().ready_flag(1, 0), TeamWindowLayout::slot_count);
  EXPECT_EQ(team().finished_flag(1, 0), TeamWindowLayout::slot_count);
  EXPECT_EQ(team().done(0).value, 0U);
}

TEST_P(TeamRounds, WaitForRoomInInboxesUntilSomebodyGivesUp) {
  if (!has_inboxes()) GTEST_SKIP() << "no low-latency rounds through host memory";
  TeamCall call = call_of(300);
  for (std::uint32_t round = 1; round <= call.rounds; ++round) {
    call.part(0, round).readers = {1};
    static_cast<void>(team().send(call, round, 0, {1}, team().input(0), round % 2 == 0 ? 100 : 100'000));
  }
  call.parts[1].clear();
  team().enqueue(call);  // member 1 never comes
  expect_to_wait([&] { return team().finished_flag(1, 0) == TeamWindowLayout::slot_count; });
  give_up();
  EXPECT_EQ(team().finished_flag(1, 0), TeamWindowLayout::slot_count);
  EXPECT_EQ(team().done(0).value, 0U);
}

TEST_P(TeamRounds, WaitForLinesUntilSomebodyGivesUp) {
  if (!has_inboxes()) GTEST_SKIP() << "no low-latency rounds through host memory";
  for (const bool adds : {false, true}) {
    start();
    TeamCall call = call_of(2);
    const std::vector<std::byte*> places = team().send(call, 1, 1, {0}, team().input(1), 5'000);
    TeamPart& waits = call.part(0, 1);
    waits.sources = {1};
    std::byte* const target = team().allocate(0, 5'000);
    if (adds) {
      waits.dtype = DType::uint8;
      waits.input_count = 2;
      waits.sums = {{.count = 5'000, .first_input = 0, .first_output = 2}};
      waits.sum_pointers = {SourcePlace::own(team().input(0)), places[0], target};
    } else {
      TeamExercise::copy(waits, places[0], target, 5'000);
    }
    call.part(0, 2).readers = {1};
    call.parts[1].clear();
    team().enqueue(call);  // member 1 never comes
    expect_to_wait();
    give_up();
    EXPECT_EQ(team().ready_flag(1, 0), 0U);
    EXPECT_EQ(team().finished_flag(1, 0), 0U);
    EXPECT_EQ(team().done(0).value, 0U);
  }
}

TEST_P(TeamRounds, WaitForReadersUntilSomebodyGivesUp) {
  TeamCall call = call_of(2);
  TeamPart& part = call.part(0, 1);
  part.readers = {1};
  part.is_direct = true;
  static_cast<void>(team().give(part, 0, team().input(0)));
  call.part(0, 2).readers = {1};
  team().enqueue(call);  // member 1 never comes
  expect_to_wait([&] { return team().finished_flag(1, 0) == 1U; });
  give_up();
  EXPECT_EQ(team().finished_flag(1, 0), 1U);
  EXPECT_EQ(team().done(0).value, 0U);
}

TEST_P(TeamRounds, WaitForSourcesUntilSomebodyGivesUp) {
  TeamCall call = call_of(300);
  TeamPart& waits = call.part(0, 1);
  waits.sources = {1};
  TeamExercise::copy(waits, team().slot(1), team().allocate(0, 200'000), 200'000);
  for (std::uint32_t round = 2; round <= call.rounds; ++round) call.part(0, round).readers = {1};
  team().enqueue(call);  // member 1 never comes
  expect_to_wait();
  give_up();
  // What comes after a part that has not done its work says nothing either.
  EXPECT_EQ(team().ready_flag(1, 0), 0U);
  EXPECT_EQ(team().finished_flag(1, 0), 0U);
  EXPECT_EQ(team().done(0).value, 0U);
}

}  // namespace
}  // namespace tutti::backend
