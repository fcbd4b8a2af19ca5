// SPDX-License-Identifier: Apache-2.0
#include "tutti/managed_range.hpp"

#include "support/errors.hpp"
#include "support/stream_gate.hpp"
#include "tutti/collectives.hpp"
#include "tutti/device.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"
#include "tutti/virtual_devices.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::refuses;
using test::StreamGate;
using virtual_devices::ManagedRange;
using virtual_devices::VirtualMachine;

float last_of(const Tensor& tensor) {
  const Tensor host = tensor.to(Device::host());
  return static_cast<const float*>(host.data())[host.numel() - 1];
}

class ManagedRanges : public testing::Test {
 protected:
  void SetUp() override { virtual_devices::start(VirtualMachine::from_topology("pcie", 2)); }

  /// Views all numbers, or some, as a tensor of a device.
  Tensor on(Device device, std::size_t first = 0, std::size_t count = 64) {
    return Tensor(
        TensorView(numbers_.data() + first, DType::float32, {static_cast<std::int64_t>(count)}, device));
  }
  [[nodiscard]] ManagedRange range_of(std::size_t first, std::size_t count) {
    return {numbers_.data() + first, count * sizeof(float)};
  }
  /// Returns what a kernel reads at the first number.
  float read_by_kernel(Device device) {
    float value = -1;
    const virtual_devices::Access access{numbers_.data(), sizeof(float), virtual_devices::Access::Use::read};
    const Stream stream(device);
    virtual_devices::launch(stream, "read", std::span(&access, 1), [&](std::span<void* const> addresses) {
      value = *static_cast<const float*>(addresses[0]);
    });
    stream.synchronize();
    return value;
  }

  std::vector<float> numbers_ = std::vector<float>(64, 3.0F);
};

TEST_F(ManagedRanges, AreMemoryOfEveryDeviceAndOfTheHost) {
  const ManagedRange range = range_of(0, 64);
  EXPECT_EQ(read_by_kernel(0), 3.0F);
  on(1).fill_(5);
  synchronize(1);
  EXPECT_EQ(numbers_[63], 5.0F);
  numbers_[0] = 7;
  EXPECT_EQ(read_by_kernel(1), 7.0F);
}

TEST_F(ManagedRanges, AreOperandsOfCollectives) {
  const ManagedRange range = range_of(0, 32);
  EXPECT_EQ(last_of(broadcast(on(0, 0, 32), {0, 1})[1]), 3.0F);
  EXPECT_EQ(last_of(scatter(on(Device::host()), {0, 1})[1]), 3.0F) << "half of the host's tensor is managed";
}

TEST_F(ManagedRanges, EndWithTheLastThatCoversThem) {
  std::optional<ManagedRange> whole(range_of(0, 64));
  std::optional<ManagedRange> same(range_of(0, 64));
  ManagedRange moved = std::move(*whole);
  whole.reset();
  EXPECT_EQ(read_by_kernel(0), 3.0F);
  { const ManagedRange last = std::move(moved); }
  EXPECT_EQ(read_by_kernel(0), 3.0F);
  same.reset();
  EXPECT_TRUE(refuses([&] { read_by_kernel(0); }, ErrorCode::device_failure,
                      {"neither device memory nor pinned memory"}));
}

TEST_F(ManagedRanges, AreRefusedWhereTheyOverlapInPart) {
  const ManagedRange range = range_of(8, 8);
  for (const auto& [first, count] :
       std::vector<std::pair<std::size_t, std::size_t>>{{0, 9}, {15, 2}, {0, 64}, {8, 4}, {12, 4}}) {
    EXPECT_TRUE(refuses([&] { static_cast<void>(range_of(first, count)); }, ErrorCode::invalid_argument,
                        {"ManagedRange", "expected memory that overlaps with none of the devices"}));
  }
  const ManagedRange beside = range_of(0, 8);
}

TEST_F(ManagedRanges, AreRefusedWhereTheProgramHasNoMemory) {
  const auto is_refused = [](void* address, std::size_t bytes) {
    return refuses([&] { static_cast<void>(ManagedRange(address, bytes)); }, ErrorCode::invalid_argument,
                   {"ManagedRange: " + std::to_string(bytes) + " bytes"});
  };
  EXPECT_TRUE(is_refused(numbers_.data(), 0));
  EXPECT_TRUE(is_refused(nullptr, 8));
  EXPECT_TRUE(is_refused(numbers_.data(), std::numeric_limits<std::size_t>::max()));
  EXPECT_TRUE(is_refused(zeros({8}, {.device = Device(0)}).data(), 8));
  EXPECT_TRUE(
      is_refused(empty({8}, {.device = Device::host(), .host_memory = HostMemory::pinned}).data(), 8));
}

TEST_F(ManagedRanges, AreCopiedInStreamOrder) {
  const ManagedRange range = range_of(0, 64);
  const Stream stream = current_stream(0);
  StreamGate gate(stream);
  on(0).fill_(5);
  const Tensor target = zeros({64}, {.device = Device(0)});
  target.copy_(on(0), Blocking::no);
  numbers_.assign(64, 9.0F);
  gate.open_soon();
  EXPECT_EQ(last_of(target), 5.0F);
}

TEST_F(ManagedRanges, AreCopiedWithMemoryBesideThem) {
  const ManagedRange range = range_of(0, 32);
  const Tensor target = zeros({64}, {.device = Device(0)});
  target.copy_(on(Device::host()));
  EXPECT_EQ(last_of(target), 3.0F);
  EXPECT_EQ(last_of(target.narrow(0, 0, 32)), 3.0F);
  on(Device::host()).copy_(target.fill_(5));
  EXPECT_EQ(numbers_, std::vector<float>(64, 5.0F));
}

TEST_F(ManagedRanges, OutliveTheirDevices) {
  const ManagedRange range = range_of(0, 64);
  virtual_devices::start(VirtualMachine::from_topology("island", 2));
  const ManagedRange next = range_of(8, 8);
  EXPECT_TRUE(refuses([&] { read_by_kernel(0); }, ErrorCode::device_failure, {"neither device memory"}));
}

}  // namespace
}  // namespace tutti
