// SPDX-License-Identifier: Apache-2.0
#include "transport/team/windows/device_name.hpp"

#include "device/runtime.hpp"
#include "support/machines/machines.hpp"

#include <array>

#include <gtest/gtest.h>

/// Which devices NVLink joins, of this process and as others name theirs.
namespace tutti::transport::team {
namespace {

backend::Backend& seam() {
  return Runtime::get().backend();
}

TEST(DeviceName, NamesDevicesOfOtherProcessesThatMayBeThisOnes) {
  test::boot("island", 2);
  EXPECT_TRUE(has_nvlink(seam(), 0, DeviceName::of(seam(), 1)));
  EXPECT_TRUE(has_nvlink(seam(), 0, DeviceName::of(seam(), 0))) << "itself";
  EXPECT_FALSE(has_nvlink(seam(), 0, DeviceName{.number = 2})) << "it is not here";
}

TEST(DeviceName, TellsWhetherNvlinkJoinsAllDevices) {
  test::boot("two-islands", 4);
  EXPECT_TRUE(are_all_joined_by_nvlink(seam(), std::array{0, 1}));
  EXPECT_TRUE(are_all_joined_by_nvlink(seam(), std::array{3, 2}));
  EXPECT_FALSE(are_all_joined_by_nvlink(seam(), std::array{0, 1, 2}));
  EXPECT_TRUE(are_all_joined_by_nvlink(seam(), std::array{2}));
  test::boot("pcie-p2p", 2);
  EXPECT_FALSE(are_all_joined_by_nvlink(seam(), std::array{0, 1})) << "they reach one another by PCIe";
  EXPECT_FALSE(has_nvlink(seam(), 0, DeviceName::of(seam(), 1)));
}

}  // namespace
}  // namespace tutti::transport::team
