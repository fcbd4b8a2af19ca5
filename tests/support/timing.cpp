// SPDX-License-Identifier: Apache-2.0
#include "support/timing.hpp"

#include <thread>

namespace tutti::test {

std::chrono::steady_clock::duration time_of(const std::function<void()>& call) {
  const Stopwatch watch;
  call();
  return watch.elapsed();
}

testing::AssertionResult becomes_true(const std::function<bool()>& condition) {
  // Gives up before `Ranks::wait` kills the process.
  const std::chrono::milliseconds limit = hang_limit() / 2;
  for (const Stopwatch watch; !condition(); std::this_thread::sleep_for(std::chrono::microseconds(50))) {
    if (watch.elapsed() > limit) return testing::AssertionFailure() << "it does not come";
  }
  return testing::AssertionSuccess();
}

}  // namespace tutti::test
