// SPDX-License-Identifier: Apache-2.0
#include "perf/session/provenance.hpp"

#include <regex>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

TEST(PerfProvenance, TheDriverIsFoundInEitherOfItsWordings) {
  EXPECT_EQ(
      driver_version_in(
          "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Mon Feb 26 2024\nGCC version:\n"),
      "535.161.08");
  EXPECT_EQ(
      driver_version_in("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95  Release Build\n"),
      "580.95");
  EXPECT_EQ(driver_version_in("something else"), "");
}

TEST(PerfProvenance, SaysWhereAndWhen) {
  const Provenance found = find_provenance(BackendKind::host);
  EXPECT_TRUE(std::regex_match(found.date, std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\dZ)"))) << found.date;
  EXPECT_FALSE(found.host.empty());
  EXPECT_TRUE(std::regex_search(found.cpu, std::regex(R"(, \d+ cores?$)"))) << found.cpu;
  EXPECT_NE(found.system.find("kernel "), std::string::npos);
  EXPECT_FALSE(found.compiler.empty());
  EXPECT_TRUE(found.driver.empty());
  EXPECT_TRUE(found.cuda.empty());
}

}  // namespace
}  // namespace tutti::perf
