// SPDX-License-Identifier: Apache-2.0
#include "exit_status.hpp"
#include "failure.hpp"
#include "interrupt.hpp"
#include "processes.hpp"
#include "rank_processes.hpp"
#include "tutti/mpi.hpp"
#include "usage_error.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <thread>

#include <fmt/format.h>
#include <mpi.h>

namespace tutti::perf {
namespace {

using Clock = std::chrono::steady_clock;

using namespace std::chrono_literals;

/// How long a rank that has failed waits for the others, which may be stuck where nothing that it can do
/// frees them.
constexpr auto patience = 20s;
/// From then on it has said why.
constexpr auto silence = 2s;
/// After the signal that interrupts, or the death of a process, launchers allow a second.
constexpr auto patience_after_signal = 700ms;
constexpr auto least_patience = 200ms;
/// With others that have not been heard of in the communicator either.
constexpr auto patience_with_missing = 300ms;
constexpr auto between_looks = 10ms;

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

/// Each operation begins with a meeting, in which every rank says whether it has failed. A rank that has goes
/// on to its next meeting: whichever operations the others are about to begin, that is the same one.
class MpiProcesses final : public Processes {
 public:
  MpiProcesses() {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    ranks_.emplace([this](const std::string& mine) { return gather_now(mine); });
  }
  ~MpiProcesses() override {
    // A launcher ends the whole job when the first process leaves with a status other than 0.
    MPI_Barrier(comm_);
    MPI_Comm_free(&comm_);
    MPI_Finalize();
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] bool are_ranks() const override { return true; }

  void barrier() override { meet({}); }
  void maximum(std::span<double> values) override {
    meet({});
    finish([&](MPI_Request* request) {
      MPI_Iallreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX, comm_,
                     request);
    });
  }
  [[nodiscard]] std::uint64_t sum(std::uint64_t value) override {
    meet({});
    finish([&](MPI_Request* request) {
      MPI_Iallreduce(MPI_IN_PLACE, &value, 1, MPI_UINT64_T, MPI_SUM, comm_, request);
    });
    return value;
  }
  void broadcast(std::span<std::byte> bytes) override {
    meet({});
    finish([&](MPI_Request* request) {
      MPI_Ibcast(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, 0, comm_, request);
    });
  }
  [[nodiscard]] std::vector<std::string> gather(const std::string& mine) override {
    meet({});
    return gather_now(mine);
  }

