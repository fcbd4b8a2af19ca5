// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/stream_order.hpp"
#include "support/environment.hpp"
#include "support/values/random.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/device.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"
#include "tutti/virtual_devices.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// When copies of tensors run, and who waits for them.
namespace tutti {
namespace {

using test::HostArray;
using test::Placement;
using test::TestTensor;

std::vector<std::int32_t> constant(std::int32_t value, std::int64_t count) {
  return std::vector<std::int32_t>(static_cast<std::size_t>(count), value);
}

TEST(TensorCopyOrder, ComesAfterEarlierAndBeforeLaterWorkOfBothEnds) {
  const std::vector<Device> devices = test::first_devices(2);
  constexpr std::int64_t count = 3000;
  test::for_each_interleaving(30, [&](std::uint64_t) {
    const test::PooledStreams streams;
    for (const Device from : devices) {
      for (const Device to : devices) {
        const Tensor source = zeros({count}, {.dtype = DType::int32, .device = from});
        const Tensor target = zeros({count}, {.dtype = DType::int32, .device = to});
        test::keep_busy(current_stream(from.index()));
        source.fill_(1);
        test::keep_busy(current_stream(to.index()));
        target.fill_(2);
        target.copy_(source);
        const Tensor kept = target.to(DType::int32).contiguous();
        source.fill_(3);
        ASSERT_EQ(kept.to_vector<std::int32_t>(), constant(1, count));
        ASSERT_EQ(source.to_vector<std::int32_t>(), constant(3, count));
      }
    }
  });
}

TEST(TensorCopyOrder, TemporariesLiveUntilTheyHaveBeenUsed) {
  const std::vector<Device> devices = test::first_devices(2);
  const HostArray values = test::random_bits(DType::int32, {40, 30}, test::test_seed());
  test::for_each_interleaving(30, [&](std::uint64_t) {
    const test::PooledStreams streams;
    for (const Device from : devices) {
      for (const Device to : devices) {
        const TestTensor source(values, from, Placement::gapped);
        const auto target = TestTensor::poisoned(DType::int32, values.sizes, to, Placement::gapped);
        test::keep_busy(current_stream(from.index()));
        test::keep_busy(current_stream(to.index()));
        target.tensor().copy_(source, Blocking::no);
        // Whoever gets the temporaries' memory next spoils it.
        for (const Device device : devices) {
          for (int i = 0; i < 3; ++i)
            static_cast<void>(full({40, 30}, -1, {.dtype = DType::int32, .device = device}));
        }
        ASSERT_TRUE(target.holds(values));
      }
    }
  });
}

TEST(TensorCopyOrder, PinnedMemoryMayBeLetGoOfAtOnce) {
  constexpr std::int64_t count = 5000;
  test::for_each_interleaving(20, [&](std::uint64_t) {
    const test::PooledStreams streams;
    const Tensor target = empty({count}, {.dtype = DType::int32, .device = Device(0)});
    test::keep_busy(current_stream(0));
    target.copy_(full({count}, 7, {.dtype = DType::int32, .host_memory = HostMemory::pinned}), Blocking::no);
    // The next pinned tensor must not get memory that is still being read.
    const Tensor next = full({count}, -1, {.dtype = DType::int32, .host_memory = HostMemory::pinned});
    ASSERT_EQ(target.to_vector<std::int32_t>(), constant(7, count));
    // The same in the other direction: nobody may get memory that is still being written.
    test::keep_busy(current_stream(0));
    static_cast<void>(target.to(Device::host(), Blocking::no));
    const Tensor fresh = full({count}, 5, {.dtype = DType::int32, .host_memory = HostMemory::pinned});
    synchronize(0);
    ASSERT_EQ(fresh.to_vector<std::int32_t>(), constant(5, count));
  });
}

/// Copies of pageable memory go in pieces of a mebibyte.
TEST(TensorCopyOrder, LargePageableMemoryArrivesWhole) {
  constexpr std::int64_t mebibyte = 1 << 20;
  for (const std::int64_t bytes :
       {mebibyte - 1, mebibyte, mebibyte + 1, 2 * mebibyte, 2 * mebibyte + 3, 5 * mebibyte + 7}) {
    const HostArray values = test::random_bits(DType::uint8, {bytes}, test::test_seed());
    test::for_each_interleaving(3, [&](std::uint64_t) {
      const test::PooledStreams streams;
      const Tensor source = test::make_tensor(values, Device::host());
      const Tensor target = zeros({bytes}, {.dtype = DType::uint8, .device = Device(0)});
      test::keep_busy(current_stream(0));
      target.copy_(source);
      source.fill_(0);
      const TestTensor back =
          TestTensor::poisoned(DType::uint8, {bytes}, Device::host(), Placement::misaligned);
      back.tensor().copy_(target);
      ASSERT_TRUE(back.holds(values)) << bytes << " bytes";
    });
  }
}

TEST(TensorCopyOrder, StridedPinnedSourcesAreGatheredAtTheCall) {
  constexpr std::int64_t rows = 500;
  test::for_each_interleaving(10, [&](std::uint64_t) {
    const test::PooledStreams streams;
    const Tensor source = full({rows, 4}, 7, {.dtype = DType::int32, .host_memory = HostMemory::pinned});
    const Tensor target = empty({rows, 2}, {.dtype = DType::int32, .device = Device(0)});
    test::keep_busy(current_stream(0));
    target.copy_(source.narrow(1, 1, 2), Blocking::no);
    source.fill_(-1);
    ASSERT_EQ(target.to_vector<std::int32_t>(), constant(7, rows * 2));
  });
}

/// Holds a virtual stream until opened. Destroyed open, so that a failed test does not hang.
class Gate {
 public:
  explicit Gate(const Stream& stream) {
    virtual_devices::launch(stream, "gate", {},
                            [opened = opened_.get_future().share()](auto) { opened.wait(); });
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() { open(); }
  void open() {
    if (!std::exchange(is_open_, true)) opened_.set_value();
  }

 private:
  std::promise<void> opened_;
  bool is_open_ = false;
};

class TensorCopyBlocking : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::on_virtual_devices())
      GTEST_SKIP() << "only a virtual stream can be held for as long as a test wants";
  }
  void TearDown() override { test::synchronize_all(); }
};

