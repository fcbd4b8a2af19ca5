// SPDX-License-Identifier: Apache-2.0
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/shared/rank_status.hpp"
#include "tutti/communicator.hpp"
#include "tutti/stream.hpp"
#include "tutti/virtual_devices.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Ranks whose virtual devices hold work back to interleave it. A rank that waits for another must go on with
/// its own work meanwhile, as the other may wait for that: nobody is late who would not be without a seed.
namespace tutti::test::ranks {
namespace {

constexpr int backlog = 12;  ///< calls that a rank has queued when it begins to wait on the host

/// What both ranks do, over and over, with a backlog of work that waits for the other rank's.
struct Waits {
  Waits(Exchange& exchange_of_ranks, TransportKind transport)
      : exchange(exchange_of_ranks),
        rank(exchange.rank()),
        options{.devices = {Device(0)}, .timeout = timeout, .patience = timeout, .transport = transport},
        communicator(exchange, options) {
    virtual_devices::set_interleaving_seed(rank + 1);
  }

  void queue_calls() const {
    for (int call = 0; call < backlog; ++call) communicator.all_gather({part}, {whole});
  }
  /// Rank 1 waits for the calls, and so for what rank 0 has queued, before it goes on.
  void queue_calls_that_rank_1_waits_for() const {
    queue_calls();
    if (rank == 1) synchronize(0);
  }

  Exchange& exchange;
  int rank;
  CommunicatorOptions options;
  mutable Communicator communicator;
  Tensor part = some_tensor(64);
  Tensor whole = some_tensor(128);
};

/// `body` on two ranks, by both of the ways by which data goes.
template <class Body>
void expect_nobody_late(const Body& body) {
  for (const TransportKind transport : {TransportKind::p2p, TransportKind::staged}) {
    SCOPED_TRACE(name_of(transport));
    expect_all_right(2, [&](Exchange& exchange) {
      Waits waits(exchange, transport);
      for (int times = 0; times < 3; ++times) body(waits);
      synchronize(0);
      EXPECT_NO_THROW(waits.communicator.check());
    });
  }
}

TEST(InterleavedRanks, ScatterAndGatherGoOnWithWhatIsQueued) {
  expect_nobody_late([](Waits& waits) {
    waits.queue_calls_that_rank_1_waits_for();
    waits.communicator.scatter(waits.rank == 0 ? waits.whole : Tensor(), {waits.part}, 0);
    waits.queue_calls_that_rank_1_waits_for();
    waits.communicator.gather({waits.part}, waits.rank == 0 ? waits.whole : Tensor(), 0);
  });
}

TEST(InterleavedRanks, SplitGoesOnWithWhatIsQueued) {
  expect_nobody_late([](Waits& waits) {
    waits.queue_calls_that_rank_1_waits_for();
    const std::optional<Communicator> other = waits.communicator.split(0, waits.rank);
    EXPECT_TRUE(other.has_value());
  });
}

TEST(InterleavedRanks, ARankFarAheadGoesOnWithWhatIsQueued) {
  expect_nobody_late([](Waits& waits) {
    waits.queue_calls_that_rank_1_waits_for();
    for (std::uint64_t call = 0; call < transport::team::RankStatus::history; ++call)
      waits.communicator.barrier();
  });
}

TEST(InterleavedRanks, WhoWaitsInCodeOfItsOwnIsNotLateEither) {
  expect_nobody_late([](Waits& waits) {
    waits.queue_calls_that_rank_1_waits_for();
    transport::team::synchronize(waits.exchange);
  });
}

TEST(InterleavedRanks, WhoDestroysItsCommunicatorGoesOnWithWhatIsQueued) {
  expect_nobody_late([](Waits& waits) {
    waits.queue_calls_that_rank_1_waits_for();
    const Stopwatch watch;
    waits.communicator = Communicator(waits.exchange, waits.options);
    EXPECT_LT(watch.elapsed(), timeout + slack);
  });
}

}  // namespace
}  // namespace tutti::test::ranks
