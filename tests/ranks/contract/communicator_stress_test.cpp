// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract/checks.hpp"
#include "support/environment.hpp"
#include "support/memory/footprint.hpp"
#include "support/ranks.hpp"
#include "support/values/random.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/stream.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <iostream>
#include <span>

/// Random calls between processes: operations, sizes, element types, roots and streams.
namespace tutti::test::ranks {
namespace {

/// Keeps several calls in flight. All ranks make the same ones.
void make_random_calls(const Group& group, std::span<const Stream> streams, std::uint64_t seed,
                       std::int64_t calls) {
  constexpr std::size_t in_flight = 6;
  Random random(seed);
  std::deque<Check> queue;
  for (std::int64_t call = 0; call < calls; ++call) {
    const StreamGuard guard(random.pick(streams));
    queue.push_back(start_random_call(group, random, seed + static_cast<std::uint64_t>(call)));
    if (queue.size() < in_flight) continue;
    SCOPED_TRACE(testing::Message() << "call " << call + 1 - std::int64_t{in_flight});
    queue.front()();
    queue.pop_front();
  }
  synchronize(group.device(0).index());
  for (const Check& check : queue) check();
}

TEST(CommunicatorStress, ThousandsOfCallsAreAllRightAndGrowNothing) {
  const std::uint64_t seed = test_seed();
  std::cout << "TUTTI_TEST_SEED=" << seed << '\n';
  expect_all_right(3, [seed](Exchange& exchange) {
    CommunicatorOptions options{.devices = {exchange.rank() % device_count()}};
    options.determinism = Determinism::bitwise;
    Communicator communicator(exchange, options);
    const Group group(communicator);
    // The same calls every round: what the first rounds did not need, later ones must not need either.
    const int device = group.device(0).index();
    const std::array streams{current_stream(device), Stream(device), Stream(device)};
    const auto round = [&] { make_random_calls(group, streams, seed, scaled(500)); };
    EXPECT_TRUE(Footprint::does_not_grow(round));
    transport::team::synchronize(exchange);  // a rank that leaves has the others close its memory
  });
}

}  // namespace
}  // namespace tutti::test::ranks