TEST_F(TensorCopyBlocking, PinnedCopiesReturnBeforeTheyRun) {
  const Tensor pinned = full({100}, 7, {.dtype = DType::int32, .host_memory = HostMemory::pinned});
  const Tensor back = full({100}, 0, {.dtype = DType::int32, .host_memory = HostMemory::pinned});
  const Tensor target = zeros({100}, {.dtype = DType::int32, .device = Device(0)});
  Gate gate(current_stream(0));
  target.copy_(pinned, Blocking::no);  // would never return if it waited
  back.copy_(target, Blocking::no);
  EXPECT_EQ(back.to_vector<std::int32_t>(), constant(0, 100));
  gate.open();
  synchronize(0);
  EXPECT_EQ(back.to_vector<std::int32_t>(), constant(7, 100));
}

TEST_F(TensorCopyBlocking, CopiesBetweenDevicesReturnBeforeTheyRun) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  const Tensor source = full({100}, 7, {.dtype = DType::int32, .device = Device(0)});
  const Tensor target = zeros({100}, {.dtype = DType::int32, .device = Device(1)});
  Gate gate(current_stream(0));
  target.copy_(source, Blocking::yes);
  gate.open();
  EXPECT_EQ(target.to_vector<std::int32_t>(), constant(7, 100));
}

TEST_F(TensorCopyBlocking, OthersWaitForTheirStream) {
  const Tensor pageable = zeros({100}, {.dtype = DType::int32});
  const Tensor pinned = zeros({100}, {.dtype = DType::int32, .host_memory = HostMemory::pinned});
  const Tensor target = full({100}, 7, {.dtype = DType::int32, .device = Device(0)});
  const std::vector<std::function<void()>> waiting{
      [&] { target.copy_(pinned, Blocking::yes); },   [&] { pinned.copy_(target, Blocking::yes); },
      [&] { target.copy_(pageable, Blocking::no); },  [&] { pageable.copy_(target, Blocking::no); },
      [&] { target.copy_(pageable, Blocking::yes); }, [&] { static_cast<void>(target.to_bytes()); },
  };
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    Gate gate(current_stream(0));
    std::atomic<bool> returned = false;
    std::thread caller([&] {
      waiting[i]();  // a new thread's current stream is the default one, as here
      returned = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(returned) << i;
    gate.open();
    caller.join();
  }
}

TEST_F(TensorCopyBlocking, WaitsForNoOtherStream) {
  const Tensor target = full({100}, 7, {.dtype = DType::int32, .device = Device(0)});
  synchronize(0);
  Gate gate(current_stream(0));
  const StreamGuard elsewhere{Stream(0)};
  EXPECT_EQ(target.to_vector<std::int32_t>(), constant(7, 100));
  target.copy_(zeros({100}, {.dtype = DType::int32}));
  EXPECT_EQ(target.to_vector<std::int32_t>(), constant(0, 100));
}

}  // namespace
}  // namespace tutti
