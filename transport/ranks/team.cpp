#include "transport/ranks/team.hpp"

#include "log.hpp"
#include "transport/ranks/agreement.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <new>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tutti::transport::ranks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds watch_period{20};
/// How many calls a rank may be ahead of another: what the boards remember, less some for those who read
/// them.
constexpr std::uint64_t furthest_ahead = RankBoard::history / 2;
constexpr std::uint64_t latest_calls = 4;  ///< of each rank, in the log

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::int64_t now_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct Introduction {
  Note host;
  std::uint32_t member_count = 0;
  pid_t process = 0;
  std::uint64_t window_bytes = 0;
  TransportKind transport = TransportKind::automatic;
  Determinism determinism = Determinism::fastest;
  BackendKind backend = BackendKind::host;
};

/// Throws on all ranks alike if one of them has a complaint.
void require_no_complaint(Exchange& exchange, const std::string& mine) {
  if (const std::string complaint = first_complaint(exchange, mine); !complaint.empty()) {
    throw Error(ErrorCode::peer_unavailable,
                fmt::format("Communicator: not all ranks can join: {}", complaint));
  }
}

}  // namespace

void RankBoard::Entry::write(std::uint64_t sequence, const Signature& signature, bool is_captured,
                             std::int64_t now) noexcept {
  static_assert(std::is_trivially_copyable_v<Signature> && sizeof(Signature) % sizeof(std::uint64_t) == 0);
  std::array<std::uint64_t, word_count> words{};
  std::memcpy(words.data(), &signature, sizeof(signature));
  for (std::size_t i = 0; i < word_count; ++i) words_[i].store(words[i], std::memory_order_relaxed);
  posted_at_.store(now, std::memory_order_relaxed);
  is_captured_.store(is_captured, std::memory_order_relaxed);
  sequence_.store(sequence);
}

Signature RankBoard::Entry::signature() const noexcept {
  std::array<std::uint64_t, word_count> words{};
  for (std::size_t i = 0; i < word_count; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
  return std::bit_cast<Signature>(words);
}

Team::Team(Runtime& runtime, Exchange& exchange, Settings settings)
    : runtime_(runtime),
      settings_(std::move(settings)),
      rank_(exchange.rank()),
      rank_count_(static_cast<std::size_t>(exchange.size())),
      marks_(settings_.devices.size()) {
  try {
    join(exchange);
  } catch (...) {
    if (registered_) runtime_.backend().unregister_pinned(memory_.data());
    throw;
  }
  own().state.store(RankBoard::active);
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    const bool is_peer = rank != static_cast<std::size_t>(rank_);
    processes_.push_back(is_peer ? static_cast<int>(syscall(SYS_pidfd_open, board(rank).process, 0)) : -1);
  }
  watch_ = std::thread([this] { watch(); });
}

Team::~Team() {
  leave();
  {
    const std::lock_guard lock(watch_mutex_);
    stop_watching_ = true;
  }
  watch_stops_.notify_all();
  watch_.join();
  for (const int process : processes_) {
    if (process >= 0) ::close(process);
  }
  for (std::size_t own = 0; own < marks_.size(); ++own) {
    for (const Mark& mark : {marks_[own].oldest, marks_[own].latest}) {
      if (mark.event != nullptr) runtime_.events().release(settings_.devices[own], mark.event);
    }
  }
  windows_.reset();
  runtime_.backend().unregister_pinned(memory_.data());
}

/// Others' work may still read from this rank's device windows, and what others have open is not freed.
void Team::leave() noexcept {
  const auto deadline = Clock::now() + settings_.timeout;
  const auto wait_for_all = [&](std::uint32_t state) {
    if (windows_->transport() != TransportKind::p2p) return;
    // After an abort the others come soon, or not at all.
    const auto soon = Clock::now() + std::chrono::seconds(1);
    while (Clock::now() < (abort_->is_set() ? std::min(soon, deadline) : deadline) &&
           !std::ranges::all_of(std::span(boards_, rank_count_),
                                [state](const RankBoard& board) { return board.state.load() >= state; })) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  };
  own().state.store(RankBoard::leaving);
  wait_for_all(RankBoard::leaving);
  windows_->close();
  own().state.store(RankBoard::left);
  wait_for_all(RankBoard::left);
}

