#include "failure.hpp"
#include "processes.hpp"
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

/// Ends the job where the ranks cannot agree on how to end it.
[[noreturn]] void give_up(int rank, const Failure& failure) {
  fmt::print(stderr, "tutti-perf: rank {}: {}\n", rank, failure.message);
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, failure.kind == Failure::Kind::interrupted ? 130 : 3);
  std::abort();
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

/// Each operation begins with a meeting, in which every rank says whether it has failed. A rank that has goes
/// on to its next meeting: whichever operations the others are about to begin, that is the same one.
class MpiProcesses final : public Processes {
 public:
  MpiProcesses() {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
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
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX, comm_);
  }
  [[nodiscard]] std::uint64_t sum(std::uint64_t value) override {
    meet({});
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_UINT64_T, MPI_SUM, comm_);
    return value;
  }
  void broadcast(std::span<std::byte> bytes) override {
    meet({});
    MPI_Bcast(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, 0, comm_);
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
    if (own && release && !own->is(ErrorCode::unsupported)) release(own->message);
    meet(own);
  }

  void meet(const std::optional<Failure>& own) {
    const int failed = own ? 1 : 0;
    int any_failed = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(&failed, &any_failed, 1, MPI_INT, MPI_MAX, comm_, &request);
    if (own) {
      wait_or_give_up(request, *own);
    } else {
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (any_failed == 0) return;
    int depth = own ? depth_ : std::numeric_limits<int>::max();
    MPI_Allreduce(MPI_IN_PLACE, &depth, 1, MPI_INT, MPI_MIN, comm_);
    std::vector<std::optional<Failure>> by_rank;
    for (const std::string& bytes : gather_now(own ? encode(*own) : std::string())) {
      by_rank.push_back(bytes.empty() ? std::nullopt : std::optional(decode_failure(bytes)));
    }
    throw Agreed(first_cause(by_rank), depth);
  }

  /// The others may be stuck where nothing that failed here can free them.
  void wait_or_give_up(MPI_Request& request, const Failure& own) const {
    // After the signal that interrupts, launchers allow a second.
    const auto patience = own.kind == Failure::Kind::interrupted ? std::chrono::milliseconds(700)
                                                                 : std::chrono::milliseconds(20'000);
    const Clock::time_point deadline = Clock::now() + patience;
    for (int done = 0; done == 0;) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done != 0) return;
      if (Clock::now() > deadline) give_up(rank_, own);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  [[nodiscard]] std::vector<std::string> gather_now(const std::string& mine) const {
    const auto ranks = static_cast<std::size_t>(size_);
    const int length = static_cast<int>(mine.size());
    std::vector<int> lengths(ranks);
    MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm_);
    std::vector<int> starts(ranks + 1);
    for (std::size_t rank = 0; rank < ranks; ++rank) starts[rank + 1] = starts[rank] + lengths[rank];
    std::string all(static_cast<std::size_t>(starts.back()), '\0');
    MPI_Allgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), starts.data(), MPI_CHAR, comm_);
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
