// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/joined_processes.hpp"

#include "perf/processes/exit_status.hpp"
#include "perf/processes/interrupt.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

namespace tutti::perf {
namespace {

/// Where a process number means the same process: one boot of a machine and one namespace. Empty if unknown.
std::string numbering() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> space{};
  const bool is_known = readlink("/proc/self/ns/pid", space.data(), space.size() - 1) > 0;
  return boot.empty() || !is_known ? "" : fmt::format("{} {}", boot, space.data());
}

using Clock = std::chrono::steady_clock;

using namespace std::chrono_literals;

/// How long a rank that has failed waits for the others, which may be stuck where nothing that it can do
/// frees them.
constexpr auto longest_wait = 20s;
/// From then on it has said why.
constexpr auto silence = 2s;
/// After the signal that interrupts, or the death of a process, launchers allow a second.
constexpr auto patience_after_signal = 700ms;
constexpr auto least_patience = 200ms;
/// With others that have not been heard of in the communicator either.
constexpr auto patience_with_missing = 300ms;
/// With others that do not end a row that takes too long.
constexpr auto patience_after_overtime = 2s;
constexpr auto between_looks = 10ms;

ExitStatus status_after(const Failure& failure) {
  if (failure.kind == Failure::Kind::interrupted) return was_interrupted;
  return failure.kind == Failure::Kind::timed_out ? timed_out : run_failed;
}

/// Thrown on every rank by the same meeting. It leaves every `together` inside the outermost one that work
/// failed in: the rank that failed there is not in these.
class Agreed : public std::runtime_error {
 public:
  Agreed(Failure failure, int depth)
      : std::runtime_error(failure.message), failure_(std::move(failure)), depth_(depth) {}
  [[nodiscard]] const Failure& failure() const noexcept { return failure_; }
  [[nodiscard]] int depth() const noexcept { return depth_; }

 private:
  Failure failure_;
  int depth_;
};

template <class Object>
std::span<const std::byte> bytes_of(const Object& object) {
  return std::as_bytes(std::span(&object, 1));
}

}  // namespace

RankProcesses::RankProcesses(const Gather& gather) {
  const std::string own = numbering();
  for (const std::string& line : gather(fmt::format("{} {}", getpid(), own))) {
    const bool is_visible = !own.empty() && line.substr(line.find(' ') + 1) == own;
    processes_.push_back(is_visible ? static_cast<pid_t>(std::stol(line)) : 0);
  }
}

std::optional<std::string> RankProcesses::gone() const {
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    const pid_t process = processes_[rank];
    if (process != 0 && kill(process, 0) != 0 && errno == ESRCH)
      return fmt::format("rank {} (process {}) is gone", rank, process);
  }
  return std::nullopt;
}

/// Of one wait for other ranks.
class JoinedProcesses::Patience {
 public:
  Patience(JoinedProcesses& processes, const std::optional<Failure>& own)
      : processes_(processes),
        own_(own),
        begin_(Clock::now()),
        next_look_(own ? begin_ : begin_ + between_looks) {}

  void look() {
    const Clock::time_point now = Clock::now();
    if (own_) std::this_thread::sleep_for(1ms);
    if (now < next_look_) return;
    next_look_ = now + between_looks;
    if (const auto gone = processes_.ranks_ ? processes_.ranks_->gone() : std::nullopt) lose(*gone);
    if (is_too_long(now - begin_))
      processes_.give_up(own_.value_or(failure_of(std::make_exception_ptr(Interrupted()))), !has_spoken_);
    if (const auto late = overtime(); late && late->since > patience_after_overtime)
      processes_.give_up(failure_of(std::make_exception_ptr(TimedOut(late->message))), !has_spoken_);
    // Want of memory is no end: what is left out for it is told in the table.
    if (own_ && !own_->is(ErrorCode::out_of_memory) && !has_spoken_ && now - begin_ > silence) {
      processes_.speak(*own_);
      has_spoken_ = true;
    }
  }
  [[noreturn]] void lose(const std::string& who) {
    const bool says_so = own_ && own_->is(ErrorCode::peer_unavailable);
    processes_.give_up(says_so ? *own_ : Failure{Failure::Kind::error, ErrorCode::peer_unavailable, who},
                       !has_spoken_);
  }

 private:
  [[nodiscard]] bool is_too_long(Clock::duration waited) const {
    // A rank that has not failed only goes ahead of the others for the sake of what it would lose.
    if (!own_ && processes_.rank() != 0) return false;
    if (const auto since = time_since_interrupt())
      return *since > patience_after_signal && waited > least_patience;
    if (!own_) return false;
    const bool misses_others = own_->is(ErrorCode::peer_unavailable) || own_->is(ErrorCode::timeout);
    return waited > (misses_others ? patience_with_missing : longest_wait);
  }

