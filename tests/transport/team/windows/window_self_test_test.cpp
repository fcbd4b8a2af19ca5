// SPDX-License-Identifier: Apache-2.0
#include "transport/team/windows/window_self_test.hpp"

#include "allocator/allocators.hpp"
#include "device/runtime.hpp"
#include "support/errors.hpp"
#include "transport/team/windows/scoped_stream.hpp"
#include "tutti/virtual_devices.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

/// Two members of one process, both of device 0, try one another's windows.
namespace tutti::transport::team {
namespace {

using test::refuses;

class TriedWindows : public testing::Test {
 protected:
  void SetUp() override {
    for (std::size_t member = 0; member < members; ++member) {
      void* const memory = runtime_.part<Allocators>().of(0).allocate_uncached(layout_.bytes());
      windows_.push_back(static_cast<std::byte*>(memory));
    }
  }
  void TearDown() override {
    for (std::byte* const window : windows_) runtime_.backend().free_device(0, window);
  }

  void write(std::size_t writer) { WindowSelfTest(runtime_, layout_).write(0, writer, windows_); }
  void read(std::size_t reader) { WindowSelfTest(runtime_, layout_).read(0, reader, windows_); }
  [[nodiscard]] testing::AssertionResult misses(std::size_t reader, const char* what) {
    return refuses([&] { read(reader); }, ErrorCode::peer_unavailable, {what});
  }

  static constexpr std::uint32_t members = 2;

  Runtime& runtime_ = Runtime::get();
  const backend::TeamWindowLayout layout_{.members = members,
                                          .slot_bytes = backend::TeamWindowLayout::alignment};
  std::vector<std::byte*> windows_;
};

TEST_F(TriedWindows, HaveWhatAllMembersWrote) {
  write(0);
  write(1);
  EXPECT_NO_THROW(read(0));
  EXPECT_NO_THROW(read(1));
}

TEST_F(TriedWindows, AreRefusedIfAMembersPatternIsNotThere) {
  write(0);
  EXPECT_TRUE(misses(1, "member 1 does not read from member 0's memory what member 1 wrote there"));
}

TEST_F(TriedWindows, AreRefusedIfAPatternIsAnotherMembers) {
  write(0);
  write(1);
  std::byte* const patterns = windows_[1] + layout_.slots_offset();
  const ScopedStream stream(runtime_.backend(), 0);
  runtime_.backend().copy(
      stream.get(),
      {.target = patterns, .source = patterns + WindowSelfTest::bytes, .row_bytes = WindowSelfTest::bytes});
  runtime_.backend().synchronize_stream(stream.get());
  EXPECT_TRUE(misses(0, "member 0 does not read from member 1's memory what member 0 wrote there"));
}

TEST_F(TriedWindows, AreRefusedForASingleByte) {
  write(0);
  write(1);
  std::byte* const last = windows_[1] + layout_.slots_offset() + members * WindowSelfTest::bytes - 1;
  const ScopedStream stream(runtime_.backend(), 0);
  runtime_.backend().fill(stream.get(), {.target = last, .count = 1});  // which is not 0
  runtime_.backend().synchronize_stream(stream.get());
  EXPECT_TRUE(misses(0, "member 0 does not read from member 1's memory what member 1 wrote there"));
  write(1);
  EXPECT_NO_THROW(read(0));
}

TEST_F(TriedWindows, CannotBeTriedWithoutPinnedMemory) {
  virtual_devices::inject({.operation = virtual_devices::Operation::allocate_pinned, .count = UINT64_MAX});
  EXPECT_TRUE(refuses([&] { write(0); }, ErrorCode::out_of_memory, {"no pinned memory for the self-test"}));
  virtual_devices::clear_faults();
  EXPECT_NO_THROW(write(0));
}

}  // namespace
}  // namespace tutti::transport::team
