// SPDX-License-Identifier: Apache-2.0
#include "tutti/sync_debug.hpp"

#include "support/collectives/compiled_reduction.hpp"
#include "support/errors.hpp"
#include "tutti/tutti.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <dlpack/dlpack.h>
#include <gtest/gtest.h>

/// Calls that block the thread are announced, or refused, and no others.
namespace tutti {
namespace {

using test::refuses;

class SyncDebug : public testing::Test {
 protected:
  void SetUp() override {
    init();
    device_ = ones({1000}, {.device = 0});
    pinned_ = zeros({1000}, {.host_memory = HostMemory::pinned});
    pageable_ = zeros({1000});
    synchronize(0);
  }
  void TearDown() override { set_sync_debug_mode(SyncDebugMode::none); }

  /// The call is let pass without a word, is announced by one line with its name, and is refused by its name.
  void expect_blocking(const std::string& name, const std::function<void()>& call) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(lines_of(SyncDebugMode::none, call).empty());
    const std::string lines = lines_of(SyncDebugMode::warn, call);
    EXPECT_NE(lines.find(name + ": the call blocks the calling thread"), std::string::npos) << lines;
    EXPECT_EQ(lines.find('\n'), lines.size() - 1) << "one line, but: " << lines;
    expect_refused(name, call);
  }
  static void expect_refused(const std::string& name, const std::function<void()>& call) {
    set_sync_debug_mode(SyncDebugMode::error);
    EXPECT_TRUE(refuses(call, ErrorCode::unsupported, {name + ": the call would block the calling thread"}));
    set_sync_debug_mode(SyncDebugMode::none);
  }
  static std::string lines_of(SyncDebugMode mode, const std::function<void()>& call) {
    set_sync_debug_mode(mode);
    testing::internal::CaptureStderr();
    try {
      call();
    } catch (...) {
      static_cast<void>(testing::internal::GetCapturedStderr());
      throw;
    }
    set_sync_debug_mode(SyncDebugMode::none);
    return testing::internal::GetCapturedStderr();
  }

  Tensor device_;
  Tensor pinned_;
  Tensor pageable_;
};

TEST_F(SyncDebug, HasThreeModesWithNames) {
  EXPECT_EQ(get_sync_debug_mode(), SyncDebugMode::none);
  for (const SyncDebugMode mode : {SyncDebugMode::error, SyncDebugMode::warn, SyncDebugMode::none}) {
    set_sync_debug_mode(mode);
    EXPECT_EQ(get_sync_debug_mode(), mode);
    set_sync_debug_mode(SyncDebugMode::none);
    set_sync_debug_mode(name_of(mode));
    EXPECT_EQ(get_sync_debug_mode(), mode);
  }
  EXPECT_EQ(name_of(SyncDebugMode::none), "default");
  set_sync_debug_mode("warn");
  EXPECT_TRUE(refuses([] { set_sync_debug_mode(static_cast<SyncDebugMode>(7)); }, ErrorCode::invalid_argument,
                      {"set_sync_debug_mode: mode is 7, expected one of SyncDebugMode"}));
  EXPECT_TRUE(refuses([] { set_sync_debug_mode("Error"); }, ErrorCode::invalid_argument,
                      {"set_sync_debug_mode", "mode is \"Error\"", "expected default, warn or error"}));
  EXPECT_EQ(get_sync_debug_mode(), SyncDebugMode::warn);
}

TEST_F(SyncDebug, TellsOfWaitsForDevicesStreamsAndEvents) {
  const Stream stream(0);
  const Event event = stream.record_event();
  expect_blocking("synchronize", [] { synchronize(0); });
  expect_blocking("Stream::synchronize", [&] { stream.synchronize(); });
  expect_blocking("Event::synchronize", [&] { event.synchronize(); });
}

TEST_F(SyncDebug, TellsOfCopiesThatBlock) {
  const std::vector<float> values(1000, 3.0F);
  expect_blocking("Tensor::copy_", [&] { pinned_.copy_(device_); });
  expect_blocking("Tensor::copy_", [&] { device_.copy_(pinned_); });
  expect_blocking("Tensor::copy_", [&] { pageable_.copy_(device_, Blocking::no); });
  expect_blocking("Tensor::copy_", [&] { device_.copy_(pageable_, Blocking::no); });
  expect_blocking("Tensor::copy_", [&] { static_cast<void>(device_.to(Device::host())); });
  expect_blocking("Tensor::copy_", [&] { static_cast<void>(device_.to_vector<float>()); });
  expect_blocking("Tensor::copy_", [&] { static_cast<void>(tutti::tensor(values, {1000}, {.device = 0})); });
  expect_blocking("gather", [&] { static_cast<void>(gather({device_, device_}, 0, Device::host())); });
  expect_blocking("gather", [&] { gather({device_}, pinned_, 0); });
}

TEST_F(SyncDebug, TellsOfImportsThatWaitForTheirProducer) {
  const Stream stream(0);
  expect_blocking("from_dlpack", [&] {
    DLManagedTensor* const exported = to_dlpack(pageable_);
    try {
      static_cast<void>(from_dlpack(exported, &stream));
    } catch (const Error&) {
      exported->deleter(exported);
      throw;
    }
  });
}

TEST_F(SyncDebug, TellsOfTensorsThatAreShared) {
  expect_blocking("SharedTensor", [&] { const SharedTensor shared(device_); });
}

TEST_F(SyncDebug, TellsOfCallablesThatAreWarmedUp) {
  expect_blocking("make_graphed_callables", [&] {
    static_cast<void>(make_graphed_callables(
        [](const std::vector<Tensor>& inputs) { return std::vector<Tensor>{zeros_like(inputs.front())}; },
        {device_}));
  });
}

TEST_F(SyncDebug, TellsOfFunctionsThatAreCompiledAndLoaded) {
  if (!test::can_compile()) GTEST_SKIP() << "nothing can be compiled here";
  const std::string name = "the first use of a compiled function on a device, which has to load it";
  const auto expect_blocking_once = [&](const std::function<void()>& call) {
    expect_refused(name, call);
    const std::string lines = lines_of(SyncDebugMode::warn, call);
    EXPECT_NE(lines.find(name + ": the call blocks the calling thread"), std::string::npos) << lines;
    EXPECT_EQ(lines.find('\n'), lines.size() - 1) << "one line, but: " << lines;
    EXPECT_EQ(lines_of(SyncDebugMode::warn, call), "");
  };
  const JitFunction sum = create_jit_fn("template <typename T> T told_sum(T x, T y) { return x + y; }");
  expect_blocking_once([&] { sum.prepare({device_, device_}); });
  EXPECT_EQ(lines_of(SyncDebugMode::warn, [&] { sum({device_, device_}); }), "");
  const ReduceOp larger =
      ReduceOp::compiled("template <class T> T told_larger(T a, T b) { return a < b ? b : a; }");
  expect_blocking_once([&] { static_cast<void>(reduce({device_, device_}, larger, Device(0))); });
}

TEST_F(SyncDebug, TellsOfMemoryThatGoesBackToItsDevice) {
  for (const SyncDebugMode mode : {SyncDebugMode::warn, SyncDebugMode::error}) {
    void* const memory = device_malloc(1000, 0);
    const std::string lines = lines_of(mode, [&] { device_free(memory, 0); });
    EXPECT_NE(lines.find("device_free: the call blocks the calling thread"), std::string::npos) << lines;
  }
}

TEST_F(SyncDebug, TellsOfAllocatorsThatWait) {
  expect_blocking("empty_cache", [] { empty_cache(); });
  expect_blocking("empty_pinned_cache", [] { empty_pinned_cache(); });
  expect_refused("an allocation that found no memory free", [] {
    static_cast<void>(empty({std::int64_t{1} << 50}, {.dtype = DType::uint8, .device = 0}));
  });
}

TEST_F(SyncDebug, TellsOfTheFirstUseOfDevicesTogether) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices, found " << device_count();
  const auto use = [&] {
    static_cast<void>(broadcast(device_, {Device(0), Device(1)}, {.transport = TransportKind::p2p}));
  };
  if (!can_device_access_peer(0, 1))
    GTEST_SKIP() << "needs peer access, which is what is tested at first use";
  expect_refused("the first call that moves data between these devices, which tests how they are connected",
                 use);
  use();
  EXPECT_EQ(lines_of(SyncDebugMode::warn, use), "") << "the second call does not wait";
}

