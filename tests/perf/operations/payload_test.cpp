// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/payload.hpp"

#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

using Sizes = std::vector<std::int64_t>;

Payload payload_of(int members, Parts parts, const Sizes& sizes) {
  return Payload(members, parts, {sizes, DType::int8});
}

TEST(PerfPayload, EqualPartsAreOfWhatCanBeDivided) {
  const Payload payload = payload_of(3, Parts::equal, {2, 10});
  EXPECT_EQ(payload.whole().sizes, Sizes{18});
  EXPECT_EQ(payload.sizes(), (Sizes{6, 6, 6}));
  EXPECT_EQ(payload.start(2), 12);
  EXPECT_EQ(payload.part(1).sizes, Sizes{6});
  EXPECT_EQ(payload.part(1).dtype, DType::int8);
}

TEST(PerfPayload, UnequalPartsAreAllOfIt) {
  EXPECT_EQ(payload_of(3, Parts::unequal, {12}).sizes(), (Sizes{2, 4, 6}));
  for (const int members : {1, 2, 3, 16}) {
    for (const std::int64_t elements : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1001},
                                        std::numeric_limits<std::int64_t>::max() / 2}) {
      const Payload payload = payload_of(members, Parts::unequal, {elements});
      EXPECT_EQ(payload.length(), elements);
      EXPECT_EQ(payload.start(0), 0);
      EXPECT_EQ(payload.start(members), elements) << members;
      for (const std::int64_t size : payload.sizes()) EXPECT_GE(size, 0);
    }
  }
}

TEST(PerfPayload, AnExchangesMemberSendsAllOfItAndKeepsTheShortest) {
  const Payload payload = payload_of(4, Parts::unequal, {10});
  for (int from = 0; from < 4; ++from) {
    EXPECT_EQ(payload.sent(from, from), 1);
    EXPECT_EQ(payload.sent(from, (from + 3) % 4), 4);
    std::int64_t all = 0;
    for (int to = 0; to < 4; ++to) all += payload.sent(from, to);
    EXPECT_EQ(all, 10);
  }
}

TEST(PerfPayload, ChunksThatComeLastAreSmallerOrEmpty) {
  const auto lengths_of = [](std::int64_t size, int count) {
    const Payload payload = payload_of(count, Parts::chunks, {2, size});
    std::int64_t filled = 0;
    for (int index = 0; index < count; ++index) {
      EXPECT_EQ(payload.start(index), filled);
      filled += payload.size(index);
      EXPECT_EQ(payload.part(index).sizes, (Sizes{2, payload.size(index)}));
    }
    EXPECT_EQ(filled, size);
    return payload.sizes();
  };
  EXPECT_EQ(lengths_of(9, 3), (Sizes{3, 3, 3}));
  EXPECT_EQ(lengths_of(8, 3), (Sizes{3, 3, 2}));
  EXPECT_EQ(lengths_of(4, 3), (Sizes{2, 2, 0}));
  EXPECT_EQ(lengths_of(0, 2), (Sizes{0, 0}));
}

}  // namespace
}  // namespace tutti::perf