void Team::join(Exchange& exchange) {
  const auto introductions =
      gather(exchange, Introduction{.host = Note(host_identity()),
                                    .member_count = static_cast<std::uint32_t>(settings_.devices.size()),
                                    .process = getpid(),
                                    .window_bytes = settings_.window_bytes,
                                    .transport = settings_.transport,
                                    .determinism = settings_.determinism,
                                    .backend = runtime_.backend().kind()});
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    rank_of_member_.insert(rank_of_member_.end(), introductions[rank].member_count, rank);
    // All see the same introductions, so all throw.
    if (introductions[rank].host.text != introductions[0].host.text) {
      throw Error(
          ErrorCode::unsupported,
          fmt::format("Communicator: rank {} is on host '{}' and rank 0 on '{}': ranks must share one host",
                      rank, introductions[rank].host.string(), introductions[0].host.string()));
    }
    if (introductions[rank].window_bytes != introductions[0].window_bytes) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("Communicator: options.window_bytes is {} on rank {}, expected {} as on rank 0",
                              introductions[rank].window_bytes, rank, introductions[0].window_bytes));
    }
    if (introductions[rank].transport != introductions[0].transport) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("Communicator: options.transport is {} on rank {}, expected {} as on rank 0",
                      name_of(introductions[rank].transport), rank, name_of(introductions[0].transport)));
    }
  }

  for (std::size_t rank = 1; rank < rank_count_; ++rank) {
    const char* different = nullptr;
    if (introductions[rank].determinism != introductions[0].determinism) different = "options.determinism";
    if (introductions[rank].backend != introductions[0].backend) different = "the backend";
    if (different != nullptr) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("Communicator: {} is not the same on ranks 0 and {}, expected the same on all",
                              different, rank));
    }
  }
  layout_.members = static_cast<std::uint32_t>(member_count());
  layout_.slot_bytes = settings_.window_bytes / backend::TeamWindowLayout::slot_count /
                       backend::TeamWindowLayout::alignment * backend::TeamWindowLayout::alignment;
  const std::size_t bytes = lay_out(nullptr);
  std::string complaint;
  if (rank_ == 0) {
    try {
      memory_ = SharedMemory(bytes);
      lay_out(memory_.data());
    } catch (const Error& error) {
      complaint = error.what();
    }
  }
  const SharedMemory::Handle handle = gather(exchange, memory_.handle())[0];
  require_no_complaint(exchange, complaint);
  try {
    if (rank_ != 0) memory_ = SharedMemory(handle);
    lay_out(memory_.data());
    runtime_.backend().register_pinned(memory_.data(), memory_.size());
    registered_ = true;
  } catch (const Error& error) {
    complaint = error.what();
  }
  if (complaint.empty()) {
    own().process = getpid();
    own().first_member = static_cast<std::uint32_t>(
        std::ranges::find(rank_of_member_, static_cast<std::size_t>(rank_)) - rank_of_member_.begin());
    own().member_count = introductions[static_cast<std::size_t>(rank_)].member_count;
  }
  require_no_complaint(exchange, complaint);
  memory_.seal();
  windows_.emplace(
      runtime_, exchange, layout_,
      Windows::Team{.rank_of_member = rank_of_member_,
                    .first_own = first_local(),
                    .own_devices = settings_.devices,
                    .host_windows = host_windows_},
      settings_.transport == TransportKind::nccl ? TransportKind::automatic : settings_.transport);
}

