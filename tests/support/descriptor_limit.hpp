// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace tutti::test {

/// Lowers the number of descriptors that the process may have, for as long as this object lives.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t most) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit lower = before_;
    lower.rlim_cur = std::min(lower.rlim_cur, most);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace tutti::test