TEST_F(SyncDebug, TellsOfCommunicators) {
  const auto make = [] { const Communicator alone(CommunicatorOptions{.devices = {Device(0)}}); };
  const std::string lines = lines_of(SyncDebugMode::warn, make);
  EXPECT_NE(lines.find("Communicator: the call blocks"), std::string::npos) << lines;
  EXPECT_NE(lines.find("the end of a Communicator: the call blocks"), std::string::npos) << lines;
  expect_refused("Communicator", make);
}

TEST_F(SyncDebug, TellsOfVirtualMachinesThatAreStarted) {
  if (backend_kind() == BackendKind::cuda) GTEST_SKIP() << "these are GPUs";
  const auto seed = virtual_devices::interleaving_seed();
  expect_blocking("virtual_devices::set_interleaving_seed",
                  [&] { virtual_devices::set_interleaving_seed(seed); });
  for (Tensor* const tensor : {&device_, &pinned_, &pageable_}) *tensor = Tensor();
  expect_blocking("virtual_devices::start", [] { virtual_devices::start({}); });
  virtual_devices::set_interleaving_seed(seed);
}

TEST_F(SyncDebug, LetsCallsThatQueueWorkPass) {
  const Stream stream(0);
  Event event;
  set_sync_debug_mode(SyncDebugMode::error);
  EXPECT_NO_THROW({
    pinned_.copy_(device_, Blocking::no);
    device_.copy_(pinned_, Blocking::no);
    const Tensor more = ones({1000}, {.device = 0});
    more.copy_(device_);
    event.record(stream);
    stream.wait_event(event);
    static_cast<void>(stream.query());
    static_cast<void>(event.query());
    gather({device_}, pinned_, 0, {.blocking = Blocking::no});
    static_cast<void>(memory_allocated(0));
  });
  set_sync_debug_mode(SyncDebugMode::none);
  synchronize(0);
}

TEST_F(SyncDebug, RefusesBeforeAnythingIsQueued) {
  if (backend_kind() == BackendKind::cuda) GTEST_SKIP() << "only virtual devices count what is queued";
  const std::uint64_t before = virtual_devices::operations_enqueued();
  expect_refused("Tensor::copy_", [&] { pageable_.copy_(device_); });
  expect_refused("gather", [&] { static_cast<void>(gather({device_, device_}, 0, Device::host())); });
  EXPECT_EQ(virtual_devices::operations_enqueued(), before);
}

}  // namespace
}  // namespace tutti
