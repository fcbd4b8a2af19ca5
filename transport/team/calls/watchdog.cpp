// SPDX-License-Identifier: Apache-2.0
#include "transport/team/calls/watchdog.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tutti::transport::team {
namespace {

constexpr std::chrono::milliseconds watch_period{20};

}  // namespace

Watchdog::Watchdog(const Membership& membership, const SharedState& state, Progress& progress,
                   const FailureDetector& failure_detector, Waiting& waiting, Links& links, Replays& replays,
                   Abort& abort)
    : membership_(membership),
      state_(state),
      progress_(progress),
      failure_detector_(failure_detector),
      waiting_(waiting),
      links_(links),
      replays_(replays),
      abort_(abort) {}

void Watchdog::start() {
  thread_ = backend::Thread(
      {.name = "tutti-watch", .purpose = "that supervises a communicator"},
      [this, pauses = SuspensionDetector(failure_detector_.timeout())] { run(pauses); },
      [this](const backend::Escaped& escaped) { abort_.fail("cannot supervise its calls", escaped); });
}

void Watchdog::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  stops_.notify_all();
  thread_.join();
}

void Watchdog::set_abort_handler(std::function<void()> handler) {
  const std::lock_guard lock(mutex_);
  abort_handler_ = std::move(handler);
}

void Watchdog::run(SuspensionDetector pauses) {
  std::unique_lock lock(mutex_);
  while (!stops_.wait_for(lock, watch_period, [this] { return is_stopping_; })) {
    // Also after the end: ranks that go on as another team ask who is still alive.
    state_.status(membership_.rank()).watched_at.store(RankStatus::now());
    try {
      if (!abort_.is_set()) {
        look_around(pauses);
      } else {
        if (const auto handler = std::exchange(abort_handler_, nullptr)) handler();
        abort_.log_reason();
      }
    } catch (...) {
      abort_.fail("cannot supervise its calls", backend::Escaped::current());
    }
  }
}

void Watchdog::look_around(SuspensionDetector& pauses) {
  const RankStatus& status = state_.status(membership_.rank());
  const bool may_judge = pauses.may_judge(SuspensionDetector::Clock::now());
  waiting_.look_for_lost_ranks();
  // If devices are polled, the polling thread looks at the marks, as that may take long.
  if (!progress_.asks_devices()) progress_.look_at_marks();
  links_.look_around(may_judge);
  replays_.look_around(may_judge);
  if (const std::uint64_t done = progress_.completed(); done != done_) {
    done_ = done;
    done_since_ = RankStatus::now();
    waiting_.have_completed(done);
  }
  const auto oldest = progress_.oldest_under_way();
  if (!oldest || membership_.member_count() == 1) return;  // a member alone waits for nobody
  waiting_.look_for_ranks_that_left(*oldest, [&] { return state_.ranks_behind(*oldest); });
  const std::int64_t since =
      std::max({status.entries[*oldest % RankStatus::history].posted_at(), done_since_, replays_.moved_at()});
  // Messages before it and replays are told of, if it waits for those.
  if (!may_judge || links_.is_waiting_before(*oldest) || replays_.are_under_way()) return;
  // A call may have been completed that the devices have not told of yet.
  waiting_.look_at_call(*oldest, std::chrono::nanoseconds(progress_.known_now() - since));
}

}  // namespace tutti::transport::team
