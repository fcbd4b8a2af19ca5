// SPDX-License-Identifier: Apache-2.0
#include "backend/team_rounds.hpp"
#include "support/environment.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

/// Random work of teams, many rounds of it.
namespace tutti::backend {

std::vector<Rectangle> TeamRounds::random_rectangles(std::int64_t budget) {
  std::vector<Rectangle> rectangles;
  const std::int64_t longest = team().random().one_in(3) ? budget : std::min<std::int64_t>(budget, 300);
  while (budget > 0 && (rectangles.empty() || !team().random().one_in(4))) {
    Rectangle rectangle;
    rectangle.rows = team().random().one_in(2) ? 1 : static_cast<std::uint32_t>(draw(1, 12));
    rectangle.row_bytes = draw(0, std::min(longest, budget) / rectangle.rows);
    budget -= rectangle.rows * static_cast<std::int64_t>(rectangle.row_bytes) + 64;
    rectangles.push_back(rectangle);
  }
  return rectangles;
}

void TeamRounds::add_random_work(TeamCall& call, std::uint32_t round, std::int64_t budget) {
  switch (draw(0, 9)) {
    case 0:
      return;  // nobody has a part
    case 1:
      return team().add_barrier(call, round);
    case 2:  // a message without bytes
      return team().add_message(call, round, 0, {1}, {});
    case 3:
    case 4: {
      const std::uint32_t writer = any_member();
      return team().add_message(call, round, writer, some_but(writer), random_rectangles(budget), any_way());
    }
    case 5: {  // gather
      const std::uint32_t reader = any_member();
      const Way way = any_way();
      for (const std::uint32_t writer : some_but(reader)) {
        team().add_message(call, round, writer, {reader}, random_rectangles(budget / 2), way);
      }
      return;
    }
    case 6:
    case 7:
      return add_all_gather(call, round, random_rectangles(budget / 2), any_way());
    default: {
      const DType dtype = team().random().pick(all_dtypes);
      const std::vector<std::uint64_t> counts = random_counts(dtype, 100);
      const std::uint32_t receiver = any_member();
      Numbers receivers = team().everyone_but(receiver);
      if (team().random().one_in(2)) {
        receivers = {receiver};
      } else if (team().random().one_in(2)) {
        receivers.push_back(receiver);
      }
      return team().add_sum(call, round, receivers, dtype, counts, static_cast<SumAlignment>(draw(0, 2)),
                            any_way());
    }
  }
}

TEST_P(TeamRounds, DoWhatTheyAreToldWhateverTheShapeAndAlignment) {
  run_many(400, 1, 6, [this](TeamCall& call, std::uint32_t round) {
    add_random_work(call, round, team().random().one_in(4) ? 200'000 : 6'000);
  });
}

TEST_P(TeamRounds, FollowOneAnotherByTheThousand) {
  if (test::is_under_a_tool()) GTEST_SKIP() << "launches wait for kernels before them";
  const std::int64_t calls = test::scaled(5'000);
  for (std::int64_t i = 0; i < calls; ++i) {
    TeamCall call = call_of(1);
    add_all_gather(call, 1, std::vector<Rectangle>{{1, draw(1, 100)}}, any_way());
    call.tells_host = i % 100 < 10;
    call.counts_done = i % 100 < 60;
    team().enqueue(call);
    team().check_if_full();
    if (HasFatalFailure()) return;
  }
  team().check();
  expect_flags(static_cast<std::uint32_t>(calls));
}

TEST_P(TeamRounds, KeepWhatSlowReadersHaveNotReadYet) {
  // The writer runs ahead by all slots, and further only as the reader comes after.
  for (std::int64_t i = 0; i < test::scaled(50); ++i) {
    const std::uint32_t writer = any_member();
    TeamCall call = call_of(20);
    for (std::uint32_t member = 0; member < members(); ++member) call.part(member, 1);
    for (std::uint32_t round = 2; round <= call.rounds; ++round) {
      team().add_message(call, round, writer, team().everyone_but(writer),
                         random_rectangles(i % 2 == 0 ? 500 : 30'000),
                         has_inboxes() && i % 4 < 2 ? Way::low_latency : Way::slots);
    }
    call.tells_host = i % 8 < 4;
    team().delay(team().everyone_but(writer).front());
    team().enqueue(call);
    team().check_if_full();
    if (HasFatalFailure()) return;
  }
  team().check();
}

}  // namespace tutti::backend