std::size_t Team::lay_out(std::byte* memory) {
  // Zero-filled memory is what all of these look like at first, in every process that maps it.
  std::size_t used = 0;
  const auto place = [&](std::size_t bytes, std::size_t alignment) {
    used = round_up(used, alignment);
    return std::exchange(used, used + bytes);
  };
  const std::size_t abort = place(sizeof(backend::AbortWord), alignof(backend::AbortWord));
  const std::size_t boards = place(rank_count_ * sizeof(RankBoard), alignof(RankBoard));
  const std::size_t done = place(member_count() * sizeof(backend::SharedFlag), alignof(backend::SharedFlag));
  const std::size_t passed =
      place(member_count() * sizeof(backend::SharedFlag), alignof(backend::SharedFlag));
  const std::size_t mailboxes = place(2 * rank_count_ * sizeof(Mailbox), alignof(Mailbox));
  const std::size_t windows = place(member_count() * layout_.bytes(), backend::TeamWindowLayout::alignment);
  if (memory != nullptr) {
    abort_ = std::launder(reinterpret_cast<backend::AbortWord*>(memory + abort));
    boards_ = std::launder(reinterpret_cast<RankBoard*>(memory + boards));
    done_ = std::launder(reinterpret_cast<backend::SharedFlag*>(memory + done));
    passed_ = std::launder(reinterpret_cast<backend::SharedFlag*>(memory + passed));
    mailboxes_ = std::launder(reinterpret_cast<Mailbox*>(memory + mailboxes));
    host_windows_ = memory + windows;
  }
  return used;
}

template <class Condition>
void Team::wait_until(std::uint64_t sequence, Condition holds) {
  const auto start = Clock::now();
  while (!holds()) {
    require_running();
    const auto waited = Clock::now() - start;
    if (waited > settings_.timeout) give_up(sequence);
    if (waited > std::chrono::microseconds(50)) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    } else {
      std::this_thread::yield();
    }
  }
}

void Team::wait_for(std::uint64_t sequence, const std::function<bool()>& holds) {
  wait_until(sequence, holds);
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
  // lies in their processors' caches.
  if (sequence > all_have_posted_ + furthest_ahead) {
    wait_until(sequence, [&] {
      all_have_posted_ = sequence;
      for (const RankBoard& peer : std::span(boards_, rank_count_))
        all_have_posted_ = std::min(all_have_posted_, peer.last_sequence.load());
      return sequence <= all_have_posted_ + furthest_ahead;
    });
  }
  entry.write(sequence, signature, is_captured, now_nanoseconds());
  if (!is_captured) last_awaited_.store(sequence);
  own().last_sequence.store(sequence);
  // Both write before they read: of two neighbours that differ, one sees it at least. Where all neighbours
  // are alike, all are.
  const auto self = static_cast<std::size_t>(rank_);
  for (const std::size_t rank : {self + 1, self - 1}) {
    if (rank >= rank_count_) continue;
    const RankBoard::Entry& other = board(rank).entries[sequence % RankBoard::history];
    if (!other.is(sequence)) continue;
    if (const Signature theirs = other.signature(); !theirs.matches(signature)) {
      abort(ErrorCode::invalid_argument,
            fmt::format("call #{} does not match: rank {} calls {}, rank {} calls {}", sequence, rank_,
                        to_string(signature), rank, to_string(theirs)));
    }
  }
  require_running();
  return sequence;
}

std::vector<std::uint64_t> Team::agree(std::uint64_t sequence) {
  wait_until(sequence, [&] {
    return std::ranges::all_of(std::span(boards_, rank_count_),
                               [&](const RankBoard& peer) { return peer.last_sequence.load() >= sequence; });
  });
  std::vector<std::uint64_t> numbers;
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    const auto own = board(rank).entries[sequence % RankBoard::history].signature().own;
    numbers.insert(numbers.end(), own.begin(), own.begin() + board(rank).member_count);
  }
  return numbers;
}

void Team::abort(ErrorCode code, const std::string& reason) noexcept {
  std::uint32_t expected = backend::AbortWord::running;
  if (!abort_->state.compare_exchange_strong(expected, backend::AbortWord::being_written)) return;
  abort_->code = static_cast<std::uint32_t>(code);
  abort_->length = static_cast<std::uint32_t>(std::min(reason.size(), abort_->text.size()));
  std::copy_n(reason.begin(), abort_->length, abort_->text.begin());
  abort_->state.store(backend::AbortWord::aborted);
}

