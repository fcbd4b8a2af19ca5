// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/communicator_impl.hpp"
#include "ranks/memory/symmetric_kernels.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/machines/machines.hpp"
#include "support/ranks.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/communicator.hpp"
#include "tutti/graph.hpp"
#include "tutti/memory.hpp"
#include "tutti/stream.hpp"
#include "tutti/symmetric.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

/// Symmetric memory, and kernels that use it.
namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::expect_all_right;
using test::holds;
using test::mentions;
using test::refuses;
using test::SymmetricLaunch;

constexpr std::int64_t per_member = 2'500;
constexpr int rounds = 3;
const std::chrono::milliseconds patience = test::patient(20s);
/// What a status holds before its kernel has run.
constexpr int done = static_cast<int>(WaitStatus::done);

/// Makes a communicator with `members` devices on each rank.
[[nodiscard]] Communicator make(Exchange& exchange, int members = 1) {
  CommunicatorOptions options{.timeout = test::patient(20s)};
  for (int i = 0; i < members; ++i)
    options.devices.push_back(Device((exchange.rank() * members + i) % device_count()));
  return Communicator(exchange, options);
}

[[nodiscard]] Tensor zero_at(int device, std::int64_t count = 1) {
  return zeros({count}, {.dtype = DType::int32, .device = Device(device)});
}

void wait_for(const Communicator& communicator) {
  for (const Device device : communicator.devices()) synchronize(device);
}

/// The results of a launch of each local member.
struct Results {
  std::vector<Tensor> statuses;
  std::vector<Tensor> operands;
};
[[nodiscard]] Results results_for(const Communicator& communicator, std::int64_t count) {
  Results results;
  for (const Device device : communicator.devices()) {
    results.statuses.push_back(zero_at(device.index()));
    results.operands.push_back(zero_at(device.index(), count));
  }
  return results;
}

void launch_exchanges(const SymmetricMemory& memory, const Results& results) {
  for (std::size_t local = 0; local < results.statuses.size(); ++local) {
    test::launch_exchange(SymmetricLaunch{memory, static_cast<int>(local), results.statuses[local], patience},
                          results.operands[local], per_member, rounds);
  }
}

void expect_exchanged(const Results& results, int members, int times) {
  for (std::size_t local = 0; local < results.statuses.size(); ++local) {
    EXPECT_TRUE(holds(results.statuses[local], done));
    const std::vector<std::int32_t> sums = results.operands[local].to_vector<std::int32_t>();
    for (std::int64_t i = 0; i < per_member; i += 7) {
      ASSERT_EQ(sums[static_cast<std::size_t>(i)], times * test::exchanged_sum(members, i, rounds))
          << "element " << i << " of local member " << local;
    }
  }
}

void expect_exchanges(Communicator& communicator) {
  const int members = communicator.member_count();
  const SymmetricMemory memory = communicator.symmetric({members, per_member}, DType::int32);
  const Results results = results_for(communicator, per_member);
  constexpr int times = 3;
  for (int time = 0; time < times; ++time) launch_exchanges(memory, results);
  expect_exchanged(results, members, times);
}

TEST(SymmetricMemory, TwoRanksSeeWhatTheyWroteToOneAnother) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    expect_exchanges(communicator);
  });
}

TEST(SymmetricMemory, FourRanksSeeWhatTheyWroteToOneAnother) {
  expect_all_right(4, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    expect_exchanges(communicator);
  });
}

TEST(SymmetricMemory, RanksMayHaveSeveralMembers) {
  expect_all_right(2, [](Exchange& exchange) {
    if (device_count() < 2) return;  // on a machine with one GPU
    Communicator communicator = make(exchange, 2);
    expect_exchanges(communicator);
  });
}

TEST(SymmetricMemory, BelongsToOneProcessToo) {
  expect_all_right(1, [](Exchange&) {
    std::vector<Device> devices;
    for (int device = 0; device < std::min(device_count(), 3); ++device) devices.emplace_back(device);
    Communicator communicator({.devices = devices});
    expect_exchanges(communicator);
  });
}

