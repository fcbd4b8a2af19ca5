// SPDX-License-Identifier: Apache-2.0
#include "transport/team/watch.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tutti::transport::ranks {
namespace {

constexpr std::chrono::milliseconds watch_period{20};
/// How long a device may owe an answer, because it copies other things first, until a call counts as late.
constexpr std::chrono::seconds longest_silence{1};

}  // namespace

Watch::Watch(const Membership& membership, const SharedState& state, Progress& progress,
             const Judgement& judgement, Waiting& waiting, Abort& abort)
    : membership_(membership),
      state_(state),
      progress_(progress),
      judgement_(judgement),
      waiting_(waiting),
      abort_(abort) {}

void Watch::start() {
  thread_ = backend::Thread(
      {.name = "tutti-watch", .purpose = "that watches over a communicator"},
      [this, lookout = Lookout(judgement_.timeout())] { run(lookout); },
      [this](const backend::Escaped& escaped) { abort_.fail("cannot watch over its calls", escaped); });
}

void Watch::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  stops_.notify_all();
  thread_.join();
}

void Watch::set_abort_handler(std::function<void()> handler) {
  const std::lock_guard lock(mutex_);
  abort_handler_ = std::move(handler);
}

void Watch::run(Lookout lookout) {
  std::unique_lock lock(mutex_);
  while (!stops_.wait_for(lock, watch_period, [this] { return is_stopping_; })) {
    try {
      if (!abort_.is_set()) {
        look_around(lookout);
      } else {
        if (const auto handler = std::exchange(abort_handler_, nullptr)) handler();
        abort_.log_reason();
      }
    } catch (...) {
      abort_.fail("cannot watch over its calls", backend::Escaped::current());
    }
  }
}

void Watch::look_around(Lookout& lookout) {
  RankBoard& board = state_.board(membership_.rank());
  board.watched_at.store(RankBoard::now());
  const bool may_judge = lookout.may_judge(Lookout::Clock::now());
  waiting_.look_for_lost_ranks();
  // Where devices are asked, whoever asks them looks at the marks, as that may take long.
  if (!progress_.asks_devices()) progress_.look_at_marks();
  if (const std::uint64_t done = progress_.completed(); done != done_) {
    done_ = done;
    done_since_ = RankBoard::now();
  }
  const auto oldest = progress_.oldest_under_way();
  if (!oldest || membership_.member_count() == 1) return;  // a member alone waits for nobody
  waiting_.look_for_ranks_that_left(*oldest, [&] { return state_.ranks_behind(*oldest); });
  const std::int64_t since = std::max(board.entries[*oldest % RankBoard::history].posted_at(), done_since_);
  const auto is_too_late = [&](std::int64_t now) {
    return std::chrono::nanoseconds(now - since) > judgement_.patience();
  };
  if (!may_judge || !is_too_late(RankBoard::now())) return;
  if (!progress_.asks_devices() || is_too_late(progress_.known_until()) ||
      progress_.silence() > longest_silence)
    waiting_.give_up(*oldest);
}

}  // namespace tutti::transport::ranks