  JoinedProcesses& processes_;
  const std::optional<Failure>& own_;
  Clock::time_point begin_;
  Clock::time_point next_look_;
  bool has_spoken_ = false;
};

void JoinedProcesses::exchange(const std::function<void(const Look&)>& exchange,
                               const std::optional<Failure>& own) {
  Patience patience(*this, own);
  try {
    exchange([&patience] { patience.look(); });
  } catch (const Error& error) {
    patience.lose(error.what());
  }
}

void JoinedProcesses::maximum(std::span<double> values) {
  meet({});
  exchange([&](const Look& look) { all_maximum(values, look); });
}

std::uint64_t JoinedProcesses::sum(std::uint64_t value) {
  meet({});
  std::vector<std::uint64_t> values(static_cast<std::size_t>(size()));
  exchange([&](const Look& look) {
    all_gather(bytes_of(value), std::as_writable_bytes(std::span(values)), look);
  });
  std::uint64_t sum = 0;
  for (const std::uint64_t each : values) sum += each;
  return sum;
}

void JoinedProcesses::broadcast(std::span<std::byte> bytes) {
  meet({});
  std::vector<std::byte> all(bytes.size() * static_cast<std::size_t>(size()));
  exchange([&](const Look& look) { all_gather(bytes, all, look); });
  std::ranges::copy(std::span(all).first(bytes.size()), bytes.begin());
}

std::vector<std::string> JoinedProcesses::gather(const std::string& mine) {
  meet({});
  return gather_now(mine);
}

std::vector<std::string> JoinedProcesses::gather_now(const std::string& mine) {
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<std::uint64_t> lengths(ranks);
  const std::uint64_t length = mine.size();
  exchange([&](const Look& look) {
    all_gather(bytes_of(length), std::as_writable_bytes(std::span(lengths)), look);
  });
  std::string padded = mine;
  padded.resize(std::ranges::max(lengths));
  std::string all(ranks * padded.size(), '\0');
  exchange([&](const Look& look) {
    all_gather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)), look);
  });
  std::vector<std::string> result;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    result.push_back(all.substr(rank * padded.size(), lengths[rank]));
  return result;
}

void JoinedProcesses::together(const std::function<void()>& work, const Release& release) {
  const int depth = ++depth_;
  try {
    work_and_meet(work, release);
    --depth_;
  } catch (const Agreed& agreed) {
    --depth_;
    if (agreed.depth() < depth) throw;
    raise(agreed.failure());
  }
}

void JoinedProcesses::work_and_meet(const std::function<void()>& work, const Release& release) {
  std::optional<Failure> own;
  try {
    work();
  } catch (const Agreed&) {
    throw;
  } catch (...) {
    own = failure_of(std::current_exception());
  }
  if (own && release && !own->is(ErrorCode::unsupported)) release(*own);
  meet(own);
}

void JoinedProcesses::meet(const std::optional<Failure>& own) {
  constexpr double deepest = -std::numeric_limits<double>::infinity();
  std::array<double, 2> values{own ? 1.0 : 0.0, own ? -double(depth_) : deepest};
  exchange([&](const Look& look) { all_maximum(values, look); }, own);
  const auto [any_has_failed, outermost] = values;
  if (any_has_failed == 0.0) return;
  std::vector<std::optional<Failure>> by_rank;
  for (const std::string& bytes : gather_now(own ? encode(*own) : std::string()))
    by_rank.push_back(bytes.empty() ? std::nullopt : std::optional(decode_failure(bytes)));
  throw Agreed(first_cause(by_rank), static_cast<int>(-outermost));
}

std::unique_ptr<Communicator> JoinedProcesses::make_communicator(const CommunicatorOptions& options) {
  meet({});
  return join(options);
}

void JoinedProcesses::miss_those_that_go() {
  ranks_.emplace([this](const std::string& mine) { return gather_now(mine); });
}

void JoinedProcesses::speak(const Failure& failure) const {
  fmt::print(stderr, "tutti-perf: rank {}: {}\n", rank(), failure.message);
  std::fflush(stderr);
}

void JoinedProcesses::give_up(const Failure& failure, bool speaks) {
  if (speaks) speak(failure);
  if (last_act_) last_act_(failure);
  end_job(status_after(failure));
  std::abort();
}

}  // namespace tutti::perf
