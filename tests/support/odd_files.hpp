// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tutti::test {

/// Makes files that a program must not read to their end: a pipe without a writer, and a sparse file larger
/// than memory. The object removes both.
class OddFiles {
 public:
  OddFiles() {
    const bool are_made = mkfifo(pipe.c_str(), 0600) == 0 && mknod(large.c_str(), S_IFREG | 0600, 0) == 0 &&
                          truncate(large.c_str(), off_t{1} << 40) == 0;
    EXPECT_TRUE(are_made);
  }
  OddFiles(const OddFiles&) = delete;
  OddFiles& operator=(const OddFiles&) = delete;
  ~OddFiles() {
    unlink(pipe.c_str());
    unlink(large.c_str());
  }

  const std::string pipe = testing::TempDir() + "tutti_pipe_" + std::to_string(getpid());
  const std::string large = testing::TempDir() + "tutti_large_" + std::to_string(getpid());
};

}  // namespace tutti::test
