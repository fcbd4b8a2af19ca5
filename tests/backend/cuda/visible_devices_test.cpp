// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/visible_devices.hpp"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::backend {
namespace {

std::optional<int> count(const char* visible) {
  static const std::vector<std::string> uuids{"GPU-0a1b2c3d-0000", "GPU-0a1b9999-0000", "GPU-77777777-0000"};
  return count_visible(uuids, visible);
}

TEST(VisibleDevices, AreAllWithoutAList) {
  EXPECT_EQ(count(nullptr), 3);
  EXPECT_EQ(count_visible({}, nullptr), 0);
}

TEST(VisibleDevices, AreThoseListedUpToTheFirstThatIsNone) {
  EXPECT_EQ(count(""), 0);
  EXPECT_EQ(count("0"), 1);
  EXPECT_EQ(count("2,0"), 2);
  EXPECT_EQ(count("1, 2 ,0"), 3);
  EXPECT_EQ(count("-1"), 0);
  EXPECT_EQ(count("2,-1,0"), 1);
  EXPECT_EQ(count("1,3,0"), 1);
  EXPECT_EQ(count_visible({}, "0,1"), 0);
}

TEST(VisibleDevices, MayBeListedByUuidsCutShort) {
  EXPECT_EQ(count("GPU-77777777-0000"), 1);
  EXPECT_EQ(count("GPU-7,GPU-0a1b2"), 2);
  EXPECT_EQ(count("GPU-7,GPU-5,GPU-0a1b2"), 1);
}

TEST(VisibleDevices, AreForCudaToCountWhereNamesAreUnclear) {
  for (const char* const unclear : {"GPU-0a1b", "MIG-1234", "0,0", "GPU-7,GPU-77", "0,GPU-7", "GPU-7,0",
                                    "zero", "1x", "0,", ",", " ", "0x1", "99999999999999999999"}) {
    EXPECT_EQ(count(unclear), std::nullopt) << unclear;
  }
}

}  // namespace
}  // namespace tutti::backend
