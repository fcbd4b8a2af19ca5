// SPDX-License-Identifier: Apache-2.0
#include "backend/team_rounds.hpp"
#include "support/environment.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// What rounds of teams do, whatever the shapes, sizes and ways.
namespace tutti::backend {

INSTANTIATE_TEST_SUITE_P(Windows, TeamRounds,
                         testing::Values(WindowMemory::device, WindowMemory::device_with_wide_lines,
                                         WindowMemory::pinned),
                         [](const auto& instance) {
                           switch (instance.param) {
                             case WindowMemory::device:
                               return "InDeviceMemory";
                             case WindowMemory::device_with_wide_lines:
                               return "InDeviceMemoryWithWideLines";
                             case WindowMemory::pinned:
                               return "InPinnedMemory";
                           }
                           return "";
                         });

TEST_P(TeamRounds, GivenMemoryIsFreeWhenItsReadersHaveFinished) {
  // What comes next on a writer's stream overwrites what slow readers were given.
  constexpr std::uint64_t bytes = 20'000;
  for (std::int64_t i = 0; i < test::scaled(50); ++i) {
    const std::uint32_t writer = any_member();
    std::byte* const memory = team().allocate(writer, bytes);
    const auto pattern = team().input_bytes(writer).subspan(draw(0, 100'000), bytes);
    machine().copy(team().stream(writer),
                   {.target = memory,
                    .source = team().input(writer) + (pattern.data() - team().input_bytes(writer).data()),
                    .row_bytes = bytes});
    TeamCall call = call_of(1);
    TeamPart& own = call.part(writer, 1);
    own.is_direct = true;
    own.readers = team().everyone_but(writer);
    std::byte* const exposed = team().expose(own, writer, memory);
    for (const std::uint32_t reader : own.readers) {
      TeamPart& part = call.part(reader, 1);
      part.is_direct = true;
      part.sources = {writer};
      TeamExercise::copy(part, exposed, team().expect(reader, pattern), bytes);
    }
    for (const std::uint32_t reader : own.readers) team().delay(reader);
    team().enqueue(call);
    machine().fill(team().stream(writer), {.target = memory, .count = bytes, .value = {std::byte{0xee}}});
    team().check_if_full();
    if (HasFatalFailure()) return;
  }
  team().check();
}

TEST_P(TeamRounds, GivenMemoryHasWhatIsWrittenWhenItsWritersHaveFinished) {
  // What comes next on a giver's stream reads what slow writers have written, and overwrites it.
  constexpr std::uint64_t bytes = 20'000;
  for (std::int64_t i = 0; i < test::scaled(50); ++i) {
    const std::uint32_t giver = any_member();
    const Numbers writers = team().everyone_but(giver);
    std::byte* const memory = team().allocate(giver, writers.size() * bytes);
    TeamCall call = call_of(1);
    TeamPart& own = call.part(giver, 1);
    own.is_direct = own.writes_exposed = true;
    own.readers = writers;
    std::vector<std::byte*> kept;
    for (std::size_t w = 0; w < writers.size(); ++w) {
      const auto pattern = team().input_bytes(writers[w]).subspan(draw(0, 100'000), bytes);
      std::byte* const source =
          team().input(writers[w]) + (pattern.data() - team().input_bytes(writers[w]).data());
      TeamPart& part = call.part(writers[w], 1);
      part.is_direct = part.writes_exposed = true;
      part.sources = {giver};
      part.copies = {{.row_bytes = bytes, .source = 0, .first_target = 1, .target_count = 1}};
      part.copy_pointers = {SourcePlace::own(source),
                            team().expose(call.part(giver, 1), giver, memory + w * bytes)};
      kept.push_back(team().expect(giver, pattern));
    }
    for (const std::uint32_t writer : writers) team().delay(writer);
    team().enqueue(call);
    for (std::size_t w = 0; w < writers.size(); ++w) {
      machine().copy(team().stream(giver),
                     {.target = kept[w], .source = memory + w * bytes, .row_bytes = bytes});
    }
    machine().fill(team().stream(giver),
                   {.target = memory, .count = writers.size() * bytes, .value = {std::byte{0xee}}});
    team().check_if_full();
    if (HasFatalFailure()) return;
  }
  team().check();
}

TEST_P(TeamRounds, GiveOneAddressTwoOrMoreInTurns) {
  // Those of the same slot that a member has given before are others, and more or fewer.
  for (std::int64_t i = 0; i < test::scaled(20); ++i) {
    TeamCall call = call_of(3 * TeamWindowLayout::slot_count);
    for (std::uint32_t round = 1; round <= call.rounds; ++round) {
      const std::uint32_t writer = any_member();
      const std::vector<Rectangle> rectangles(draw(1, 4), Rectangle{1, draw(1, 500)});
      team().add_message(call, round, writer, team().everyone_but(writer), rectangles,
                         round % 2 == 0 ? Way::direct : Way::written);
      if (HasFatalFailure()) return;
    }
    team().enqueue(call);
    team().check_if_full();
  }
  team().check();
}

TEST_P(TeamRounds, TakeTablesOfEverySize) {
  // From tables in a kernel's parameters to ones in device memory.
  for (const std::size_t segments :
       {std::size_t{1}, std::size_t{5}, std::size_t{25}, std::size_t{150}, std::size_t{2'000}}) {
    for (std::int64_t repetition = 0; repetition < test::scaled(20); ++repetition) {
      TeamCall call = call_of(2);
      std::vector<Rectangle> rectangles(segments);
      std::ranges::generate(rectangles, [&] { return Rectangle{1, draw(0, 60)}; });
      const Way way = any_way();
      add_all_gather(call, 1, rectangles, way);
      std::vector<std::uint64_t> counts(segments);
      std::ranges::generate(counts, [&] { return draw(0, 10); });
      Numbers everyone = team().everyone_but(0);
      everyone.push_back(0);
      team().add_sum(call, 2, everyone, DType::float32, counts, SumAlignment::element, way);
      team().enqueue(call);
      team().check_if_full();
      if (HasFatalFailure()) return;
    }
  }
  team().check();
}

TEST_P(TeamRounds, AddEveryTypeInAscendingOrder) {
  for (const DType dtype : all_dtypes) {
    SCOPED_TRACE(name_of(dtype));
    const std::uint64_t most = TeamExercise::numbers_bytes / size_of(dtype);
    for (const SumAlignment alignment : {SumAlignment::alike, SumAlignment::element, SumAlignment::none}) {
      TeamCall call = call_of(members() + 1);
      Numbers everyone = team().everyone_but(0);
      everyone.push_back(0);
      const std::vector<std::uint64_t> counts{most, 1, 0, 77};
      const Way way = any_way();
      team().add_sum(call, 1, everyone, dtype, counts, alignment, way);
      for (std::uint32_t receiver = 0; receiver < members(); ++receiver) {
        team().add_sum(call, 2 + receiver, {receiver}, dtype, counts, alignment, way);
      }
      team().enqueue(call);
      team().check_if_full();
    }
    team().check();
    if (HasFatalFailure()) return;
  }
}

TEST_P(TeamRounds, WriteSumsWhereTheirOwnInputsWereWithLowLatency) {
  if (!has_inboxes()) GTEST_SKIP() << "no low-latency rounds through host memory";
  for (std::int64_t i = 0; i < test::scaled(200); ++i) {
    // Segments of one memory, which is input and output of its member.
    std::vector<std::uint64_t> counts(draw(1, 5));
    std::ranges::generate(counts, [&] { return draw(1, team().random().one_in(5) ? 5'000 : 200); });
    const std::uint64_t all = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    const auto expected = static_cast<std::byte>(members() * (members() + 1) / 2);
    std::vector<std::byte*> memory;
    TeamCall call = call_of(1);
    for (std::uint32_t member = 0; member < members(); ++member) {
      memory.push_back(team().allocate(member, all));
      machine().fill(team().stream(member), {.target = memory[member],
                                             .count = all,
                                             .element_bytes = 1,
                                             .value = {static_cast<std::byte>(member + 1)}});
      TeamPart& part = call.part(member, 1);
      part.readers = part.sources = team().everyone_but(member);
      part.dtype = DType::uint8;
      part.input_count = members();
    }
    std::uint64_t begin = 0;
    for (const std::uint64_t count : counts) {
      std::vector<std::vector<std::byte*>> inboxes;
      for (std::uint32_t member = 0; member < members(); ++member) {
        inboxes.push_back(
            team().send(call, 1, member, team().everyone_but(member), memory[member] + begin, count));
      }
      for (std::uint32_t member = 0; member < members(); ++member) {
        TeamPart& part = call.part(member, 1);
        const auto first = static_cast<std::uint32_t>(part.sum_pointers.size());
        part.sums.push_back({.count = count, .first_input = first, .first_output = first + members()});
        for (std::uint32_t from = 0; from < members(); ++from) {
          // Among those to whom `from` sends, all but itself.
          part.sum_pointers.push_back(from == member ? SourcePlace::own(memory[member] + begin)
                                                     : inboxes[from][member < from ? member : member - 1]);
        }
        part.sum_pointers.push_back(memory[member] + begin);
      }
      begin += count;
    }
    team().enqueue(call);
    const std::vector<std::byte> sums(all, expected);
    for (std::uint32_t member = 0; member < members(); ++member) {
      machine().copy(team().stream(member),
                     {.target = team().expect(member, sums), .source = memory[member], .row_bytes = all});
    }
    team().check_if_full();
    if (HasFatalFailure()) return;
  }
  team().check();
}

TEST_P(TeamRounds, HandOnSumsAtOnceOrInARoundOfTheirOwn) {
  if (!has_inboxes()) GTEST_SKIP() << "no low-latency rounds through host memory";
  run_many(200, 2, 5, [this](TeamCall& call, std::uint32_t& round) {
    if (round == call.rounds || team().random().one_in(4)) return add_random_work(call, round, 3'000);
    const DType dtype = team().random().pick(all_dtypes);
    const std::vector<std::uint64_t> counts = random_counts(dtype, 200);
    const bool is_in_place = team().random().one_in(2);
    if (team().random().one_in(2)) {
      team().add_shared_sum(call, round++, dtype, counts, is_in_place);
    } else {
      team().add_sum_for_root(call, round++, any_member(), dtype, counts, is_in_place);
    }
  });
}

TEST_P(TeamRounds, WriteSumsToAllWhoGaveMemory) {
  run_many(200, 1, 3, [this](TeamCall& call, std::uint32_t round) {
    if (team().random().one_in(3)) return add_random_work(call, round, 3'000);
    const DType dtype = team().random().pick(all_dtypes);
    team().add_direct_sum(call, round, dtype, random_counts(dtype, 200), team().random().one_in(2));
  });
}

TEST_P(TeamRounds, LeaveOutMembersWithoutAPart) {
  // Far more rounds than there are slots, in which only two have parts.
  for (int i = 0; i < 20; ++i) {
    const std::uint32_t writer = any_member();
    const std::uint32_t reader = some_but(writer).front();
    TeamCall call = call_of(50);
    for (std::uint32_t member = 0; member < members(); ++member) call.part(member, 1);
    for (std::uint32_t round = 2; round < call.rounds; ++round) {
      if (round % 5 == 0) continue;  // nobody has a part
      team().add_message(call, round, writer, {reader}, random_rectangles(500));
    }
    team().add_barrier(call, call.rounds);
    team().enqueue(call);
    team().check_if_full();
    if (HasFatalFailure()) return;
  }
  team().check();
  expect_flags(20 * 50);
}

TEST_P(TeamRounds, GoOnPastTheLargestNumber) {
  start(0xffffffffU - 100);
  for (int i = 0; i < 200; ++i) {
    TeamCall call = call_of(1);
    add_all_gather(call, 1, random_rectangles(3'000), any_way());
    team().enqueue(call);
    team().check_if_full();
    if (HasFatalFailure()) return;
  }
  team().check();
  expect_flags(0xffffffffU - 100 + 200);
}

TEST_P(TeamRounds, TellNowAndThenThatThereWasNothingToPut) {
  // Member 1 never puts anything. Flags compare only while they are less than 2^31 apart.
  constexpr std::uint32_t milestone = 1U << 29U;
  start(milestone - 10);
  for (int i = 0; i < 20; ++i) {
    TeamCall call = call_of(1);
    // Low-latency rounds say nothing at once, but for that at the milestone.
    const bool is_low_latency = has_inboxes() && i > 5 && i < 15;
    team().add_message(call, 1, 0, team().everyone_but(0), std::vector<Rectangle>{{1, 100}},
                       is_low_latency ? Way::low_latency : Way::slots);
    call.tells_host = !is_low_latency;
    team().enqueue(call);
  }
  team().check();
  EXPECT_EQ(team().ready_flag(0, 1), 0U);
  EXPECT_EQ(team().ready_flag(1, 0), milestone + 10);
  expect_flags(milestone + 10);
}

TEST_P(TeamRounds, TellTheHostWhenOutputsAreThere) {
  auto* const target = static_cast<std::byte*>(machine().allocate_pinned(5'000));
  for (std::uint32_t i = 1; i <= 200; ++i) {
    TeamCall call = call_of(1);
    TeamPart& writer = call.part(0, 1);
    TeamPart& reader = call.part(1, 1);
    const std::size_t begin = draw(0, 100'000);
    TeamExercise::put(writer, team().input(0) + begin, team().slot(0), 5'000);
    writer.readers = {1};
    reader.sources = {0};
    TeamExercise::copy(reader, team().slot(0), target, 5'000);
    complete(call);
    team().enqueue(call);
    ASSERT_TRUE(wait_for_flag(team().done(1), i, team().abort_word(), 10'000));
    ASSERT_TRUE(std::equal(target, target + 5'000, team().input_bytes(0).data() + begin)) << "call " << i;
  }
  team().check();
  machine().free_pinned(target);
}

TEST_P(TeamRounds, AreReplayedByGraphsAmongOthers) {
  constexpr std::uint64_t bytes = 24;
  for (const auto& [segments, way] : {std::pair{1U, Way::slots}, std::pair{2'000U, Way::slots},
                                      std::pair{1U, Way::low_latency}, std::pair{2'000U, Way::low_latency}}) {
    if (way == Way::low_latency && !has_inboxes()) continue;
    // Everyone's bytes go round: through the graph's own memory, as addresses in it are fixed.
    TeamCall call = call_of(3);
    std::vector<std::byte*> from;
    std::vector<std::byte*> to;
    for (std::uint32_t member = 0; member < members(); ++member) {
      from.push_back(team().allocate(member, segments * bytes));
      to.push_back(team().allocate(member, segments * bytes));
    }
    team().add_barrier(call, 1);
    for (std::uint32_t reader = 0; reader < members(); ++reader) {
      const std::uint32_t writer = (reader + 1) % members();
      call.part(writer, 3).readers = {reader};
      call.part(reader, 3).sources = {writer};
      for (std::uint32_t i = 0; i < segments; ++i) {
        std::byte* const source = from[writer] + i * bytes;
        std::byte* place = team().slot(writer) + i * bytes;
        if (way == Way::low_latency) {
          place = team().send(call, 3, writer, {reader}, source, bytes).front();
        } else {
          TeamExercise::put(call.part(writer, 3), source, place, bytes);
        }
        TeamExercise::copy(call.part(reader, 3), place, to[reader] + i * bytes, bytes);
      }
    }
    const std::vector<GraphHandle> graphs = capture(call);
    for (int replay = 0; replay < 200; ++replay) {
      for (std::uint32_t reader = 0; reader < members(); ++reader) {
        const StreamRef stream = team().stream(reader);
        const std::uint32_t writer = (reader + 1) % members();
        const auto input = [&](std::uint32_t member) {
          return (member * 131U + static_cast<std::size_t>(replay) * 37U) % 100'000;
        };
        const auto wanted = team().input_bytes(writer).subspan(input(writer), segments * bytes);
        machine().copy(stream, {.target = from[reader],
                                .source = team().input(reader) + input(reader),
                                .row_bytes = segments * bytes});
        machine().launch_graph(graphs[reader], stream);
        machine().copy(
            stream,
            {.target = team().expect(reader, wanted), .source = to[reader], .row_bytes = segments * bytes});
      }
      team().count_call(call);
      if (team().random().one_in(2)) {
        TeamCall eager = call_of(2);
        add_all_gather(eager, 2, random_rectangles(2'000), any_way());
        team().enqueue(eager);
      }
      team().check_if_full();
      if (HasFatalFailure()) return;
    }
    team().check();
    for (const GraphHandle graph : graphs) machine().destroy_graph(graph);
  }
}

}  // namespace tutti::backend
