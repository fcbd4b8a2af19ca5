// SPDX-License-Identifier: Apache-2.0
#include "device/foreign_memory.hpp"

#include "backend/host/virtual_machine_control.hpp"
#include "support/standard_error.hpp"
#include "tutti/device.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include <gtest/gtest.h>

namespace tutti {
namespace {

/// A range of device 0 that the program has mapped, of three pieces.
class ForeignMemoryTest : public testing::Test {
 protected:
  static constexpr std::size_t pieces = 3;

  void SetUp() override {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices";
    range_ = static_cast<std::byte*>(backend().reserve_addresses(0, size()));
    map();
  }
  void TearDown() override {
    if (range_ == nullptr) return;
    unmap();
    backend().release_addresses(0, range_, size());
  }
  static backend::Backend& backend() { return Runtime::get().backend(); }
  static std::size_t page() { return backend().page_bytes(0); }
  static std::size_t size() { return pieces * page(); }
  void map() {
    for (std::size_t at = 0; at < size(); at += page())
      ASSERT_TRUE(backend().map_pages(0, range_ + at, page()));
  }
  void unmap() { backend().unmap_pages(0, range_, size()); }
  void close() { Runtime::get().virtual_machine()->close_to_peers(range_); }
  [[nodiscard]] bool is_open(std::size_t offset, std::size_t bytes) {
    return foreign_.is_open_to(std::array{0, 1}, {range_ + offset, bytes}, around_);
  }

  std::byte* range_ = nullptr;
  ForeignMemory foreign_{Runtime::get()};
  ForeignMemory::Bytes around_;
};

TEST_F(ForeignMemoryTest, TellsOfAllPiecesThatAreUsed) {
  EXPECT_TRUE(is_open(100, 1));
  EXPECT_EQ(around_.data(), range_);
  EXPECT_EQ(around_.size(), page());
  EXPECT_TRUE(is_open(page() - 1, 2));
  EXPECT_EQ(around_.size(), 2 * page());
  EXPECT_TRUE(is_open(0, size()));
  EXPECT_EQ(around_.size(), size());
}

TEST_F(ForeignMemoryTest, NoticesOtherMemoryAtAnAddress) {
  EXPECT_TRUE(is_open(0, size()));
  unmap();
  map();
  close();
  EXPECT_FALSE(is_open(0, 1));
  EXPECT_FALSE(is_open(page(), 1));
}

TEST_F(ForeignMemoryTest, NoticesThatMemoryIsOpened) {
  close();
  EXPECT_FALSE(is_open(0, size()));
  EXPECT_TRUE(foreign_.is_open_to(std::array{0}, {range_, size()})) << "its own device has access";
  backend().adopt_pieces(0, range_, size());
  EXPECT_TRUE(is_open(0, size()));
}

TEST_F(ForeignMemoryTest, TakesWhatIsNotKnownForOpen) {
  std::array<std::byte, 64> host{};
  EXPECT_TRUE(foreign_.is_open_to(std::array{0, 1}, host, around_));
  EXPECT_TRUE(around_.empty());
  EXPECT_TRUE(foreign_.is_open_to(std::array{0, 1}, {}));
}

TEST_F(ForeignMemoryTest, IsToldOfOnce) {
  test::StandardError error;
  for (int i = 0; i < 3; ++i) foreign_.tell_of_stand_ins("broadcast", 0, range_);
  const std::string text = error.end();
  EXPECT_NE(text.find("broadcast: memory of device 0"), std::string::npos) << text;
  EXPECT_NE(text.find("register_memory"), std::string::npos) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
}

}  // namespace
}  // namespace tutti
