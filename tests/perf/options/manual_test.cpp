// SPDX-License-Identifier: Apache-2.0
#include "perf/options/command_line.hpp"
#include "perf/options/usage_errors.hpp"
#include "perf/session/provenance.hpp"

#include <cstddef>
#include <regex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

std::string told(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tutti-perf");
  std::string help;
  EXPECT_FALSE(split_command_line(static_cast<int>(arguments.size()), arguments.data(), help));
  return help;
}

/// Every name of an option that help shows, such as "-b" and "--minbytes".
std::vector<std::string> options_in_help() {
  const std::string help = told({"--help"});
  const std::regex line(R"(\n  ((-[A-Za-z],)?--[a-z_-]+))");
  std::vector<std::string> names;
  for (std::sregex_iterator match(help.begin(), help.end(), line), end; match != end; ++match) {
    const std::string given = (*match)[1];
    const std::size_t comma = given.find(',');
    if (comma != std::string::npos) names.push_back(given.substr(0, comma));
    names.push_back(given.substr(comma == std::string::npos ? 0 : comma + 1));
  }
  return names;
}

std::string without_escapes(std::string page) {
  for (std::size_t at = 0; (at = page.find("\\-", at)) != std::string::npos;) page.erase(at, 1);
  return page;
}

TEST(PerfManual, HasEveryOptionOfTheHelp) {
  const std::string page = without_escapes(told({"--man"}));
  const std::vector<std::string> names = options_in_help();
  EXPECT_GT(names.size(), 30U);
  for (const std::string& name : names) {
    EXPECT_NE(page.find(name), std::string::npos) << name;
  }
  EXPECT_TRUE(page.starts_with(".TH TUTTI-PERF 1"));
  EXPECT_NE(page.find("Exit status"), std::string::npos);
}

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
