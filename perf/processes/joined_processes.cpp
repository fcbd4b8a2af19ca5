// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/joined_processes.hpp"

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

/// The first rank whose process has ended: "rank 1 (process 4711) is gone".
std::optional<std::string> first_gone(const std::vector<pid_t>& processes) {
  const auto is_gone = [](pid_t process) { return process != 0 && kill(process, 0) != 0 && errno == ESRCH; };
  const auto gone = std::ranges::find_if(processes, is_gone);
  if (gone == processes.end()) return std::nullopt;
  return fmt::format("rank {} (process {}) is gone", gone - processes.begin(), *gone);
}

/// Thrown on every rank by the same meeting. It leaves every `together` inside the outermost one that work
/// failed in: the rank that failed there is not in these.
class Agreed : public std::runtime_error {
 public:
  Agreed(Failure failure, std::size_t depth)
      : std::runtime_error(failure.message), failure_(std::move(failure)), depth_(depth) {}
  [[nodiscard]] const Failure& failure() const noexcept { return failure_; }
  [[nodiscard]] std::size_t depth() const noexcept { return depth_; }

 private:
  Failure failure_;
  std::size_t depth_;
};

/// What a rank says first in a meeting.
struct Greeting {
  std::size_t depth = 0;     ///< of the `together` in which it has failed; 0: it has not
  std::size_t characters{};  ///< of the text that follows
};

/// Throws Agreed if a rank has failed; its text then describes the failure.
void require_all_well(const std::vector<Greeting>& greetings, const std::vector<std::string>& texts) {
  std::vector<std::optional<Failure>> failures;
  std::size_t outermost = std::numeric_limits<std::size_t>::max();
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const std::size_t depth = greetings[rank].depth;
    failures.push_back(depth == 0 ? std::nullopt : std::optional(decode_failure(texts[rank])));
    if (depth != 0) outermost = std::min(outermost, depth);
  }
  if (std::ranges::any_of(failures, [](const auto& one) { return one.has_value(); }))
    throw Agreed(first_cause(failures), outermost);
}

}  // namespace

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
    if (const auto gone = first_gone(processes_.processes_)) lose(*gone);
    if (is_too_long(now - begin_)) give_up(own_.value_or(Failure{was_interrupted, {}, Interrupted().what()}));
    if (const auto late = overtime(); late && late->since > patience_after_overtime)
      give_up({timed_out, {}, late->message});
    // Want of memory is no end: what is left out for it is told in the table.
    if (own_ && !own_->is(ErrorCode::out_of_memory) && !has_spoken_ && now - begin_ > silence) speak(*own_);
  }
  [[noreturn]] void lose(const std::string& who) {
    const bool says_so = own_ && own_->is(ErrorCode::peer_unavailable);
    give_up(says_so ? *own_ : Failure{run_failed, ErrorCode::peer_unavailable, who});
  }

 private:
  void speak(const Failure& failure) {
    fmt::print(stderr, "tutti-perf: rank {}: {}\n", processes_.rank(), failure.message);
    std::fflush(stderr);
    has_spoken_ = true;
  }
  [[noreturn]] void give_up(const Failure& failure) {
    if (!has_spoken_) speak(failure);
    processes_.give_up(failure);
  }
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

void JoinedProcesses::exchange(std::span<const std::byte> mine, std::span<std::byte> all,
                               const std::optional<Failure>& own) {
  Patience patience(*this, own);
  try {
    all_gather(mine, all, [&patience] { patience.look(); });
  } catch (const Error& error) {
    patience.lose(error.what());
  }
}

void JoinedProcesses::together(const std::function<void()>& work, const Release& release) {
  const std::size_t depth = ++depth_;
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
  static_cast<void>(meet({}, own));
}

std::vector<std::string> JoinedProcesses::meet(const std::string& mine, const std::optional<Failure>& own) {
  const auto ranks = static_cast<std::size_t>(size());
  std::string text = own ? encode(*own) : mine;
  const Greeting greeting{own ? depth_ : 0, text.size()};
  std::vector<Greeting> greetings(ranks);
  exchange(std::as_bytes(std::span(&greeting, 1)), std::as_writable_bytes(std::span(greetings)), own);
  text.resize(std::ranges::max(greetings, {}, &Greeting::characters).characters);
  std::string all(ranks * text.size(), '\0');
  if (!all.empty()) exchange(std::as_bytes(std::span(text)), std::as_writable_bytes(std::span(all)), own);

  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    texts.push_back(all.substr(rank * text.size(), greetings[rank].characters));
  require_all_well(greetings, texts);
  return texts;
}

std::unique_ptr<Communicator> JoinedProcesses::make_communicator(const CommunicatorOptions& options) {
  JoinedProcesses::barrier();
  return join(options);
}

void JoinedProcesses::miss_those_that_go() {
  const std::string own = numbering();
  for (const std::string& line : gather(fmt::format("{} {}", getpid(), own))) {
    const bool is_visible = !own.empty() && line.substr(line.find(' ') + 1) == own;
    processes_.push_back(is_visible ? static_cast<pid_t>(std::stol(line)) : 0);
  }
}

void JoinedProcesses::give_up(const Failure& failure) {
  if (last_act_) last_act_(failure);
  end_job(failure.status);
  std::abort();
}

}  // namespace tutti::perf
