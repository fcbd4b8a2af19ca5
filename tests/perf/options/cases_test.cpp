// SPDX-License-Identifier: Apache-2.0
#include "perf/options/cases.hpp"

#include "perf/options/parsed_options.hpp"

#include <cstddef>
#include <initializer_list>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

std::vector<std::size_t> sizes_of_cases(std::initializer_list<const char*> words, int members) {
  const Options options = parsed(words);
  Members all;
  all.count = members;
  std::vector<std::size_t> sizes;
  for (const Case& what : cases_of(*options.operations.front(), options, all)) sizes.push_back(what.bytes);
  return sizes;
}

TEST(PerfCases, SizesThatComeToTheSamePayloadAreMeasuredOnce) {
  using Sizes = std::vector<std::size_t>;
  EXPECT_EQ(sizes_of_cases({"all_gather", "-b", "16", "-e", "64", "-i", "8"}, 4), (Sizes{16, 32, 48, 64}));
  EXPECT_EQ(sizes_of_cases({"reduce_scatter", "-b", "16", "-e", "64", "-i", "8"}, 4),
            (Sizes{16, 32, 48, 64}));
  EXPECT_EQ(sizes_of_cases({"broadcast", "-b", "4", "-e", "9", "-i", "1"}, 4), (Sizes{4, 8}));
  EXPECT_EQ(sizes_of_cases({"broadcast", "-b", "4", "-e", "9", "-i", "1", "-d", "int8"}, 4),
            (Sizes{4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(sizes_of_cases({"scatter", "-b", "16", "-e", "32", "-i", "8"}, 4), (Sizes{16, 24, 32}));
  EXPECT_EQ(sizes_of_cases({"broadcast", "-b", "8", "-e", "64"}, 4), (Sizes{8, 16, 32, 64}));
}

TEST(PerfCases, SizesOfWhichNothingIsMovedAreAllTold) {
  EXPECT_EQ(sizes_of_cases({"all_gather", "-b", "8", "-e", "32", "-i", "4"}, 4),
            (std::vector<std::size_t>{8, 12, 16, 32}));
  EXPECT_EQ(sizes_of_cases({"broadcast", "-b", "0", "-e", "6", "-i", "2"}, 4),
            (std::vector<std::size_t>{0, 2, 4}));
}

TEST(PerfCases, EachPairHasASizeOnce) {
  EXPECT_EQ(sizes_of_cases({"sendrecv", "-b", "4", "-e", "7"}, 2), (std::vector<std::size_t>{4, 4}));
  EXPECT_EQ(sizes_of_cases({"sendrecv", "-b", "4", "-e", "8"}, 2), (std::vector<std::size_t>{4, 4, 8, 8}));
}

}  // namespace
}  // namespace tutti::perf