TEST(SymmetricMemory, PutsGoAroundTheRingAndSignalsAreAdded) {
  expect_all_right(3, [](Exchange& exchange) {
    constexpr int laps = 5;
    constexpr std::int64_t count = 1'003;
    Communicator communicator = make(exchange);
    const SymmetricMemory memory = communicator.symmetric({count}, DType::int32);
    const Results results = results_for(communicator, count);
    for (std::uint64_t time = 0; time < 2; ++time) {
      test::launch_ring(SymmetricLaunch{memory, 0, results.statuses[0], patience}, results.operands[0], count,
                        laps, time * laps);
      // The next one begins when this one's last numbers have arrived.
      communicator.barrier();
    }
    EXPECT_TRUE(holds(results.statuses[0], done));
    if (exchange.rank() == 0) {
      EXPECT_TRUE(holds(memory.tensor(), laps * 3));
    }
    const Tensor status = zero_at(communicator.devices()[0].index());
    test::launch_signals(SymmetricLaunch{memory, 0, status, patience}, SymmetricView::signal_count - 1, 50);
    EXPECT_TRUE(holds(status, done));
    communicator.barrier();
    wait_for(communicator);
  });
}

TEST(SymmetricMemory, HasTensorsAndAddressesOfAllMembers) {
  expect_all_right(2, [](Exchange& exchange) {
    const int members = device_count() < 2 ? 1 : 2;
    Communicator communicator = make(exchange, members);
    const SymmetricMemory memory = communicator.symmetric({3, 5}, DType::int64);
    ASSERT_EQ(memory.tensors().size(), static_cast<std::size_t>(members));
    for (int local = 0; local < members; ++local) {
      const Tensor& tensor = memory.tensor(local);
      EXPECT_EQ(tensor.dtype(), DType::int64);
      EXPECT_EQ(std::vector<std::int64_t>(tensor.sizes().begin(), tensor.sizes().end()),
                (std::vector<std::int64_t>{3, 5}));
      EXPECT_EQ(tensor.device(), communicator.devices()[static_cast<std::size_t>(local)]);
      EXPECT_EQ(memory.peer_data(communicator.first_member() + local, local), tensor.data());
      for (int member = 0; member < communicator.member_count(); ++member) {
        EXPECT_NE(memory.peer_data(member, local), nullptr);
        for (int other = 0; other < member; ++other)
          EXPECT_NE(memory.peer_data(member, local), memory.peer_data(other, local));
      }
    }
  });
}

/// Returns how many segments this rank has ever asked the others to open.
[[nodiscard]] std::uint32_t opened_segments(Communicator& communicator) {
  transport::team::Team& team = CommunicatorAccess::context(communicator).team();
  return team.state().registration_tables(team.membership()).own().used.load();
}

TEST(SymmetricMemory, CollectivesFindItOpen) {
  expect_all_right(2, [](Exchange& exchange) {
    constexpr std::int64_t count = 1'200'000;  // large enough to be read in place
    Communicator communicator = make(exchange);
    const SymmetricMemory inputs = communicator.symmetric({count}, DType::int32);
    const SymmetricMemory outputs = communicator.symmetric({count}, DType::int32);
    const std::uint32_t opened = opened_segments(communicator);
    EXPECT_LE(opened, 2U);
    for (int round = 1; round <= 3; ++round) {
      inputs.tensor().fill_(round + exchange.rank());
      communicator.all_reduce({inputs.tensor()}, {outputs.tensor()});
      const std::string algorithm = communicator.last_plan().algorithm;
      EXPECT_TRUE(mentions(algorithm, {"direct"}));
      EXPECT_EQ(algorithm.find("stand-ins"), std::string::npos);
      EXPECT_TRUE(holds(outputs.tensor(), 2 * round + 1));
    }
    EXPECT_EQ(opened_segments(communicator), opened);
  });
}

TEST(SymmetricMemory, KernelsMayBeCaptured) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    const SymmetricMemory memory = communicator.symmetric({2, per_member}, DType::int32);
    const Results results = results_for(communicator, per_member);
    wait_for(communicator);  // for the zeros
    const Stream stream(communicator.devices()[0]);
    const StreamGuard guard(stream);
    {
      const Graph graph = Graph::capture(stream, [&] { launch_exchanges(memory, results); });
      launch_exchanges(memory, results);
      for (int time = 0; time < 2; ++time) graph.launch(stream);
      wait_for(communicator);
    }
    expect_exchanged(results, 2, 3);
  });
}

/// Returns the bytes in blocks in use on the device, once the cache has given up what it can.
[[nodiscard]] std::size_t in_use(const Communicator& communicator) {
  empty_cache();
  return memory_allocated(communicator.devices()[0]);
}

