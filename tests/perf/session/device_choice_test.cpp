// SPDX-License-Identifier: Apache-2.0
#include "perf/options/usage_errors.hpp"
#include "perf/session/job.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

const std::vector<std::string> hosts{"one", "two", "one", "two", "one"};

TEST(PerfDeviceChoice, RanksOfAHostThatSeeTheSameDevicesShareThem) {
  const int firsts[] = {0, 0, 2, 2, 4};
  const int shown[] = {6, 4, 6, 4, 6};
  for (int rank = 0; rank < 5; ++rank) {
    const DeviceChoice choice = devices_of_rank(2, 8, BackendKind::cuda, rank, hosts);
    EXPECT_EQ(choice.first, firsts[rank]);
    EXPECT_EQ(choice.shown, shown[rank]);
  }
}

TEST(PerfDeviceChoice, ARankHasAllDevicesThatItUsesAllOf) {
  const DeviceChoice choice = devices_of_rank(2, 2, BackendKind::cuda, 4, hosts);
  EXPECT_EQ(choice.first, 0);
  EXPECT_EQ(choice.shown, 2);
}

TEST(PerfDeviceChoice, VirtualDevicesAreEachRanksOwn) {
  const DeviceChoice choice = devices_of_rank(2, 4, BackendKind::host, 4, hosts);
  EXPECT_EQ(choice.first, 0);
  EXPECT_EQ(choice.shown, 2);
}

TEST(PerfDeviceChoice, MoreThanThereAreIsAMistake) {
  EXPECT_EQ(usage_error_of([] { static_cast<void>(devices_of_rank(3, 8, BackendKind::cuda, 2, hosts)); }),
            "-g: 3 device(s) for each of 3 ranks on one asked for, but there are 8");
  EXPECT_EQ(devices_of_rank(3, 8, BackendKind::cuda, 3, hosts).first, 3);
}

}  // namespace
}  // namespace tutti::perf
