// SPDX-License-Identifier: Apache-2.0
#include "transport/team/team.hpp"

#include "log.hpp"
#include "transport/team/agreement.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::ranks {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Team::Team(Runtime& runtime, Exchange& exchange, Settings settings)
    : runtime_(runtime),
      settings_(std::move(settings)),
      rank_(exchange.rank()),
      rank_count_(static_cast<std::size_t>(exchange.size())),
      marks_(settings_.devices.size()),
      has_told_end_(settings_.devices.size()),
      live_teams_(runtime.extension<LiveTeams>().shared_from_this()) {
  Joining joining(exchange, settings_.timeout);
  join(joining);
  try {
    start_together(joining);
  } catch (...) {
    end();
    throw;
  }
}

void Team::free_left_memory(Runtime& runtime, std::span<const int> devices) noexcept {
  try {
    auto& live_teams = runtime.extension<LiveTeams>();
    live_teams.while_idle(nullptr, [&] { runtime.extension<LeftMemory>().sweep(devices); });
  } catch (const std::exception& error) {
    log_warning(fmt::format("Communicator: memory of earlier ones is not freed now: {}", error.what()));
  }
}

Team::~Team() {
  end();
}

void Team::start_together(Joining& exchange) {
  exchange.begin("start to watch over one another");
  std::exception_ptr failure;
  std::string complaint;
  try {
    start();
  } catch (const std::exception& error) {
    failure = std::current_exception();
    complaint = error.what();
  }
  complaint = first_complaint(exchange, complaint);
  if (failure) std::rethrow_exception(failure);
  if (!complaint.empty()) refuse_to_join(complaint);
}

void Team::start() {
  if (network_ != nullptr) {
    courier_ = std::make_unique<Courier>(*this, std::move(network_));
    courier_->start();
  }
  own().state.store(RankBoard::active);
  if (windows_->counters(0) != nullptr) watch_devices();
  watch_ = backend::Thread(
      {.name = "tutti-watch", .purpose = "that watches over a communicator"},
      [this, lookout = Lookout(settings_.timeout)] { watch(lookout); },
      [this](const backend::Escaped& escaped) { fail("cannot watch over its calls", escaped); });
  if (member_count() == 1) return;
  live_teams_->add(*this);
  // Elsewhere what has been ended fails by itself.
  if (progress_) runtime_.ended_work().add(*this, settings_.devices);
}

void Team::end() noexcept {
  runtime_.ended_work().remove(*this);
  live_teams_->remove(*this);
  leave();
  {
    const std::lock_guard lock(watch_mutex_);
    stop_watching_ = true;
  }
  watch_stops_.notify_all();
  watch_.join();
  tell_of_end();
  progress_.reset();
  // A thread that is still in the network keeps its courier.
  if (courier_ != nullptr && !courier_->stop()) static_cast<void>(courier_.release());
  leave_memory();
}

template <class Condition>
void Team::wait_until(std::uint64_t sequence, Condition holds, const std::vector<std::size_t>& missing) {
  const auto start = Clock::now();
  Lookout lookout(settings_.timeout);
  while (!holds()) {
    require_running();
    const auto now = Clock::now();
    const auto waited = now - start;
    if (lookout.may_judge(now) && waited > patience()) give_up(sequence, missing);
    runtime_.backend().wait_elsewhere();  // others may wait for what this rank has queued
    if (waited > std::chrono::microseconds(50)) {
      waits_in_.store(sequence);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    } else {
      std::this_thread::yield();
    }
  }
  waits_in_.store(0);
}

void Team::wait_for(std::uint64_t sequence, const std::function<bool()>& holds) {
  wait_until(sequence, holds);
}

void Team::wait_for_ranks(std::uint64_t sequence, const Missing& missing) {
  std::vector<std::size_t> late;
  const auto nobody_is_missing = [&] {
    late = missing();
    if (!late.empty()) look_for_ranks_that_left(sequence, missing);
    return late.empty();
  };
  wait_until(sequence, nobody_is_missing, late);
}

void Team::set_abort_handler(std::function<void()> handler) {
  const std::lock_guard lock(watch_mutex_);
  abort_handler_ = std::move(handler);
}

