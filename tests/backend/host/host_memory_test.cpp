// SPDX-License-Identifier: Apache-2.0
#include "backend/host/host_machine.hpp"

#include <cstring>

#include <gmock/gmock.h>

namespace tutti::backend {
namespace {

using testing::HasSubstr;

class HostMemory : public HostMachine {};
using HostMemoryDeathTest = HostMemory;

TEST_F(HostMemoryDeathTest, FaultsWhenTheHostReadsDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto* value = upload<int>(0, {1, 2, 3});
  EXPECT_DEATH(
      {
        const volatile int read = *static_cast<const volatile int*>(value);
        static_cast<void>(read);
      },
      "");
}

TEST_F(HostMemoryDeathTest, FaultsWhenTheHostWritesDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto* value = allocate<int>(0, 1);
  EXPECT_DEATH(*static_cast<volatile int*>(value) = 1, "");
}

TEST_F(HostMemory, KeepsWhatWasCopiedIntoIt) {
  const std::vector<int> values{3, 1, 4, 1, 5};
  const int* address = upload(2, values);
  EXPECT_EQ(download(2, address, values.size()), values);
}

TEST_F(HostMemory, IsAlignedTo512Bytes) {
  for (const std::size_t bytes : {1U, 3U, 511U, 512U, 513U, 5000U}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(machine().allocate_device(0, bytes)) % 512, 0U) << bytes;
    void* pinned = machine().allocate_pinned(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pinned) % 512, 0U) << bytes;
    machine().free_pinned(pinned);
  }
}

TEST_F(HostMemory, IsBoundedPerDevice) {
  EXPECT_EQ(machine().memory_info(0).total, memory_bytes);
  void* half = machine().allocate_device(0, memory_bytes / 2);
  ASSERT_NE(half, nullptr);
  EXPECT_EQ(machine().memory_info(0).free, memory_bytes / 2);
  EXPECT_EQ(machine().allocate_device(0, memory_bytes / 2 + 1), nullptr);
  EXPECT_EQ(machine().allocate_device(0, SIZE_MAX), nullptr);
  EXPECT_EQ(machine().memory_info(0).free, memory_bytes / 2) << "a refused request must take nothing";
  EXPECT_NE(machine().allocate_device(1, memory_bytes), nullptr) << "each device has memory of its own";
  void* other_half = machine().allocate_device(0, memory_bytes / 2);
  EXPECT_NE(other_half, nullptr);
  machine().free_device(0, half);
  machine().free_device(0, other_half);
  EXPECT_EQ(machine().memory_info(0).free, memory_bytes);
}

TEST_F(HostMemory, KnowsWhatAnAddressIs) {
  auto* device = allocate<std::byte>(3, 1000);
  const PointerInfo in_device = machine().pointer_info(device + 999);
  EXPECT_EQ(in_device.kind, MemoryKind::device);
  EXPECT_EQ(in_device.device, 3);
  EXPECT_EQ(in_device.base, device);
  EXPECT_EQ(in_device.bytes, 1000U);

  auto* pinned = static_cast<std::byte*>(machine().allocate_pinned(100));
  std::memset(pinned, 1, 100);
  const PointerInfo in_pinned = machine().pointer_info(pinned + 50);
  EXPECT_EQ(in_pinned.kind, MemoryKind::pinned);
  EXPECT_EQ(in_pinned.device, -1);
  EXPECT_EQ(in_pinned.base, pinned);
  EXPECT_EQ(in_pinned.bytes, 100U);
  machine().free_pinned(pinned);

  const int local = 0;
  EXPECT_EQ(machine().pointer_info(&local).kind, MemoryKind::pageable);
  machine().free_device(3, device);
  EXPECT_EQ(machine().pointer_info(device).kind, MemoryKind::unknown);
}

TEST_F(HostMemory, DetectsWorkOnFreedMemory) {
  int* address = upload<int>(0, {1, 2, 3});
  machine().free_device(0, address);
  machine().fill(machine().default_stream(0), {.target = bytes_of(address), .count = 3, .element_bytes = 4});
  EXPECT_THAT(error_message(ErrorCode::device_failure, [&] { machine().synchronize_device(0); }),
              AllOf(HasSubstr("fill on stream 0 of device 0"), HasSubstr("freed")));

  int value = 0;
  copy(machine().default_stream(0), &value, address, sizeof(value));
  EXPECT_THAT(error_message(ErrorCode::device_failure, [&] { machine().synchronize_device(0); }),
              AllOf(HasSubstr("copy on stream 0 of device 0"), HasSubstr("freed")));
}

TEST_F(HostMemory, DetectsWorkBeyondABlock) {
  auto* address = allocate<std::byte>(0, 100);
  machine().fill(machine().default_stream(0), {.target = address + 50, .count = 51});
  EXPECT_THAT(error_message(ErrorCode::device_failure, [&] { machine().synchronize_device(0); }),
              HasSubstr("51 bytes"));
  machine().fill(machine().default_stream(0), {.target = address + 50, .count = 50});
  EXPECT_NO_THROW(machine().synchronize_device(0));
}

