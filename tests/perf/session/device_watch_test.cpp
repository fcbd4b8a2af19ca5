// SPDX-License-Identifier: Apache-2.0
#include "perf/session/device_watch.hpp"

#include "perf/report/json.hpp"
#include "perf/report/reported_rows.hpp"
#include "perf/report/table.hpp"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

TEST(PerfDeviceWatch, TellsNothingOfVirtualDevices) {
  DeviceWatch watch({Device(0)});
  watch.start();
  watch.look();
  const std::vector<DeviceHealth> healths = watch.finish(*make_single_process());
  ASSERT_EQ(healths.size(), 1U);
  EXPECT_FALSE(healths[0].before.sm_clock_mhz);
  EXPECT_FALSE(healths[0].after.power_w);
  EXPECT_FALSE(healths[0].throttled);
}

TEST(PerfDeviceWatch, TheFootAndTheFileSayWhichWereThrottled) {
  Results results = results_of_ranks();
  results.job.members[1].health.throttled = ThrottleReasons{};
  results.job.members[2].health.throttled =
      ThrottleReasons{.power = true, .thermal = false, .hardware = false};
  results.job.members[3].health.throttled =
      ThrottleReasons{.power = false, .thermal = true, .hardware = true};
  results.job.members[3].health.after = {
      .sm_clock_mhz = 1980.0, .memory_clock_mhz = 2619.0, .power_w = 512.5, .temperature_c = 61.0};
  EXPECT_NE(format_footer(results).find(
                "# throttled: rank 1 device 0 (power), rank 1 device 1 (thermal, hardware)\n"),
            std::string::npos)
      << format_footer(results);
  const auto members = nlohmann::json::parse(to_json({}, results, {}))["members"];
  EXPECT_TRUE(members[0]["throttled"].is_null());
  EXPECT_EQ(members[1]["throttled"], nlohmann::json::array());
  EXPECT_EQ(members[3]["throttled"], (std::vector<std::string>{"thermal", "hardware"}));
  EXPECT_EQ(members[3]["after"]["power_w"], 512.5);
  EXPECT_TRUE(members[3]["before"]["power_w"].is_null());
  results.job.mode = Mode::single_process;
  EXPECT_NE(format_footer(results).find("# throttled: device 0 (power), device 1 (thermal, hardware)\n"),
            std::string::npos);
  EXPECT_EQ(format_footer(results_of({})).find("throttled"), std::string::npos);
}

}  // namespace
}  // namespace tutti::perf
