// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/sizes.hpp"

#include "perf/options/usage_errors.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

TEST(PerfSizes, SuffixesAreBinary) {
  EXPECT_EQ(parse_size("0", "-b"), 0U);
  EXPECT_EQ(parse_size("17", "-b"), 17U);
  EXPECT_EQ(parse_size("1K", "-b"), 1024U);
  EXPECT_EQ(parse_size("64m", "-b"), std::size_t{64} << 20U);
  EXPECT_EQ(parse_size("3G", "-b"), std::size_t{3} << 30U);
}

TEST(PerfSizes, RefusesEverythingElseWithTheOptionInTheMessage) {
  for (const char* text : {"", "K", "1.5M", "12Q", "1KB", "-4", "+4", " 4", "4 ", "0x10", "1KK"}) {
    const std::string message = usage_error_of([&] { static_cast<void>(parse_size(text, "-e")); });
    EXPECT_NE(message.find("-e: '" + std::string(text) + "'"), std::string::npos) << message;
    EXPECT_NE(message.find("not a size"), std::string::npos) << message;
  }
}

TEST(PerfSizes, RefusesWhatDoesNotFitInAnAddress) {
  for (const char* text : {"99999999999999999999", "99999999999G", "18446744073709551615"}) {
    const std::string message = usage_error_of([&] { static_cast<void>(parse_size(text, "-e")); });
    EXPECT_NE(message.find("too large"), std::string::npos) << message;
  }
}

TEST(PerfSizes, FormatsTheShortestExactSpelling) {
  for (const char* text : {"0", "8", "1K", "1500", "96K", "64M", "1G", "1025M"}) {
    EXPECT_EQ(format_size(parse_size(text, "")), text);
  }
}

TEST(PerfSizes, NumbersHaveBounds) {
  EXPECT_EQ(parse_number("20", "-n", 1, 100), 20);
  for (const char* text : {"0", "101", "x", "2x", ""}) {
    const std::string message = usage_error_of([&] { static_cast<void>(parse_number(text, "-n", 1, 100)); });
    EXPECT_NE(message.find("1 to 100"), std::string::npos) << message;
  }
}

TEST(PerfSizes, SweepsByFactorUpToTheEnd) {
  EXPECT_EQ(sizes_of({.begin = 8, .end = 70, .factor = 2}), (std::vector<std::size_t>{8, 16, 32, 64}));
  EXPECT_EQ(sizes_of({.begin = 8, .end = 8}), (std::vector<std::size_t>{8}));
  EXPECT_EQ(sizes_of({.begin = 1, .end = 1000, .factor = 10}), (std::vector<std::size_t>{1, 10, 100, 1000}));
}

TEST(PerfSizes, SweepsByIncrementUpToTheEnd) {
  EXPECT_EQ(sizes_of({.begin = 0, .end = 10, .increment = 4}), (std::vector<std::size_t>{0, 4, 8}));
  EXPECT_EQ(sizes_of({.begin = 3, .end = 3, .increment = 4}), (std::vector<std::size_t>{3}));
}

TEST(PerfSizes, RefusesSweepsThatGoNowhere) {
  EXPECT_NE(usage_error_of([] { static_cast<void>(sizes_of({.begin = 9, .end = 8})); }).find("-e"),
            std::string::npos);
  EXPECT_NE(usage_error_of([] { static_cast<void>(sizes_of({.factor = 1})); }).find("-f"), std::string::npos);
  EXPECT_NE(usage_error_of([] { static_cast<void>(sizes_of({.begin = 0})); }).find("-b"), std::string::npos);
}

}  // namespace
}  // namespace tutti::perf