TEST(SymmetricMemory, IsFreedOnceAllHaveReleasedIt) {
  expect_all_right(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    const std::size_t before = in_use(communicator);
    {
      SymmetricMemory memory = communicator.symmetric({1'000'000});
      EXPECT_GE(in_use(communicator), before + 4'000'000);
      // One after the other: the memory of all stays until the last one's turn.
      for (int rank = 0; rank < 3; ++rank) {
        if (exchange.rank() == rank) memory = SymmetricMemory();
        if (exchange.rank() == rank) empty_cache();  // the release takes effect in a later call
        communicator.barrier();
        wait_for(communicator);
        if (rank < 2) {
          EXPECT_GE(in_use(communicator), before + 4'000'000);
        }
        communicator.barrier();
        wait_for(communicator);
      }
    }
    EXPECT_EQ(in_use(communicator), before);
    // Together, and at once.
    SymmetricMemory memory = communicator.symmetric({1'000'000});
    memory.release();
    EXPECT_FALSE(memory);
    EXPECT_EQ(memory_allocated(communicator.devices()[0]), before);
    memory.release();
    // A tensor may be kept for longer.
    memory = communicator.symmetric({1'000}, DType::int32);
    const Tensor kept = memory.tensor();
    kept.fill_(7);
    memory.release();
    EXPECT_TRUE(holds(kept, 7));
  });
}

TEST(SymmetricMemory, ManyAreMadeAndReleased) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    const std::size_t before = in_use(communicator);
    std::vector<SymmetricMemory> kept;
    for (int i = 0; i < 12; ++i) {
      kept.push_back(communicator.symmetric({1 + 10'000 * (i % 7)}, DType::uint8));
      if (i % 3 == 2) kept.erase(kept.begin());
    }
    kept.clear();
    communicator.barrier();
    wait_for(communicator);
    communicator.symmetric({1}).release();  // all have done with the others
    EXPECT_EQ(in_use(communicator), before);
  });
}

TEST(SymmetricMemory, RefusesBadArguments) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    const auto makes = [&](IntList sizes, DType dtype = DType::float32) {
      static_cast<void>(communicator.symmetric(sizes, dtype));
    };
    EXPECT_TRUE(refuses([&] { makes({-1}); }, ErrorCode::invalid_argument, {"symmetric: ", "-1"}));
    EXPECT_TRUE(refuses(
        [&] {
          makes({3, 0});
        },
        ErrorCode::invalid_argument, {"symmetric: sizes is [3, 0]", "expected some elements"}));
    EXPECT_TRUE(refuses([&] { makes({1}, static_cast<DType>(200)); }, ErrorCode::invalid_argument,
                        {"symmetric", "dtype"}));
    EXPECT_TRUE(
        refuses([&] { static_cast<void>(Communicator().symmetric({1})); }, ErrorCode::invalid_argument, {}));
    const SymmetricMemory memory = communicator.symmetric({1});
    EXPECT_TRUE(refuses([&] { static_cast<void>(memory.peer_data(2)); }, ErrorCode::invalid_argument,
                        {"SymmetricMemory: member is 2", "0 to 1"}));
    EXPECT_TRUE(refuses([&] { static_cast<void>(memory.peer_data(-1)); }, ErrorCode::invalid_argument,
                        {"member is -1"}));
    EXPECT_TRUE(refuses([&] { static_cast<void>(memory.tensor(1)); }, ErrorCode::invalid_argument,
                        {"local is 1", "0 to 0"}));
    EXPECT_TRUE(refuses([&] { static_cast<void>(memory.view(0, 0ms)); }, ErrorCode::invalid_argument,
                        {"patience is 0 ms"}));
    EXPECT_TRUE(refuses([] { static_cast<void>(SymmetricMemory().tensors()); }, ErrorCode::invalid_argument,
                        {"it is empty"}));
    const Stream stream(communicator.devices()[0]);
    const Graph graph = Graph::capture(stream, [&] {
      EXPECT_TRUE(refuses([&] { makes({1}); }, ErrorCode::unsupported, {"symmetric: ", "captured"}));
    });
    // Nothing of it has ended the communicator.
    expect_exchanges(communicator);
  });
}

TEST(SymmetricMemory, RefusesHostMemory) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator(exchange, {.devices = {Device(exchange.rank() % device_count())},
                                         .transport = TransportKind::staged});
    EXPECT_TRUE(refuses(
        [&] { static_cast<void>(communicator.symmetric({1})); }, ErrorCode::unsupported,
        {"symmetric: the members' devices cannot access one another's memory", "staged was asked for"}));
    communicator.barrier();
    wait_for(communicator);
  });
}

TEST(SymmetricMemory, RanksGiveTheSame) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    EXPECT_TRUE(refuses(
        [&] {
          static_cast<void>(communicator.symmetric({2, exchange.rank() + 3}, DType::int16));
        },
        ErrorCode::invalid_argument,
        {"symmetric memory of int16 [2, 3]", "symmetric memory of int16 [2, 4]"}));
  });
}

}  // namespace
}  // namespace tutti
