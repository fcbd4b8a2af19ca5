// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shared/peer_process.hpp"

#include "support/memory/process_resources.hpp"
#include "support/timing.hpp"

#include <csignal>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti::transport::team {
namespace {

pid_t start_child() {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  return child;
}

TEST(PeerProcess, IsGoneOnceItHasEnded) {
  const pid_t child = start_child();
  const PeerProcess peer(child);
  EXPECT_FALSE(peer.is_gone());
  kill(child, SIGKILL);
  EXPECT_TRUE(test::becomes_true([&] { return peer.is_gone(); })) << "though nobody has waited for it";
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(peer.is_gone());
  EXPECT_TRUE(PeerProcess(child).is_gone());
  EXPECT_FALSE(PeerProcess().is_gone()) << "which is none";
}

TEST(PeerProcess, LeavesNoDescriptorsOpen) {
  const std::size_t descriptors = test::open_descriptors();
  {
    std::vector<PeerProcess> peers;
    for (int i = 0; i < 10; ++i) peers.emplace_back(getpid());
    peers[3] = PeerProcess(getpid());
    PeerProcess moved = std::move(peers[4]);
    peers[5] = std::move(moved);
    EXPECT_FALSE(peers[5].is_gone());
  }
  EXPECT_EQ(test::open_descriptors(), descriptors);
}

}  // namespace
}  // namespace tutti::transport::team