std::uint64_t Team::post(const Signature& signature, bool is_captured) {
  require_running();
  const std::uint64_t sequence = own().last_sequence.load() + 1;
  RankBoard::Entry& entry = own().entries[sequence % RankBoard::history];
  // Nobody may still want to compare with what stands there. How far the others are is asked now and then: it
  // lies in their processors' caches. Who is waited for is late with a call long before this one.
  if (sequence > all_have_posted_ + RankBoard::furthest_ahead) {
    const std::uint64_t needed = sequence - RankBoard::furthest_ahead;
    wait_for_ranks(needed, [&] { return behind(needed); });
    all_have_posted_ = sequence;
    for (const RankBoard& peer : std::span(boards_, rank_count_))
      all_have_posted_ = std::min(all_have_posted_, peer.last_sequence.load());
  }
  entry.write(sequence, signature, is_captured, RankBoard::now());
  if (is_captured) has_captured_ = true;
  if (!is_captured) last_awaited_.store(sequence, std::memory_order_release);
  own().last_sequence.store(sequence, std::memory_order_release);
  compare_with_first(static_cast<std::size_t>(rank_), signature, is_captured, sequence);
  if (courier_ != nullptr) courier_->wake();
  require_running();
  return sequence;
}

void Team::compare_with_first(std::size_t rank, const Signature& signature, bool is_captured,
                              std::uint64_t sequence) noexcept {
  if (first_calls_->agree(sequence, signature, is_captured)) return;
  for (std::size_t other = 0; other < rank_count_; ++other) {
    if (other != rank) compare(rank, signature, other, sequence);
  }
}

void Team::compare(std::size_t rank, const Signature& signature, std::size_t other,
                   std::uint64_t sequence) noexcept {
  const RankBoard::Entry& entry = board(other).entries[sequence % RankBoard::history];
  if (!entry.is(sequence)) return;
  const bool is_captured = board(rank).entries[sequence % RankBoard::history].is_captured();
  const bool is_theirs_captured = entry.is_captured();
  if (const Signature theirs = entry.common();
      !theirs.matches(signature) || is_theirs_captured != is_captured) {
    constexpr std::array<const char*, 2> captured{"", ", captured"};
    try {
      abort(ErrorCode::invalid_argument,
            fmt::format("call #{} does not match: rank {} calls {}{}, rank {} calls {}{}", sequence, rank,
                        to_string(signature), captured[is_captured ? 1 : 0], other, to_string(theirs),
                        captured[is_theirs_captured ? 1 : 0]));
    } catch (...) {
      fail("makes a call that does not match, or another rank does; which cannot be said",
           backend::Escaped::current());
    }
  }
}

std::unique_lock<std::mutex> Team::hold_if_idle() {
  std::unique_lock lock(calls_mutex_, std::try_to_lock);
  // After an abort, own work may still read what its owner no longer waits for.
  if (!lock.owns_lock() || has_captured_ || abort_->is_set() || has_calls_under_way()) return {};
  return lock;
}

std::vector<std::uint64_t> Team::agree(std::uint64_t sequence, const Signature& signature) {
  wait_for_ranks(sequence, [&] { return behind(sequence); });
  // Other calls have no numbers of their own, and who makes one has announced it before it is told that it
  // differs.
  const auto self = static_cast<std::size_t>(rank_);
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    if (rank != self) compare(self, signature, rank, sequence);
  }
  require_running();
  std::vector<std::uint64_t> numbers;
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    const auto own = board(rank).entries[sequence % RankBoard::history].signature().own;
    numbers.insert(numbers.end(), own.begin(), own.begin() + board(rank).member_count);
  }
  return numbers;
}

bool Team::abort(ErrorCode code, std::string_view reason) noexcept {
  const bool is_first =
      abort_->set(static_cast<std::uint32_t>(rank_), static_cast<std::uint32_t>(code), reason);
  if (courier_ != nullptr) courier_->wake();
  return is_first;
}

void Team::abort_as_elsewhere(ErrorCode code, std::string_view reason) noexcept {
  if (abort(code, reason) && code == ErrorCode::timeout) keep_record(record_of_timeout(UINT64_MAX, reason));
}

void Team::fail(std::string_view cannot, const backend::Escaped& escaped) noexcept {
  std::array<char, sizeof(backend::AbortReason::bytes)> text{};
  const auto end = fmt::format_to_n(text.data(), text.size(), "rank {} {}: {}", rank_, cannot, escaped.what);
  const std::string_view reason(text.data(), end.out);
  if (abort(escaped.code, reason)) has_told_.store(true);
  // What fails again and again, such as a device that is asked how far it is, is told once.
  if (!has_told_failure_.exchange(true)) log_warning(reason);
}

Error Team::end_reason() const {
  const backend::AbortReason& reason = abort_->reason();
  return {static_cast<ErrorCode>(reason.code), fmt::format("Communicator: {}", reason.text())};
}

void Team::require_running() const {
  if (abort_->is_set()) throw Error(end_reason());
}

}  // namespace tutti::transport::ranks
