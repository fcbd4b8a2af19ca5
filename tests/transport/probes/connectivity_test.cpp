// SPDX-License-Identifier: Apache-2.0
#include "transport/probes/connectivity.hpp"

#include "allocator/allocators.hpp"
#include "allocator/pinned_allocator.hpp"
#include "support/collectives/stream_order.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "tutti/error.hpp"
#include "tutti/memory.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using transport::Connectivity;
using virtual_devices::FaultKind;
using virtual_devices::Operation;
using virtual_devices::VirtualLink;
using virtual_devices::VirtualMachine;

constexpr std::uint64_t always = std::numeric_limits<std::uint64_t>::max();

std::vector<int> all_devices() {
  std::vector<int> devices(static_cast<std::size_t>(device_count()));
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

/// The states of all pairs, by device, then peer.
std::vector<PeerState> states_of(const Connectivity& connectivity) {
  std::vector<PeerState> states;
  for (const int device : all_devices()) {
    for (const int peer : all_devices()) states.push_back(connectivity.link(device, peer).state);
  }
  return states;
}

/// All pairs usable, but for those of `exceptions`.
struct Exception {
  int device;
  int peer;
  PeerState state;
};
std::vector<PeerState> usable_except(const std::vector<Exception>& exceptions) {
  const auto count = static_cast<std::size_t>(device_count());
  std::vector<PeerState> states(count * count, PeerState::usable);
  for (const Exception& exception : exceptions) {
    states[static_cast<std::size_t>(exception.device) * count + static_cast<std::size_t>(exception.peer)] =
        exception.state;
  }
  return states;
}

std::size_t count_lines(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

/// What `call` writes to the log.
std::string log_of(const std::function<void()>& call) {
  testing::internal::CaptureStderr();
  try {
    call();
  } catch (...) {
    static_cast<void>(testing::internal::GetCapturedStderr());
    throw;
  }
  return testing::internal::GetCapturedStderr();
}

void expect_no_memory_in_use() {
  Runtime& runtime = Runtime::get();
  for (const int device : all_devices()) EXPECT_EQ(runtime.part<Allocators>().of(device).bytes_active(), 0U);
  EXPECT_EQ(runtime.part<PinnedAllocator>().bytes_active(), 0U);
}

class ConnectivityTest : public testing::Test {
 protected:
  static Connectivity& boot(std::string_view topology = "island", int devices = 4) {
    virtual_devices::start(VirtualMachine::from_topology(topology, devices));
    return Runtime::get().part<Connectivity>();
  }
  void TearDown() override { virtual_devices::clear_faults(); }
};

class ConnectivityOfPreset : public testing::TestWithParam<const char*> {};

TEST_P(ConnectivityOfPreset, PairsAreDirectWhereTheTopologyHasPeerAccess) {
  const VirtualMachine machine = VirtualMachine::from_topology(GetParam(), 8);
  virtual_devices::start(machine);
  auto& connectivity = Runtime::get().part<Connectivity>();
  const auto has_link = [&](int device, int peer) {
    return machine.links.empty() ||
           machine.links[static_cast<std::size_t>(device)][static_cast<std::size_t>(peer)] !=
               VirtualLink::none;
  };
  for (const int device : all_devices()) {
    for (const int peer : all_devices()) {
      SCOPED_TRACE(testing::Message() << device << " to " << peer);
      const bool expected = device == peer || has_link(device, peer);
      EXPECT_EQ(connectivity.direct(device, peer, all_devices()), expected);
      EXPECT_EQ(connectivity.reason(device, peer).empty(), expected);
      EXPECT_EQ(connectivity.link(device, peer).state, expected ? PeerState::usable : PeerState::unreachable);
    }
  }
  expect_no_memory_in_use();
}

INSTANTIATE_TEST_SUITE_P(Presets, ConnectivityOfPreset,
                         testing::Values("island", "two-islands", "pcie", "pcie-p2p"),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_F(ConnectivityTest, ReportsLinksWithoutTesting) {
  Connectivity& connectivity = boot("two-islands");
  const std::uint64_t before = virtual_devices::operations_enqueued();
  EXPECT_EQ(connectivity.link(0, 0).link, LinkClass::self);
  EXPECT_EQ(connectivity.link(0, 1).link, LinkClass::nvlink);
  EXPECT_EQ(connectivity.link(0, 1).state, PeerState::untested);
  EXPECT_EQ(connectivity.link(0, 2).link, LinkClass::host_bridge);
  EXPECT_EQ(connectivity.link(0, 2).state, PeerState::unreachable);
  EXPECT_NE(connectivity.reason(0, 1).find("not tested"), std::string::npos);
  EXPECT_EQ(connectivity.reason(0, 2), "device 0 has no peer access to device 2");
  EXPECT_EQ(virtual_devices::operations_enqueued(), before);
}

TEST_F(ConnectivityTest, NothingIsTestedWhereNoPairReportsPeerAccess) {
  Connectivity& connectivity = boot("pcie");
  const std::uint64_t before = virtual_devices::operations_enqueued();
  connectivity.test(all_devices());
  EXPECT_EQ(virtual_devices::operations_enqueued(), before);
}

TEST_F(ConnectivityTest, AnswersAreCached) {
  Connectivity& connectivity = boot();
  EXPECT_TRUE(connectivity.direct(0, 1, all_devices()));
  const std::uint64_t after_first = virtual_devices::operations_enqueued();
  EXPECT_GT(after_first, 0U);
  for (const int device : all_devices()) {
    for (const int peer : all_devices()) EXPECT_TRUE(connectivity.direct(device, peer, all_devices()));
  }
  connectivity.test(all_devices());
  EXPECT_EQ(virtual_devices::operations_enqueued(), after_first);
}

TEST_F(ConnectivityTest, OnlyPairsOfTheTeamAreTested) {
  Connectivity& connectivity = boot();
  EXPECT_TRUE(connectivity.direct(0, 2, std::vector{0, 2}));
  for (const int device : all_devices()) {
    for (const int peer : all_devices()) {
      const bool in_team = device == peer || (device % 2 == 0 && peer % 2 == 0);
      EXPECT_EQ(connectivity.link(device, peer).state, in_team ? PeerState::usable : PeerState::untested);
    }
  }
}

TEST_F(ConnectivityTest, APairOutsideTheTeamIsTestedToo) {
  Connectivity& connectivity = boot();
  EXPECT_TRUE(connectivity.direct(1, 3, {}));
  EXPECT_EQ(connectivity.link(1, 0).state, PeerState::untested);
}

TEST_F(ConnectivityTest, MoreThanEightPeersAreHandled) {
  Connectivity& connectivity = boot("island", 12);
  connectivity.test(all_devices());
  EXPECT_EQ(states_of(connectivity), usable_except({}));
}

TEST_F(ConnectivityTest, ManyDevicesAreTestedInLittleMemory) {
  // More pairs than one round has.
  VirtualMachine machine = VirtualMachine::from_topology("island", 192);
  machine.memory_bytes = std::size_t{4} << 20;
  virtual_devices::start(machine);
  auto& connectivity = Runtime::get().part<Connectivity>();
  const Exception exceptions[] = {{3, 4, PeerState::corrupting}, {0, 191, PeerState::corrupting}};
  for (const auto& [device, peer, state] : exceptions) {
    virtual_devices::inject({.operation = Operation::copy,
                             .kind = FaultKind::corrupt,
                             .device = device,
                             .peer = peer,
                             .count = always});
  }
  const std::string log = log_of([&] { connectivity.test(all_devices()); });
  EXPECT_EQ(count_lines(log), 2U) << log;
  EXPECT_EQ(states_of(connectivity), usable_except({std::begin(exceptions), std::end(exceptions)}));
  expect_no_memory_in_use();
}

class CorruptLink : public ConnectivityTest, public testing::WithParamInterface<Operation> {};

TEST_P(CorruptLink, IsVetoedAndTheOthersAreUsed) {
  Connectivity& connectivity = boot();
  virtual_devices::inject(
      {.operation = GetParam(), .kind = FaultKind::corrupt, .device = 1, .peer = 2, .count = always});
  const std::string log = log_of([&] { EXPECT_FALSE(connectivity.direct(1, 2, all_devices())); });

  EXPECT_EQ(states_of(connectivity), usable_except({{1, 2, PeerState::corrupting}}));
  EXPECT_EQ(count_lines(log), 1U) << log;
  EXPECT_NE(log.find("from device 1 to device 2"), std::string::npos) << log;
  EXPECT_NE(connectivity.reason(1, 2).find("did not arrive intact"), std::string::npos)
      << connectivity.reason(1, 2);

  virtual_devices::clear_faults();
  EXPECT_FALSE(connectivity.direct(1, 2, all_devices())) << "the veto is for good";
  expect_no_memory_in_use();
}

INSTANTIATE_TEST_SUITE_P(Operations, CorruptLink, testing::Values(Operation::kernel, Operation::copy),
                         [](const auto& parameter) {
                           return parameter.param == Operation::kernel ? "kernel" : "copy";
                         });

TEST_F(ConnectivityTest, OneDamagedTransferIsEnoughForAVeto) {
  Connectivity& connectivity = boot("island", 2);
  virtual_devices::inject({.operation = Operation::copy, .kind = FaultKind::corrupt, .device = 0});
  static_cast<void>(log_of([&] { connectivity.test(all_devices()); }));
  EXPECT_EQ(states_of(connectivity), usable_except({{0, 1, PeerState::corrupting}}));
}

TEST_F(ConnectivityTest, ARefusedPeerIsUnreachable) {
  Connectivity& connectivity = boot();
  virtual_devices::inject({.operation = Operation::enable_peer, .device = 0, .peer = 3, .count = always});
  const std::string log = log_of([&] { EXPECT_FALSE(connectivity.direct(0, 3, all_devices())); });
  EXPECT_EQ(states_of(connectivity), usable_except({{0, 3, PeerState::unreachable}}));
  EXPECT_EQ(count_lines(log), 1U) << log;
  EXPECT_NE(log.find("from device 0 to device 3 was refused"), std::string::npos) << log;
  EXPECT_NE(connectivity.reason(0, 3).find("was refused"), std::string::npos);
}

TEST_F(ConnectivityTest, AKernelThatFailsInTheTestMakesItsDevicesPairsUnusable) {
  Connectivity& connectivity = boot("island", 3);
  virtual_devices::inject(
      {.operation = Operation::kernel, .kind = FaultKind::fail_asynchronously, .device = 1});
  const std::string log = log_of([&] { connectivity.test(all_devices()); });
  EXPECT_EQ(states_of(connectivity),
            usable_except({{1, 0, PeerState::corrupting}, {1, 2, PeerState::corrupting}}));
  EXPECT_EQ(count_lines(log), 2U) << log;
  EXPECT_NE(connectivity.reason(1, 0).find("(device 1: "), std::string::npos) << connectivity.reason(1, 0);
  EXPECT_NO_THROW(test::synchronize_all());
  expect_no_memory_in_use();
}

TEST_F(ConnectivityTest, ACopyThatFailsInTheTestMakesItsPairUnusable) {
  Connectivity& connectivity = boot("island", 3);
  // The first copy takes the patterns to the device, the second goes to device 0, the third to device 1.
  virtual_devices::inject(
      {.operation = Operation::copy, .kind = FaultKind::fail_asynchronously, .device = 2, .skip = 2});
  static_cast<void>(log_of([&] { connectivity.test(all_devices()); }));
  EXPECT_EQ(states_of(connectivity), usable_except({{2, 1, PeerState::corrupting}}));
}

TEST_F(ConnectivityTest, FailuresOfOtherWorkArePassedOn) {
  Connectivity& connectivity = boot();
  const Stream stream(2);
  std::atomic<bool> is_over = false;
  virtual_devices::launch(stream, "doomed", {},
                          [](std::span<void* const>) { throw std::runtime_error("on purpose"); });
  virtual_devices::launch(stream, "next", {}, [&is_over](std::span<void* const>) { is_over = true; });
  while (!is_over) std::this_thread::yield();

  EXPECT_TRUE(
      test::refuses([&] { connectivity.test(all_devices()); }, ErrorCode::device_failure, {"doomed"}));
  EXPECT_EQ(connectivity.link(0, 1).state, PeerState::untested);
  connectivity.test(all_devices());
  EXPECT_EQ(states_of(connectivity), usable_except({}));
  expect_no_memory_in_use();
}

TEST_F(ConnectivityTest, ARefusedLaunchIsAnErrorAndTheNextQuestionTests) {
  for (const Operation operation : {Operation::kernel, Operation::copy, Operation::create_stream}) {
    Connectivity& connectivity = boot();
    virtual_devices::inject({.operation = operation, .kind = FaultKind::fail, .device = 2});
    EXPECT_THROW(static_cast<void>(connectivity.direct(0, 2, all_devices())), Error);
    expect_no_memory_in_use();
    EXPECT_TRUE(connectivity.direct(0, 2, all_devices()));
    EXPECT_EQ(states_of(connectivity), usable_except({}));
  }
}

TEST_F(ConnectivityTest, WithoutMemoryThePairIsNotUsedUntilThereIsSome) {
  for (const Operation operation : {Operation::allocate_device, Operation::allocate_pinned}) {
    Connectivity& connectivity = boot();
    virtual_devices::inject({.operation = operation, .kind = FaultKind::fail, .count = always});
    const std::string log = log_of([&] { EXPECT_FALSE(connectivity.direct(0, 1, all_devices())); });
    EXPECT_EQ(count_lines(log), 1U) << log;
    EXPECT_NE(log.find("no memory"), std::string::npos) << log;
    EXPECT_EQ(connectivity.link(0, 1).state, PeerState::untested);
    expect_no_memory_in_use();

    virtual_devices::clear_faults();
    EXPECT_TRUE(connectivity.direct(0, 1, all_devices()));
  }
}

TEST_F(ConnectivityTest, ThreadsThatAskAtOnceTestOnce) {
  Connectivity& alone = boot();
  alone.test(all_devices());
  const std::uint64_t operations_of_one_test = virtual_devices::operations_enqueued();

  Connectivity& connectivity = boot();
  ASSERT_EQ(virtual_devices::operations_enqueued(), 0U);
  std::vector<std::thread> threads;
  std::atomic<int> direct = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&connectivity, &direct, i] {
      if (connectivity.direct(i % 4, (i + 1) % 4, all_devices())) ++direct;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(direct, 8);
  EXPECT_EQ(virtual_devices::operations_enqueued(), operations_of_one_test);
}

TEST_F(ConnectivityTest, TestsRightWhateverTheOrderOfTheStreams) {
  boot();
  test::for_each_interleaving(static_cast<int>(test::scaled(20)), [](std::uint64_t) {
    Connectivity connectivity(Runtime::get());
    connectivity.test(all_devices());
    EXPECT_EQ(states_of(connectivity), usable_except({}));
  });
}

}  // namespace
}  // namespace tutti
