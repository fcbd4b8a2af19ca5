// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/row_deadline.hpp"

#include "perf/processes/failure.hpp"
#include "perf/processes/interrupt.hpp"

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <stop_token>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

namespace tutti::perf {
namespace {

using namespace std::chrono_literals;

/// For what has been told to end. Ranks that have lost one another part before.
constexpr auto grace = 10s;

/// Waits so long. Returns true if the work has ended meanwhile.
bool ends_within(std::chrono::seconds time, const std::stop_token& end) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any never;
  return never.wait_for(lock, end, time, [&end] { return end.stop_requested(); });
}

}  // namespace

void within(std::optional<std::chrono::seconds> limit, const std::string& what,
            const std::function<void()>& work, const std::function<void(const std::string&)>& release) {
  if (!limit) return work();
  const std::jthread watcher([&](const std::stop_token& end) {
    if (ends_within(*limit, end)) return;
    const std::string message = fmt::format("-T: {} has taken more than {} s", what, limit->count());
    note_overtime(message);
    release(message);
    if (ends_within(grace, end)) return;
    fmt::print(stderr, "tutti-perf: {}, and cannot be ended\n", message);
    std::fflush(nullptr);
    _exit(timed_out);
  });
  work();
}

}  // namespace tutti::perf
