// SPDX-License-Identifier: Apache-2.0
#include "stream_sanitizer/shadow_memory.hpp"

#include "stream_sanitizer/happens_before.hpp"
#include "stream_sanitizer/memory_lives.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::stream_sanitizer {
namespace {

OperationPtr numbered_operation(std::uint64_t number) {
  auto operation = std::make_shared<Operation>();
  operation->number = number;
  return operation;
}

/// What shadow memory should say, byte by byte.
class ByteByByte {
 public:
  [[nodiscard]] bool conflicts(Bytes bytes, bool writes, const VectorClock& clock) const {
    for (std::uintptr_t byte = bytes.begin; byte < bytes.end; ++byte) {
      const auto found = bytes_.find(byte);
      if (found == bytes_.end()) continue;
      const auto is_unknown = [&](const Access& access) { return clock.at(access.line) < access.time; };
      for (const auto& [access, is_write] : found->second) {
        if ((writes || is_write) && is_unknown(access)) return true;
      }
    }
    return false;
  }
  void enter(Bytes bytes, bool writes, const Access& access) {
    for (std::uintptr_t byte = bytes.begin; byte < bytes.end; ++byte)
      bytes_[byte].emplace_back(access, writes);
  }

 private:
  std::map<std::uintptr_t, std::vector<std::pair<Access, bool>>> bytes_;
};

TEST(ShadowMemory, SaysWhatAHistoryOfEveryByteWouldSay) {
  std::mt19937 random(7);
  const auto below = [&](std::uint32_t limit) { return static_cast<std::uint32_t>(random() % limit); };
  int conflicts = 0;
  for (int round = 0; round < 200; ++round) {
    ShadowMemory memory;
    ByteByByte reference;
    std::vector<VectorClock> clocks(4);
    for (std::uint64_t step = 1; step <= 60; ++step) {
      const Line line = 1 + below(3);
      if (below(3) == 0) clocks[line].join(clocks[1 + below(3)]);
      const std::uint64_t time = clocks[line].at(line) + 1;
      clocks[line].advance(line, time);
      const std::uintptr_t begin = 100 + below(40);
      const Bytes bytes{begin, begin + 1 + below(12)};
      const bool writes = below(2) == 0;
      const bool expected = reference.conflicts(bytes, writes, clocks[line]);
      const auto found = memory.find_conflict(bytes, writes, clocks[line]);
      ASSERT_EQ(found.has_value(), expected) << "round " << round << ", step " << step;
      if (expected) {
        ++conflicts;
        continue;  // as one that is refused
      }
      const Access access{line, time, numbered_operation(step), nullptr};
      memory.enter(bytes, writes, access, clocks[line]);
      reference.enter(bytes, writes, access);
    }
  }
  EXPECT_GT(conflicts, 1000);
}

TEST(ShadowMemory, TakesBackAndForgets) {
  ShadowMemory memory;
  VectorClock clock;
  clock.advance(1, 1);
  const Access access{1, 1, numbered_operation(1), nullptr};
  const Bytes bytes{0, 100};
  memory.enter(bytes, true, access, clock);
  EXPECT_TRUE(memory.find_conflict({99, 101}, false, {}).has_value());
  memory.forget({50, 100});
  EXPECT_FALSE(memory.find_conflict({50, 101}, true, {}).has_value());
  EXPECT_TRUE(memory.find_conflict({49, 50}, true, {}).has_value());
  memory.take_back(bytes, access.operation);
  EXPECT_EQ(memory.size(), 0U);
  memory.enter(bytes, false, access, clock);
  memory.forget_known(clock);
  EXPECT_EQ(memory.size(), 0U);
}

TEST(ShadowMemory, StaysWithinBounds) {
  constexpr std::size_t most_pieces = 10'000;
  constexpr std::uint64_t last = 40'000;
  HappensBefore order(most_pieces);
  VectorClock clock;
  bool is_too_much = false;
  std::size_t most = 0;
  for (std::uint64_t i = 1; i <= last; ++i) {
    clock.advance(1, i);
    order.memory().enter({8 * i, 8 * i + 4}, true, {1, i, numbered_operation(i), nullptr}, clock);
    is_too_much |= order.tidy();
    most = std::max(most, order.memory().size());
  }
  EXPECT_TRUE(is_too_much);
  EXPECT_LE(most, 2 * most_pieces);
  EXPECT_TRUE(order.memory().find_conflict({8 * last, 8 * last + 1}, false, {}).has_value())
      << "the latest is kept";
}

TEST(MemoryLives, KnowWhatIsNobodysAndWhatHadAnotherLife) {
  MemoryLives lives;
  lives.taken({0, 1000}, 1);
  EXPECT_EQ(lives.freed({0, 1000}).release, nullptr);
  lives.given_back({0, 1000}, numbered_operation(5));
  EXPECT_EQ(lives.freed({900, 2000}).release->number, 5U);
  EXPECT_EQ(lives.freed({900, 2000}).bytes.end, 1000U);
  lives.taken({200, 400}, 7);
  EXPECT_EQ(lives.freed({200, 400}).release, nullptr);
  EXPECT_EQ(lives.freed({150, 400}).bytes.end, 200U);
  EXPECT_NE(lives.freed({399, 401}).release, nullptr);
  EXPECT_EQ(lives.release_since(300, 3)->number, 5U) << "an operation of the life before";
  EXPECT_EQ(lives.release_since(300, 8), nullptr);
  lives.forget({0, 1000});
  EXPECT_EQ(lives.freed({0, 1000}).release, nullptr);
}

}  // namespace
}  // namespace tutti::stream_sanitizer