void Team::require_running() const {
  if (abort_->state.load() == backend::AbortWord::running) return;
  while (!abort_->is_set()) std::this_thread::yield();
  throw Error(static_cast<ErrorCode>(abort_->code), fmt::format("Communicator: {}", abort_->reason()));
}

std::uint32_t Team::completed_by(std::size_t member) const noexcept {
  const std::uint32_t by_rounds = done_[member].value.load();
  const std::uint32_t by_marks = passed_[member].value.load();
  return backend::has_reached(by_rounds, by_marks) ? by_rounds : by_marks;
}

bool Team::has_completed(const RankBoard& of, std::uint64_t sequence) const noexcept {
  for (std::uint32_t member = of.first_member; member < of.first_member + of.member_count; ++member) {
    if (!backend::has_reached(completed_by(member), static_cast<std::uint32_t>(sequence))) return false;
  }
  return true;
}

std::uint64_t Team::completed() const noexcept {
  const std::uint64_t posted = own().last_sequence.load();
  std::uint32_t behind = 0;
  for (std::size_t member = first_local(); member < first_local() + local_count(); ++member) {
    const std::uint32_t member_behind = static_cast<std::uint32_t>(posted) - completed_by(member);
    if (static_cast<std::int32_t>(member_behind) > 0) behind = std::max(behind, member_behind);
  }
  // What has been captured has been completed as far as this process has anything to wait for.
  return posted - behind >= last_awaited_.load() ? posted : posted - behind;
}

void Team::record(Mark& mark, std::uint64_t sequence, backend::StreamRef stream) {
  if (mark.event == nullptr) mark.event = runtime_.events().acquire(stream.device);
  runtime_.backend().record_event(mark.event, stream);
  mark.sequence = static_cast<std::uint32_t>(sequence);
  mark.is_pending = true;
}

bool Team::is_passed(Mark& mark) {
  if (!mark.is_pending || !runtime_.backend().query_event(mark.event)) return false;
  mark.is_pending = false;
  return true;
}

void Team::done_after(std::size_t own_member, std::uint64_t sequence, backend::StreamRef stream) {
  const std::lock_guard lock(marks_mutex_);
  Marks& marks = marks_[own_member];
  record(marks.oldest.is_pending ? marks.latest : marks.oldest, sequence, stream);
}

void Team::look_at_marks() noexcept {
  const std::lock_guard lock(marks_mutex_);
  for (std::size_t own = 0; own < marks_.size(); ++own) {
    Marks& marks = marks_[own];
    try {
      while (is_passed(marks.oldest)) {
        backend::set_flag(passed_[first_local() + own], marks.oldest.sequence);
        std::swap(marks.oldest, marks.latest);
      }
    } catch (const Error& error) {
      abort(error.code(), fmt::format("rank {}: {}", rank_, error.what()));
    }
  }
}

bool Team::is_idle() noexcept {
  look_at_marks();
  return completed() == own().last_sequence.load();
}

std::string Team::call_of(const RankBoard& of, std::uint64_t sequence) const {
  if (sequence == 0) return "nothing yet";
  const RankBoard::Entry& entry = of.entries[sequence % RankBoard::history];
  const std::string what = entry.is(sequence) ? to_string(entry.signature()) : "a call";
  return fmt::format("{} (#{})", what, sequence);
}

std::string Team::who_is_late(std::uint64_t sequence) const {
  std::string late;
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    const std::uint64_t last = board(rank).last_sequence.load();
    if (last >= sequence) continue;
    if (!late.empty()) late += "; ";
    late += fmt::format("rank {} has not made it, its last call is {}", rank, call_of(board(rank), last));
  }
  if (!late.empty()) return late;
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    if (has_completed(board(rank), sequence)) continue;
    late += fmt::format("{}rank {} has made it and not completed it", late.empty() ? "" : "; ", rank);
  }
  return late.empty() ? "it completes just now" : late;
}

