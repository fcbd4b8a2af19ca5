// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>

#include <sys/prctl.h>
#include <unistd.h>

namespace tutti::test {

/// Makes a forked process do nothing until it is killed: by the test or, if that fails, when the thread that
/// has forked it ends.
[[noreturn]] inline void idle_until_killed() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) pause();
}

}  // namespace tutti::test
