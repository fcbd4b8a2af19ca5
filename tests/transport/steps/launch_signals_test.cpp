// SPDX-License-Identifier: Apache-2.0
#include "device/runtime.hpp"
#include "stream/stream_access.hpp"
#include "stream/thread_streams.hpp"
#include "support/errors.hpp"
#include "support/machines/machines.hpp"
#include "support/stream_gate.hpp"
#include "support/values/test_tensor.hpp"
#include "transport/launch/launch.hpp"
#include "transport/select/select.hpp"
#include "transport/steps/signals.hpp"
#include "transport/threads/launch_helpers.hpp"
#include "tutti/collectives.hpp"
#include "tutti/stream.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// Launches that order their lanes by signals, as the environment of this program asks for.
namespace tutti::transport {
namespace {

using namespace std::chrono_literals;
using backend::SignalSupport;
using test::holds;
using test::InjectedFault;
using test::StreamGate;
using virtual_devices::Operation;

/// More than there are flags for at a time.
constexpr int many = 300;
constexpr std::int64_t count = 1000;

Tensor filled(std::int32_t value, int device) {
  Tensor tensor = full({count}, value, {.dtype = DType::int32, .device = device});
  synchronize(device);
  return tensor;
}

void synchronize_all_four() {
  for (int device = 0; device < 4; ++device) synchronize(device);
}

class LaunchSignals : public testing::Test {
 protected:
  void SetUp() override { test::boot("island", 4, std::size_t{1} << 28U); }
};

/// A plan with the work on lane 0, which waits for some lanes and is waited for by others.
Plan star(std::size_t before, std::size_t after) {
  Plan plan;
  for (std::size_t lane = 0; lane <= std::max(before, after); ++lane)
    plan.lane_devices.push_back(static_cast<int>(lane));
  plan.star.emplace();
  for (std::size_t lane = 1; lane <= before; ++lane) plan.star->before.push_back(static_cast<LaneId>(lane));
  for (std::size_t lane = 1; lane <= after; ++lane) plan.star->after.push_back(static_cast<LaneId>(lane));
  return plan;
}

TEST(SignalChoiceOfAPlan, IsTheEnvironmentsOrWhereItPays) {
  const auto everywhere = [](int, int) { return true; };
  const auto choose = [&](const Plan& plan, SignalChoice choice,
                          SignalSupport support = SignalSupport::cheaper) {
    return choose_signals(plan, choice, support, everywhere);
  };
  EXPECT_EQ(choose(star(7, 7), SignalChoice::automatic), SignalUse::with_help);
  EXPECT_EQ(choose(star(4, 4), SignalChoice::automatic), SignalUse::with_help);
  EXPECT_EQ(choose(star(0, 7), SignalChoice::automatic), SignalUse::with_help);
  EXPECT_EQ(choose(star(3, 3), SignalChoice::automatic), SignalUse::never);
  EXPECT_EQ(choose(star(0, 6), SignalChoice::automatic), SignalUse::never);
  EXPECT_EQ(choose(star(7, 7), SignalChoice::automatic, SignalSupport::available), SignalUse::never);
  EXPECT_EQ(choose(star(7, 7), SignalChoice::automatic, SignalSupport::none), SignalUse::never);
  EXPECT_EQ(choose(star(7, 7), SignalChoice::off), SignalUse::never);
  EXPECT_EQ(choose(star(1, 0), SignalChoice::on), SignalUse::always);
  EXPECT_EQ(choose(star(0, 1), SignalChoice::on, SignalSupport::available), SignalUse::always);
  EXPECT_EQ(choose(star(0, 1), SignalChoice::on, SignalSupport::none), SignalUse::never);
  EXPECT_EQ(choose(star(0, 0), SignalChoice::on), SignalUse::never);
  EXPECT_EQ(choose(star(16, 16), SignalChoice::on), SignalUse::always);
  EXPECT_EQ(choose(star(17, 17), SignalChoice::on), SignalUse::never);

  Plan shared = star(7, 7);
  shared.lane_devices[3] = 2;
  EXPECT_EQ(choose(shared, SignalChoice::automatic), SignalUse::never);
  EXPECT_EQ(choose(shared, SignalChoice::on), SignalUse::always);
  Plan without = star(7, 7);
  without.star.reset();
  EXPECT_EQ(choose(without, SignalChoice::on), SignalUse::never);
  for (const int far : {1, 7}) {
    const auto but_one = [far](int home, int device) { return home == 0 && device != far; };
    EXPECT_EQ(choose_signals(star(7, 0), SignalChoice::on, SignalSupport::cheaper, but_one),
              SignalUse::never);
    EXPECT_EQ(choose_signals(star(0, 7), SignalChoice::on, SignalSupport::cheaper, but_one),
              SignalUse::never);
  }
}

TEST_F(LaunchSignals, AreForPlansWithAllWorkOnOneLane) {
  const auto explained = [](Collective collective, std::size_t bytes) {
    return explain({.collective = collective, .bytes = bytes, .options = {.transport = TransportKind::p2p}});
  };
  const auto has_signals = [](const std::string& text) {
    return text.find("by signals") != std::string::npos;
  };
  for (const Collective collective :
       {Collective::broadcast, Collective::reduce, Collective::scatter, Collective::gather}) {
    EXPECT_TRUE(has_signals(explained(collective, 4096))) << explained(collective, 4096);
  }
  constexpr std::size_t split = 64 << 20U;
  EXPECT_FALSE(has_signals(explained(Collective::broadcast, split)))
      << explained(Collective::broadcast, split);
  test::boot("pcie-p2p", 4);
  EXPECT_FALSE(has_signals(explained(Collective::broadcast, 4096)));
}

TEST_F(LaunchSignals, OfALaunchUnderWayAreNobodyElses) {
  const Tensor source = filled(1, 0);
  const Tensor other_source = filled(2, 2);
  const Tensor late = filled(0, 1);
  const Tensor other = filled(0, 3);
  const Stream held(1);
  const StreamGuard current(held);
  StreamGate gate(held);
  late.fill_(99);
  broadcast(source, {late});  // after the fill
  for (int call = 0; call < many; ++call) broadcast(other_source, {other});
  synchronize(3);
  EXPECT_TRUE(holds(other, 2));
  std::this_thread::sleep_for(20ms);  // as long as a wrong order may need
  gate.open();
  synchronize_all_four();
  EXPECT_TRUE(holds(late, 1));
}

/// A failed launch's lanes may signal at any time.
TEST_F(LaunchSignals, OfLaunchesThatFailedAreNobodysAnyMore) {
  const Tensor source = filled(1, 0);
  const Tensor out = filled(0, 1);
  const Tensor addend = filled(5, 2);
  const Stream held(1);
  const StreamGuard current(held);
  for (int call = 0; call < many; ++call) {
    StreamGate gate(held);
    out.fill_(call);
    {
      const InjectedFault fault({.operation = Operation::kernel});
      EXPECT_TRUE(test::refuses([&] { broadcast(source, {out}); }, ErrorCode::device_failure, {"injected"}));
    }
    const Tensor sum = reduce_add({out, addend}, Device(2));
    gate.open();
    synchronize(2);
    ASSERT_TRUE(holds(sum, call + 5));
  }
  broadcast(source, {out});
  synchronize(1);
  EXPECT_TRUE(holds(out, 1));
}

TEST_F(LaunchSignals, OutliveTheWorkThatUsesThem) {
  const Stream held(1);
  StreamGate gate(held);
  auto signals = std::make_unique<Signals>(Runtime::get());
  const auto flags = signals->take(1);
  ASSERT_TRUE(flags);
  Runtime::get().backend().signal(StreamAccess::ref(held), *flags->done, flags->value);
  const test::StreamFlag work_is_over(held);
  EXPECT_FALSE(work_is_over.is_set());
  gate.open_soon();
  signals.reset();
  EXPECT_TRUE(work_is_over.is_set());
}

TEST_F(LaunchSignals, OrderWorkThatIsQueuedWhenTheMachineGoes) {
  const Stream held(1);
  StreamGate gate(held);
  std::int32_t received = 0;
  {
    const StreamGuard current(held);
    const Tensor source = filled(1, 0);
    const Tensor out = full({count}, 0, {.dtype = DType::int32, .device = 1});
    broadcast(source, {out});
    const std::array accesses{virtual_devices::Access{out.data(), out.nbytes()}};
    virtual_devices::launch(held, "reads", accesses, [&received](std::span<void* const> addresses) {
      received = static_cast<const std::int32_t*>(addresses[0])[count - 1];
    });
  }
  gate.open_soon();
  virtual_devices::start(virtual_devices::VirtualMachine::from_topology("island", 4));
  EXPECT_EQ(received, 1);
}

TEST_F(LaunchSignals, AreUsedInBurstsWhereTheyNeedHelp) {
  const std::vector<Tensor> tensors{filled(7, 0), filled(0, 1), filled(0, 2), filled(0, 3)};
  Runtime& runtime = Runtime::get();
  Problem problem;
  problem.transport = TransportKind::p2p;
  problem.lane_devices = {0, 1, 2, 3};
  problem.homes = problem.ready = {0, 1, 2, 3};
  problem.root = 0;
  problem.places = {{.buffer = 1}, {.buffer = 2}, {.buffer = 3}};
  problem.flows = {{.source = {.buffer = 0}, .targets = {.first = 0, .count = 3}, .row_bytes = 4 * count}};
  Plan plan = select(runtime, problem);
  ASSERT_EQ(plan.signals, SignalUse::always);
  plan.signals = SignalUse::with_help;
  const auto shared_plan = std::make_shared<const Plan>(std::move(plan));
  const auto call = [&] {
    Operands operands;
    for (const Tensor& tensor : tensors) {
      operands.addresses.push_back(static_cast<std::byte*>(tensor.data()));
      operands.lanes.push_back(current_stream_ref(runtime, tensor.device().index()));
      operands.storages.push_back(nullptr);
    }
    launch(runtime, shared_plan, operands, {});
  };
  const auto uses_signals = [&] {
    const InjectedFault fault({.operation = Operation::signal});
    try {
      call();
    } catch (const Error&) {
      return true;
    }
    return false;
  };
  const auto within = [](const auto& condition) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  };
  EXPECT_FALSE(uses_signals()) << "though nobody has been called to help";
  EXPECT_TRUE(within([&] {
    for (int i = 0; i < 2; ++i) const LaunchHelpers::Lease lease(runtime.part<LaunchHelpers>(), 2);
    return uses_signals();
  }));
  // Wherever a signal fails, be it on a helper's thread, the next call is right.
  for (std::uint64_t passed = 0; passed < 8; ++passed) {
    tensors[0].fill_(static_cast<double>(passed));
    for (int i = 0; i < 2; ++i) const LaunchHelpers::Lease lease(runtime.part<LaunchHelpers>(), 2);
    try {
      const InjectedFault fault({.operation = Operation::signal, .skip = passed});
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::device_failure);
    }
    call();
    synchronize_all_four();
    for (const Tensor& tensor : tensors) EXPECT_TRUE(holds(tensor, static_cast<std::int32_t>(passed)));
  }
  tensors[0].fill_(7);
  for (int i = 0; i < many; ++i) call();
  synchronize_all_four();
  for (const Tensor& tensor : tensors) EXPECT_TRUE(holds(tensor, 7));
  EXPECT_TRUE(within([&] { return !uses_signals(); })) << "though all helpers should sleep by now";
}

}  // namespace
}  // namespace tutti::transport
