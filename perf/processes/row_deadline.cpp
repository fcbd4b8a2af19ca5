// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/row_deadline.hpp"

#include "perf/processes/exit_status.hpp"
#include "perf/processes/interrupt.hpp"

#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace tutti::perf {
namespace {

using namespace std::chrono_literals;

/// For what has been told to end. Ranks that have lost one another part before.
constexpr auto grace = 10s;

}  // namespace

RowDeadline::RowDeadline(std::optional<std::chrono::seconds> limit,
                         std::function<void(const std::string&)> release)
    : limit_(limit), release_(std::move(release)) {
  if (limit_) watcher_ = std::thread([this] { watch(); });
}

RowDeadline::~RowDeadline() {
  if (!limit_) return;
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  change_.notify_all();
  watcher_.join();
}

void RowDeadline::hold(const std::string& what, const std::function<void()>& work) {
  if (!limit_) return work();
  start(what);
  try {
    work();
  } catch (...) {
    stop();
    throw;
  }
  stop();
}

void RowDeadline::start(const std::string& what) {
  const std::scoped_lock lock(mutex_);
  begin_ = std::chrono::steady_clock::now();
  message_ = fmt::format("-T: {} has taken more than {} s", what, limit_->count());
  change_.notify_all();
}

void RowDeadline::stop() {
  const std::scoped_lock lock(mutex_);
  begin_.reset();
  change_.notify_all();
}

bool RowDeadline::lasts_until(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::time_point end) {
  const auto begin = begin_;
  return !change_.wait_until(lock, end, [&] { return begin_ != begin; });
}

void RowDeadline::watch() {
  std::unique_lock lock(mutex_);
  for (;;) {
    change_.wait(lock, [this] { return is_over_ || begin_; });
    if (!begin_) return;
    const auto end = *begin_ + *limit_;
    if (!lasts_until(lock, end)) continue;
    note_overtime(message_);
    lock.unlock();
    release_(message_);
    lock.lock();
    if (!begin_ || !lasts_until(lock, end + grace)) return;
    fmt::print(stderr, "tutti-perf: {}, and cannot be ended\n", message_);
    std::fflush(nullptr);
    _exit(timed_out);
  }
}

}  // namespace tutti::perf
