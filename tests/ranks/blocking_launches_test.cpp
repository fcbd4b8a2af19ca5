// SPDX-License-Identifier: Apache-2.0
#include "backend/host/host_backend.hpp"
#include "ranks/lost_ranks.hpp"
#include "runtime.hpp"
#include "support/absent_backend.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/stream_gate.hpp"
#include "support/timing.hpp"
#include "transport/launching.hpp"
#include "tutti/communicator.hpp"
#include "tutti/tutti.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// Own members' kernels wait for one another. Where a launch returns only when its kernel has ended, the one
/// before would wait for ever for the next, were they launched one after another.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;
using transport::Launching;
using transport::LaunchProbe;

constexpr std::array devices{0, 1};

/// Before anything else of the process.
void block_launches() {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  if (auto* const machine = Runtime::get().virtual_machine()) machine->set_blocking_launches(true);
}

CommunicatorOptions two_members(TransportKind transport) {
  return {.devices = {Device(0), Device(1)}, .timeout = patient(20s), .transport = transport};
}

/// What each member has ones of is added, by rounds of every kind.
void expect_right_sums(Communicator& communicator) {
  const auto members = static_cast<float>(communicator.member_count());
  for (const std::int64_t size : {std::int64_t{7}, std::int64_t{100'000}, std::int64_t{2'000'000}}) {
    std::vector<Tensor> inputs;
    std::vector<Tensor> sums;
    for (const int device : devices) {
      inputs.push_back(ones({size}, {.device = Device(device)}));
      sums.push_back(zeros({size}, {.device = Device(device)}));
    }
    for (int times = 0; times < 3; ++times) communicator.all_reduce_add(inputs, sums);
    communicator.broadcast(sums, 1);
    communicator.barrier();
    for (const Tensor& sum : sums)
      EXPECT_EQ(sum.to_vector<float>(), std::vector<float>(static_cast<std::size_t>(size), members));
  }
  EXPECT_NO_THROW(communicator.check());
}

void expect_right_sums_of(int ranks) {
  for (const TransportKind transport : {TransportKind::automatic, TransportKind::staged}) {
    SCOPED_TRACE(name_of(transport));
    expect_all_right(ranks, [transport](Exchange& exchange) {
      block_launches();
      if (device_count() < 2) return;
      Communicator communicator(exchange, two_members(transport));
      EXPECT_EQ(Runtime::get().extension<LaunchProbe>().find(devices), Launching::from_own_threads);
      expect_right_sums(communicator);
    });
  }
}

TEST(BlockingLaunches, ComeFromAThreadForEachMemberOfAProcess) {
  expect_right_sums_of(1);
}

TEST(BlockingLaunches, MayWaitForThoseOfOtherProcesses) {
  expect_right_sums_of(2);
}

TEST(BlockingLaunches, DoNotKeepOneProcessesCollectivesFromTheirEnd) {
  expect_all_right(1, [](Exchange&) {
    block_launches();
    if (device_count() < 2) return;
    const Tensor tensor = ones({1'000'000}, {.device = 0});
    const std::vector<Tensor> copies = broadcast(tensor, {Device(0), Device(1)});
    EXPECT_EQ(reduce_add(copies, Device(0)).to_vector<float>(), std::vector<float>(1'000'000, 2.0F));
  });
}

TEST(BlockingLaunches, AreNotThereUnlessAskedFor) {
  expect_all_right(1, [](Exchange&) {
    if (device_count() < 2) return;
    EXPECT_EQ(Runtime::get().extension<LaunchProbe>().find(devices), Launching::from_one_thread);
  });
}

/// A call that a member's stream does not come to is ended, whoever else takes part.
TEST(BlockingLaunches, OrWhateverElseHoldsUpAMemberOfTheSameProcessEndsAtTheTimeout) {
  expect_all_right(1, [](Exchange& exchange) {
    if (device_count() < 2) return;
    CommunicatorOptions options = two_members(TransportKind::p2p);
    options.timeout = timeout;
    Communicator communicator(exchange, options);
    const Tensor first = some_tensor();
    const Tensor second = zeros({10'000}, {.device = 1});
    communicator.all_reduce_add({first, second}, {first, second});
    synchronize(0);
    const Stopwatch watch;
    StreamGate gate(current_stream(1));
    communicator.all_reduce_add({first, second}, {first, second});
    EXPECT_TRUE(
        refuses([] { synchronize(0); }, ErrorCode::timeout, {within_timeout, "all_reduce_add", "(#2)"}));
    EXPECT_LT(watch.elapsed(), timeout + slack);
    gate.open();
    EXPECT_TRUE(refuses([] { synchronize(1); }, ErrorCode::timeout, {within_timeout}));
  });
}

/// Launches block, and keep those of other threads waiting, too: what a kernel waits for never comes.
class HopelessBackend final : public AbsentBackend {
 public:
  void* allocate_pinned(std::size_t bytes) override {
    return std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  }
  void free_pinned(void* address) noexcept override { std::free(address); }
  StreamRef create_stream(int device, int) override { return {nullptr, device}; }
  void synchronize_stream(StreamRef) override {}
  void wait_in_kernel(StreamRef, backend::SharedFlag&, std::chrono::milliseconds,
                      backend::SharedFlag& outcome) override {
    backend::set_flag(outcome, 2);
    ++launches;
  }

  std::atomic<int> launches = 0;
};

TEST(LaunchProbe, TellsWhereKernelsCannotWaitForOneAnother) {
  auto made = std::make_unique<HopelessBackend>();
  const HopelessBackend& backend = *made;
  Runtime runtime(std::move(made), nullptr);
  LaunchProbe probe(runtime);
  EXPECT_EQ(probe.find(devices), Launching::impossible);
  const int launches = backend.launches;
  EXPECT_EQ(probe.find(devices), Launching::impossible);
  EXPECT_EQ(backend.launches, launches) << "it is found out once";
}

}  // namespace
}  // namespace tutti::test::ranks