void Team::give_up(std::uint64_t sequence) {
  if (!abort_->is_set()) log_warning(fmt::format("flight record: {}", record(latest_calls)));
  abort(ErrorCode::timeout, fmt::format("{} did not finish within {} ms: {}", call_of(own(), sequence),
                                        settings_.timeout.count(), who_is_late(sequence)));
}

void Team::watch() {
  std::unique_lock lock(watch_mutex_);
  while (!watch_stops_.wait_for(lock, watch_period, [this] { return stop_watching_; })) {
    if (abort_->state.load() != backend::AbortWord::running) {
      if (const auto handler = std::exchange(abort_handler_, nullptr)) handler();
      continue;
    }
    look_for_lost_ranks();
    look_at_marks();
    const std::uint64_t done = completed();
    if (done == own().last_sequence.load()) continue;
    // The oldest that is still remembered.
    const std::uint64_t posted = own().last_sequence.load();
    const std::uint64_t first = std::max(done + 1, posted < furthest_ahead ? 1 : posted - furthest_ahead);
    const RankBoard::Entry& oldest = own().entries[first % RankBoard::history];
    if (!oldest.is(first)) continue;
    const std::chrono::nanoseconds waited(now_nanoseconds() - oldest.posted_at());
    if (waited > settings_.timeout) give_up(done + 1);
  }
}

void Team::look_for_lost_ranks() {
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    if (rank == static_cast<std::size_t>(rank_)) continue;
    pollfd descriptor{.fd = processes_[rank], .events = POLLIN, .revents = 0};
    const bool is_gone = processes_[rank] >= 0 ? poll(&descriptor, 1, 0) == 1
                                               : kill(board(rank).process, 0) != 0 && errno == ESRCH;
    if (!is_gone || board(rank).state.load() >= RankBoard::leaving) continue;
    const std::uint64_t sequence = completed() + 1;
    const bool is_waiting = sequence <= own().last_sequence.load();
    abort(
        ErrorCode::peer_unavailable,
        fmt::format("rank {} (process {}) is gone; its last call was {}{}", rank, board(rank).process,
                    call_of(board(rank), board(rank).last_sequence.load()),
                    is_waiting ? fmt::format("; rank {} waits in {}", rank_, call_of(own(), sequence)) : ""));
    return;
  }
}

std::string Team::record(std::uint64_t most_calls) const {
  using Json = nlohmann::ordered_json;
  const std::int64_t now = now_nanoseconds();
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    const RankBoard& board = boards_[rank];
    const std::uint64_t last = board.last_sequence.load();
    Json calls = Json::array();
    const std::uint64_t count = std::min({last, furthest_ahead, most_calls});
    for (std::uint64_t sequence = last - count + 1; sequence <= last; ++sequence) {
      const RankBoard::Entry& entry = board.entries[sequence % RankBoard::history];
      if (!entry.is(sequence)) continue;
      calls.push_back({{"sequence", sequence},
                       {"call", to_string(entry.signature())},
                       {"microseconds_ago", (now - entry.posted_at()) / 1000},
                       {"captured", entry.is_captured()},
                       {"completed", has_completed(board, sequence)}});
    }
    constexpr std::array<std::string_view, 4> states{"joining", "active", "leaving", "left"};
    ranks.push_back({{"rank", rank},
                     {"process", board.process},
                     {"state", states[std::min<std::size_t>(board.state.load(), states.size() - 1)]},
                     {"calls", std::move(calls)}});
  }
  Json document = {{"schema", "tutti-flight-record/1"},
                   {"written_by", rank_},
                   {"aborted", nullptr},
                   {"ranks", std::move(ranks)}};
  if (abort_->is_set()) document["aborted"] = abort_->reason();
  return document.dump();
}

}  // namespace tutti::transport::ranks