  void together(const std::function<void()>& work, const Release& release) override {
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

  void set_last_act(LastAct last_act) override { last_act_ = std::move(last_act); }

  [[nodiscard]] std::unique_ptr<Communicator> make_communicator(const CommunicatorOptions& options) override {
    return std::make_unique<Communicator>(mpi::make_communicator(comm_, options));
  }

 private:
  void work_and_meet(const std::function<void()>& work, const Release& release) {
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

  void meet(const std::optional<Failure>& own) {
    const int failed = own ? 1 : 0;
    int any_failed = 0;
    finish(
        [&](MPI_Request* request) {
          MPI_Iallreduce(&failed, &any_failed, 1, MPI_INT, MPI_MAX, comm_, request);
        },
        own);
    if (any_failed == 0) return;
    int depth = own ? depth_ : std::numeric_limits<int>::max();
    finish([&](MPI_Request* request) {
      MPI_Iallreduce(MPI_IN_PLACE, &depth, 1, MPI_INT, MPI_MIN, comm_, request);
    });
    std::vector<std::optional<Failure>> by_rank;
    for (const std::string& bytes : gather_now(own ? encode(*own) : std::string())) {
      by_rank.push_back(bytes.empty() ? std::nullopt : std::optional(decode_failure(bytes)));
    }
    throw Agreed(first_cause(by_rank), depth);
  }

  /// Waits for what `start` begins, or gives up. `own`: with what this rank has failed.
  void finish(const std::function<void(MPI_Request*)>& start, const std::optional<Failure>& own = {}) const {
    MPI_Request request = MPI_REQUEST_NULL;
    start(&request);
    const Clock::time_point begin = Clock::now();
    Clock::time_point next_look = own ? begin : begin + between_looks;
    bool has_spoken = false;
    for (;;) {
      int done = 0;
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done != 0) return;
      const Clock::time_point now = Clock::now();
      if (own) std::this_thread::sleep_for(1ms);
      if (now < next_look) continue;
      next_look = now + between_looks;
      if (const std::optional<std::string> gone = ranks_ ? ranks_->gone() : std::nullopt) {
        const bool says_so = own && own->is(ErrorCode::peer_unavailable);
        give_up(says_so ? *own : Failure{Failure::Kind::error, ErrorCode::peer_unavailable, *gone},
                !has_spoken);
      }
      if (is_too_long(now - begin, own)) give_up(own.value_or(interrupted()), !has_spoken);
      // Want of memory is no end: what is left out for it is told in the table.
      if (own && !own->is(ErrorCode::out_of_memory) && !has_spoken && now - begin > silence) {
        speak(*own);
        has_spoken = true;
      }
    }
  }

  [[nodiscard]] bool is_too_long(Clock::duration waited, const std::optional<Failure>& own) const {
    // A rank that has not failed only goes ahead of the others for the sake of what it would lose.
    if (!own && rank_ != 0) return false;
    if (const auto since = time_since_interrupt())
      return *since > patience_after_signal && waited > least_patience;
    if (!own) return false;
    const bool misses_others = own->is(ErrorCode::peer_unavailable) || own->is(ErrorCode::timeout);
    return waited > (misses_others ? patience_with_missing : patience);
  }

  static Failure interrupted() { return failure_of(std::make_exception_ptr(Interrupted())); }

  void speak(const Failure& failure) const {
    fmt::print(stderr, "tutti-perf: rank {}: {}\n", rank_, failure.message);
    std::fflush(stderr);
  }

  /// Ends the job where the ranks cannot agree on how to end it.
  [[noreturn]] void give_up(const Failure& failure, bool speaks) const {
    if (speaks) speak(failure);
    if (last_act_) last_act_(failure);
    MPI_Abort(MPI_COMM_WORLD, failure.kind == Failure::Kind::interrupted ? was_interrupted : run_failed);
    std::abort();
  }

  [[nodiscard]] std::vector<std::string> gather_now(const std::string& mine) const {
    const auto ranks = static_cast<std::size_t>(size_);
    const int length = static_cast<int>(mine.size());
    std::vector<int> lengths(ranks);
    finish([&](MPI_Request* request) {
      MPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm_, request);
    });
    std::vector<int> starts(ranks + 1);
    for (std::size_t rank = 0; rank < ranks; ++rank) starts[rank + 1] = starts[rank] + lengths[rank];
    std::string all(static_cast<std::size_t>(starts.back()), '\0');
    finish([&](MPI_Request* request) {
      MPI_Iallgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), starts.data(), MPI_CHAR,
                      comm_, request);
    });
    std::vector<std::string> result;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      result.push_back(
          all.substr(static_cast<std::size_t>(starts[rank]), static_cast<std::size_t>(lengths[rank])));
    }
    return result;
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int depth_ = 0;  ///< of nested `together`
  std::optional<RankProcesses> ranks_;
  LastAct last_act_;
};

}  // namespace

std::unique_ptr<Processes> make_mpi_processes(const LaunchedAs& launched) {
  int provided = 0;
  // On several hosts a communicator calls MPI from a thread of its own.
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (launched.size && *launched.size != size) {
    MPI_Finalize();
    throw UsageError(fmt::format(
        "the launcher started {} processes, but the MPI library this tutti-perf is linked with finds "
        "{}: use the mpirun that belongs to it",
        *launched.size, size));
  }
  return std::make_unique<MpiProcesses>();
}

}  // namespace tutti::perf
