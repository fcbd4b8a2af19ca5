// SPDX-License-Identifier: Apache-2.0
#include "backend/host/queues/interleaver.hpp"

#include <vector>

namespace tutti::backend::host {

namespace {

using std::chrono::milliseconds;

/// The time for an entry to finish, before the next one starts regardless.
constexpr milliseconds turn_patience{200};
/// The same for a host that does not wait for it.
constexpr milliseconds brief_patience{20};
/// The time without a call, before entries are chosen for a host that waits.
constexpr milliseconds silence_patience{250};
/// The interval of further checks of held entries.
constexpr milliseconds silent_pause{1};

}  // namespace

Interleaver::~Interleaver() {
  set_seed(std::nullopt);
}

std::optional<std::uint64_t> Interleaver::seed() const {
  const std::lock_guard lock(mutex_);
  return seed_;
}

void Interleaver::set_seed(std::optional<std::uint64_t> seed) {
  {
    std::unique_lock lock(mutex_);
    settled_.wait(lock, [this] { return settled() && overdue_.empty(); });
    seed_ = seed;
    generator_.seed(seed.value_or(0));
    active_.store(seed.has_value());
    stop_ = !seed.has_value();
    if (seed.has_value() && !watch_.joinable()) {
      watch_ = Thread(
          {.name = "tutti-silence", .purpose = "that chooses for a host that waits"},
          [this] { watch_for_silence(); }, [](const Escaped&) {});
    }
    stopped_.notify_all();
  }
  if (!seed.has_value() && watch_.joinable()) watch_.join();
}

std::uint64_t Interleaver::submit(StreamWorker& worker, std::unique_ptr<Task> task) {
  if (!active()) return worker.push(std::move(task));
  std::unique_lock lock(mutex_);
  if (!active()) return worker.push(std::move(task));
  worker.start();
  Lane& lane = lanes_[{worker.device(), worker.id()}];
  lane.worker = &worker;
  const std::uint64_t position = worker.progress()->submit();
  lane.held.push_back({std::move(task), position});
  // Half of the submissions choose nothing, the others one or two entries: the backlog grows until the host
  // waits.
  const std::uint64_t draw = generator_() % 4;
  pass(draw < 2 ? 0 : draw - 1);
  settle_briefly(lock);
  return position;
}

void Interleaver::choose_until(const std::shared_ptr<Progress>& progress, std::uint64_t position) {
  if (!active()) return;
  std::unique_lock lock(mutex_);
  ++calls_;
  while (active() && progress->chosen.load() < position && !progress->reached(position)) {
    if (choose_one()) continue;
    start_next();
    if (!settled()) {
      settle(lock);  // what is held may wait for flags that chosen entries set
    } else {
      // Or for those of other processes, or for entries submitted before the seed was set, by threads that
      // raced with that call.
      settled_.wait_for(lock, milliseconds(1));
    }
  }
  start_next();
}

void Interleaver::pass_time() {
  if (!active()) return;
  std::unique_lock lock(mutex_);
  pass(1 + generator_() % 2);
  settle_briefly(lock);
}

void Interleaver::wait_elsewhere() noexcept {
  if (!active()) return;
  const std::lock_guard lock(mutex_);
  ++calls_;
  try {
    choose_if_settled();
  } catch (...) {
    return;  // too little memory now: the next call tries again, or the watch
  }
}

void Interleaver::on_finished(const StreamWorker& worker) noexcept {
  const std::lock_guard lock(mutex_);
  if (const auto late = overdue_.find(&worker); late == overdue_.end()) {
    in_turn_ = nullptr;
  } else if (--late->second == 0) {
    overdue_.erase(late);
  }
  try {
    start_next();
  } catch (...) {
    return;  // the next call tries again, or the watch
  }
  if (settled()) settled_.notify_all();
}

void Interleaver::pass(std::uint64_t draws) {
  ++calls_;
  while (draws-- != 0 && choose_one()) {
  }
  start_next();
}

bool Interleaver::choose_one() {
  std::vector<Lanes::iterator> candidates;
  for (auto lane = lanes_.begin(); lane != lanes_.end(); ++lane) {
    const Task& next = *lane->second.held.front().task;
    if (!next.ready()) continue;
    const Ticket* awaited = next.awaited();
    if (awaited == nullptr || awaited->progress->chosen.load() >= awaited->position || awaited->complete()) {
      candidates.push_back(lane);
    }
  }
  if (candidates.empty()) return false;
  choose_head(candidates[generator_() % candidates.size()]);
  return true;
}

void Interleaver::choose_head(Lanes::iterator lane) {
  StreamWorker* worker = lane->second.worker;
  agenda_.push_back({worker, nullptr});
  Entry entry = std::move(lane->second.held.front());
  lane->second.held.pop_front();
  if (lane->second.held.empty()) lanes_.erase(lane);
  worker->progress()->chosen.store(entry.position);
  agenda_.back().task = std::move(entry.task);
}

void Interleaver::start_next() {
  while (in_turn_ == nullptr && !agenda_.empty()) {
    StreamWorker* const worker = agenda_.front().worker;
    worker->dispatch(agenda_.front().task);
    agenda_.pop_front();
    if (const auto late = overdue_.find(worker); late != overdue_.end()) {
      ++late->second;
    } else {
      in_turn_ = worker;
      ++turns_;
    }
  }
}

void Interleaver::end_turn() {
  if (in_turn_ == nullptr) return;
  overdue_.emplace(in_turn_, 1);
  in_turn_ = nullptr;
  start_next();
  if (settled()) settled_.notify_all();
}

void Interleaver::settle(std::unique_lock<std::mutex>& lock) {
  for (;;) {
    const std::uint64_t turns_seen = turns_;
    if (settled_.wait_for(lock, turn_patience, [this] { return settled(); })) return;
    if (turns_ == turns_seen) end_turn();
  }
}

void Interleaver::settle_briefly(std::unique_lock<std::mutex>& lock) {
  if (StreamWorker::is_any_running_here()) return;  // an entry's own turn ends after this
  while (!settled() && turns_ != long_turn_) {
    const std::uint64_t turns_seen = turns_;
    const bool is_over = settled_.wait_for(lock, brief_patience, [this] { return settled(); });
    if (!is_over && turns_ == turns_seen) long_turn_ = turns_seen;
  }
}

bool Interleaver::choose_if_settled() {
  if (!settled() || !choose_one()) return false;
  start_next();
  return true;
}

void Interleaver::watch_for_silence() {
  using Clock = std::chrono::steady_clock;
  std::unique_lock lock(mutex_);
  std::uint64_t calls_seen = calls_;
  std::uint64_t turns_seen = turns_;
  Clock::time_point turn_began = Clock::now();
  bool is_silent = false;
  while (!stop_) {
    stopped_.wait_for(lock, is_silent ? silent_pause : silence_patience, [this] { return stop_; });
    try {
      if (std::exchange(turns_seen, turns_) != turns_) {
        turn_began = Clock::now();
      } else if (Clock::now() - turn_began >= silence_patience) {
        end_turn();
      }
      // Others may wait for all that is held: once begun, this takes no further patience.
      is_silent = std::exchange(calls_seen, calls_) == calls_ && !lanes_.empty();
      while (is_silent && calls_ == calls_seen && choose_if_settled())
        settled_.wait_for(lock, silent_pause, [this] { return settled(); });
      start_next();
    } catch (...) {
      continue;  // too little memory now: once more
    }
  }
}

}  // namespace tutti::backend::host
