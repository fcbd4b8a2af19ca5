// SPDX-License-Identifier: Apache-2.0
#include "backend/team_rounds.hpp"
#include "support/environment.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

/// Rounds of teams that graphs replay.
namespace tutti::backend {

TEST_P(TeamRounds, DoTheSameWhenGraphsReplayThem) {
  for (std::int64_t i = 0; i < test::scaled(60); ++i) {
    // All in low-latency rounds or by any way, so that kernels follow one another that may overlap, and
    // others.
    const bool is_low_latency = has_inboxes() && team().random().one_in(2);
    TeamCall call = call_of(static_cast<std::uint32_t>(draw(1, 20)));
    for (std::uint32_t round = 1; round <= call.rounds; ++round) {
      const std::int64_t budget = team().random().one_in(4) ? 200'000 : 2'000;
      if (is_low_latency) {
        add_all_gather(call, round, random_rectangles(budget / 2), Way::low_latency);
      } else {
        add_random_work(call, round, budget);
      }
      if (HasFatalFailure()) return;
    }
    complete(call);
    call.tells_host = call.counts_done = false;
    const std::vector<GraphHandle> graphs = capture(call);
    for (int replay = 0; replay < 2; ++replay) {
      if (team().random().one_in(3)) team().delay(any_member());
      for (std::uint32_t member = 0; member < members(); ++member)
        machine().launch_graph(graphs[member], team().stream(member));
      team().count_call(call);
    }
    team().check();
    for (const GraphHandle graph : graphs) machine().destroy_graph(graph);
    if (HasFatalFailure()) return;
  }
}

}  // namespace tutti::backend
