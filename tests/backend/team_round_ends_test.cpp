// SPDX-License-Identifier: Apache-2.0
#include "backend/team_rounds.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

/// Rounds whose others never come: they wait, and end once the abort word is set, saying nothing to anybody.
namespace tutti::backend {
namespace {

TEST_P(TeamRounds, WaitForRoomUntilSomebodyGivesUp) {
  if (test::is_under_a_tool()) GTEST_SKIP() << "launches wait for kernels before them";
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
  if (test::is_under_a_tool()) GTEST_SKIP() << "launches wait for kernels before them";
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
  static_cast<void>(team().expose(part, 0, team().input(0)));
  call.part(0, 2).readers = {1};
  team().enqueue(call);  // member 1 never comes
  expect_to_wait([&] { return team().finished_flag(1, 0) == 1U; });
  give_up();
  EXPECT_EQ(team().finished_flag(1, 0), 1U);
  EXPECT_EQ(team().done(0).value, 0U);
}

TEST_P(TeamRounds, GiveNothingBehindOneThatHasGivenUp) {
  if (test::is_under_a_tool()) GTEST_SKIP() << "launches wait for kernels before them";
  TeamCall call = call_of(50);
  for (std::uint32_t round = 1; round <= call.rounds; ++round) {
    TeamPart& part = call.part(0, round);
    part.is_direct = part.writes_exposed = true;
    part.readers = part.sources = {1};
    static_cast<void>(team().expose(part, 0, team().input(0)));
  }
  team().enqueue(call);  // member 1 never comes
  expect_to_wait();
  give_up();  // only the first one waits for what it gave
  EXPECT_EQ(team().done(0).value, 0U);
}

TEST_P(TeamRounds, WhoComesWhenOthersHaveGivenUpWritesNothingToThem) {
  constexpr std::uint64_t bytes = 1000;
  for (const bool adds : {true, false}) {
    start();
    const std::uint32_t late = members() - 1;
    TeamCall call = call_of(1);
    std::vector<std::byte*> inputs;
    std::vector<std::byte*> outputs;
    for (std::uint32_t member = 0; member < members(); ++member) {
      inputs.push_back(team().allocate(member, members() * bytes));
      outputs.push_back(team().allocate(member, members() * bytes));
      machine().fill(team().stream(member),
                     {.target = outputs[member], .count = members() * bytes, .value = {std::byte{0xee}}});
      TeamPart& part = call.part(member, 1);
      part.is_direct = part.writes_exposed = true;
      part.readers = part.sources = team().everyone_but(member);
      part.dtype = DType::uint8;
      part.input_count = part.output_count = members();
    }
    for (std::uint32_t writer = 0; writer < members(); ++writer) {
      TeamPart& part = call.part(writer, 1);
      const auto place_in = [&](const std::vector<std::byte*>& memory, std::uint32_t member) {
        std::byte* const place = memory[member] + writer * bytes;
        return member == writer ? SourcePlace::own(place)
                                : team().expose(call.part(member, 1), member, place);
      };
      if (adds) {
        part.sums.push_back({.count = bytes, .first_input = 0, .first_output = members()});
        for (const auto& memory : {inputs, outputs}) {
          for (std::uint32_t member = 0; member < members(); ++member)
            part.sum_pointers.push_back(place_in(memory, member));
        }
      } else {
        for (std::uint32_t member = 0; member < members(); ++member) {
          part.copies.push_back(
              {.row_bytes = bytes, .source = 2 * member, .first_target = 2 * member + 1, .target_count = 1});
          part.copy_pointers.push_back(SourcePlace::own(inputs[writer]));
          part.copy_pointers.push_back(place_in(outputs, member));
        }
      }
    }
    for (std::uint32_t member = 0; member < late; ++member) team().enqueue(call, member);
    expect_to_wait();
    give_up();
    team().enqueue(call, late);
    team().synchronize(late);
    auto* const seen = static_cast<std::byte*>(machine().allocate_pinned(members() * bytes));
    for (std::uint32_t member = 0; member < late; ++member) {
      machine().copy(team().stream(member),
                     {.target = seen, .source = outputs[member], .row_bytes = members() * bytes});
      machine().synchronize_stream(team().stream(member));
      const std::span theirs(seen + late * bytes, bytes);  // what the one who is late would write
      EXPECT_TRUE(std::ranges::all_of(theirs, [](std::byte byte) { return byte == std::byte{0xee}; }))
          << "of member " << member << (adds ? ", a sum" : ", a copy");
    }
    machine().free_pinned(seen);
  }
}

TEST_P(TeamRounds, WaitForSourcesUntilSomebodyGivesUp) {
  if (test::is_under_a_tool()) GTEST_SKIP() << "launches wait for kernels before them";
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
