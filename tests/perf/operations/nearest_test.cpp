// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/nearest.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

TEST(PerfNearest, FindsSlipsOfAFinger) {
  const std::vector<std::string> names{"broadcast", "gather", "scatter", "reduce_add", "--minbytes"};
  for (const auto& [typed, meant] : {std::pair{"broadcst", "broadcast"},
                                     {"braodcast", "broadcast"},
                                     {"BROADCAST", "broadcast"},
                                     {"broad", "broadcast"},
                                     {"gater", "gather"},
                                     {"scattr", "scatter"},
                                     {"--minbyte", "--minbytes"},
                                     {"reduce_ad", "reduce_add"}})
    EXPECT_EQ(nearest(typed, names), meant) << typed;
}

TEST(PerfNearest, IsEmptyForWhatIsLikeNothing) {
  const std::vector<std::string> names{"broadcast", "gather"};
  for (const std::string& typed : {std::string(), std::string("b"), std::string("pigeon"), std::string("64M"),
                                   std::string(1'000'000, 'x')})
    EXPECT_EQ(nearest(typed, names), "") << typed.substr(0, 10);
  EXPECT_EQ(nearest("gather", {}), "");
}

TEST(PerfNearest, ANameThatThereIsNotIsToldWithTheOneThatWasMeant) {
  EXPECT_EQ(unknown_name("gater", "an operation", "gather", "gather or all"),
            "'gater' is not an operation: did you mean gather? Expected gather or all");
  EXPECT_EQ(unknown_name("x", "an operation", "", "gather or all"),
            "'x' is not an operation: expected gather or all");
}

}  // namespace
}  // namespace tutti::perf