TEST_F(HostMemory, KeepsKernelsOutOfPageableMemory) {
  std::vector<std::byte> pageable(16);
  machine().fill(machine().default_stream(0),
                 {.target = pageable.data(), .count = 16, .value = {std::byte{7}}});
  EXPECT_THAT(error_message(ErrorCode::device_failure, [&] { machine().synchronize_device(0); }),
              HasSubstr("neither device memory nor pinned memory"));
  EXPECT_EQ(pageable.front(), std::byte{0});
}

TEST_F(HostMemory, LetsKernelsUsePinnedMemory) {
  auto* pinned = static_cast<std::byte*>(machine().allocate_pinned(16));
  machine().fill(machine().default_stream(1), {.target = pinned, .count = 16, .value = {std::byte{7}}});
  machine().synchronize_device(1);
  EXPECT_EQ(pinned[15], std::byte{7});
  machine().free_pinned(pinned);
}

TEST_F(HostMemory, ReportsWrongFreesLater) {
  auto* address = allocate<std::byte>(0, 1000);
  machine().free_device(0, address + 8);
  EXPECT_THAT(error_message(ErrorCode::device_failure, [&] { machine().synchronize_device(0); }),
              HasSubstr("free_device"));
  machine().free_device(1, address);
  EXPECT_THAT(error_message(ErrorCode::device_failure, [&] { machine().synchronize_device(1); }),
              HasSubstr("free_device"));
  machine().free_device(0, address);
  EXPECT_NO_THROW(machine().synchronize_device(0));
  machine().free_device(0, nullptr);
  EXPECT_NO_THROW(machine().synchronize_device(0));
}

TEST_F(HostMemory, SurvivesManyBlocks) {
  std::vector<std::uint32_t*> blocks;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    blocks.push_back(allocate<std::uint32_t>(0, 4));
    Fill fill{.target = bytes_of(blocks.back()), .count = 4, .element_bytes = 4};
    std::memcpy(fill.value.data(), &i, sizeof(i));
    machine().fill(machine().default_stream(0), fill);
  }
  machine().synchronize_device(0);
  for (const std::uint32_t i : {0U, 1U, 999U, 1999U}) EXPECT_EQ(download(0, blocks[i], 4)[3], i);
  for (auto* block : blocks) machine().free_device(0, block);
  EXPECT_EQ(machine().memory_info(0).free, memory_bytes);
}

class HostPeers : public HostMachine {
 protected:
  HostPeers() : HostMachine("two-islands", 4) {}

  std::string failure_of_fan_out(int device, const int* source, int* target) {
    std::byte* pointers[] = {bytes_of(const_cast<int*>(source)), bytes_of(target)};
    const FanOutSegment segment{.row_bytes = 4, .source = 0, .first_target = 1, .target_count = 1};
    machine().fan_out(machine().default_stream(device), {.segments = {&segment, 1}, .pointers = pointers});
    try {
      machine().synchronize_device(device);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
};

TEST_F(HostPeers, KernelsNeedEnabledAccess) {
  const int* source = upload<int>(1, {42});
  int* target = upload<int>(0, {0});
  EXPECT_TRUE(machine().can_access_peer(0, 1));
  EXPECT_THAT(failure_of_fan_out(0, source, target),
              AllOf(HasSubstr("fan_out on stream 0 of device 0"), HasSubstr("belongs to device 1"),
                    HasSubstr("device 0 has no peer access")));
  EXPECT_EQ(download(0, target, 1)[0], 0);
  machine().enable_peer_access(1, 0);
  EXPECT_NE(failure_of_fan_out(0, source, target), "") << "access has a direction";
  machine().enable_peer_access(0, 1);
  machine().enable_peer_access(0, 1);
  EXPECT_EQ(failure_of_fan_out(0, source, target), "");
  EXPECT_EQ(download(0, target, 1)[0], 42);
}

TEST_F(HostPeers, AccessIsRefusedWhereTheTopologyHasNone) {
  EXPECT_FALSE(machine().can_access_peer(0, 2));
  EXPECT_FALSE(machine().can_access_peer(0, 0));
  EXPECT_EQ(machine().link(0, 2).kind, LinkKind::host_bridge);
  EXPECT_EQ(machine().link(0, 1).kind, LinkKind::nvlink);
  EXPECT_EQ(machine().link(1, 1).kind, LinkKind::self);
  EXPECT_THAT(error_message(ErrorCode::peer_unavailable, [&] { machine().enable_peer_access(0, 2); }),
              AllOf(HasSubstr("device 0"), HasSubstr("device 2"), HasSubstr("two-islands")));
}

TEST_F(HostPeers, CopiesNeedNoAccess) {
  const int* source = upload<int>(3, {7, 8});
  int* target = upload<int>(0, {0, 0});
  copy(machine().default_stream(0), target, source, 8);
  machine().synchronize_device(0);
  EXPECT_EQ(download(0, target, 2), (std::vector<int>{7, 8}));
}

}  // namespace
}  // namespace tutti::backend
