// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/launch_on_threads.hpp"

#include "os/thread.hpp"

#include <exception>
#include <mutex>
#include <vector>

namespace tutti::transport::team {

void launch_on_threads(Abort& abort, std::size_t count, const std::function<void(std::size_t)>& launch) {
  std::mutex mutex;
  std::exception_ptr failure;
  const auto fail = [&] {
    abort.fail("cannot launch its members' kernels", backend::Escaped::current());
    const std::lock_guard lock(mutex);
    if (!failure) failure = std::current_exception();
  };
  const auto launch_one = [&](std::size_t i) {
    try {
      launch(i);
    } catch (...) {
      fail();
    }
  };
  std::vector<backend::Thread> threads;
  try {
    threads.reserve(count);
    for (std::size_t i = 1; i < count; ++i) {
      threads.emplace_back(
          backend::Thread::Role{.name = "tutti-launch", .purpose = "that launches a member's kernels"},
          [&launch_one, i] { launch_one(i); }, [](const backend::Escaped&) {});
    }
  } catch (const std::exception&) {
    fail();
  }
  launch_one(0);
  for (backend::Thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tutti::transport::team
