// SPDX-License-Identifier: Apache-2.0
#include "os/process_identity.hpp"

#include <array>
#include <cstdint>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti {
namespace {

TEST(ProcessIdentity, IsTheSameForAllThreadsAndAnotherForAChild) {
  const std::uint64_t mine = process_identity();
  EXPECT_NE(mine, 0U);
  EXPECT_EQ(process_identity(), mine);
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::uint64_t own = process_identity();
    _exit(write(pipe[1], &own, sizeof own) == sizeof own ? 0 : 1);
  }
  std::uint64_t of_child = 0;
  EXPECT_EQ(read(pipe[0], &of_child, sizeof of_child), static_cast<ssize_t>(sizeof of_child));
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_NE(of_child, mine);
  for (const int end : pipe) close(end);
  std::uint64_t of_thread = 0;
  std::thread([&of_thread] { of_thread = process_identity(); }).join();
  EXPECT_EQ(of_thread, mine);
}

}  // namespace
}  // namespace tutti
