#include "mpi/checks.hpp"
#include "tutti/error.hpp"
#include "tutti/mpi.hpp"

#include <algorithm>
#include <climits>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti::mpi {
namespace {

MPI_Comm duplicate(MPI_Comm comm) {
  require_usable(comm, "tutti::mpi::Exchange");
  MPI_Comm copy = MPI_COMM_NULL;
  check(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
  // From here on, failures are returned instead of ending the job.
  check(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return copy;
}

int rank_in(MPI_Comm comm) {
  int rank = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

/// MPI waits by spinning, which takes the processor from ranks that share it.
bool completes_within(MPI_Request& request, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (int round = 0;; ++round) {
    int is_complete = 0;
    check(MPI_Test(&request, &is_complete, MPI_STATUS_IGNORE), "MPI_Iallgather");
    if (is_complete != 0) return true;
    if (std::chrono::steady_clock::now() > deadline) return false;
    if (round < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

struct Buffers {
  std::vector<std::byte> mine;
  std::vector<std::byte> all;
};

/// MPI cannot cancel an all_gather: the memory of one that is given up is MPI's until the process ends.
void leave_to_mpi(std::unique_ptr<Buffers> buffers) {
  static std::mutex mutex;
  static auto* const given_up = new std::vector<std::unique_ptr<Buffers>>;
  const std::scoped_lock lock(mutex);
  given_up->push_back(std::move(buffers));
}

}  // namespace

Exchange::Exchange(MPI_Comm comm, std::chrono::milliseconds timeout)
    : comm_(duplicate(comm)), timeout_(timeout), rank_(rank_in(comm_)), size_(size_of(comm_)) {}

Exchange::~Exchange() {
  // An all_gather that was given up is still under way.
  if (!is_abandoned_ && is_running()) MPI_Comm_free(&comm_);
}

void Exchange::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  const auto fail = [](const std::string& what) {
    throw Error(ErrorCode::invalid_argument, "tutti::mpi::Exchange::all_gather: " + what);
  };
  if (is_abandoned_) fail("an earlier call was given up");
  if (mine.size() > INT_MAX) {
    fail(fmt::format("mine has {} bytes, expected {} at most, the largest count of MPI", mine.size(),
                     INT_MAX));
  }
  if (all.size() != mine.size() * static_cast<std::size_t>(size_)) {
    fail(fmt::format("all has {} bytes, expected {}, {} for each of {} ranks", all.size(),
                     mine.size() * static_cast<std::size_t>(size_), mine.size(), size_));
  }

  auto buffers =
      std::make_unique<Buffers>(Buffers{{mine.begin(), mine.end()}, std::vector<std::byte>(all.size())});
  const auto count = static_cast<int>(mine.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallgather(buffers->mine.data(), count, MPI_BYTE, buffers->all.data(), count, MPI_BYTE, comm_,
                       &request),
        "MPI_Iallgather");
  if (!completes_within(request, timeout_)) {
    is_abandoned_ = true;
    leave_to_mpi(std::move(buffers));
    throw Error(
        ErrorCode::timeout,
        fmt::format("MPI: after {} ms, rank {} of {} still waits for others to join, one of which has "
                    "failed or is late",
                    timeout_.count(), rank_, size_));
  }
  std::ranges::copy(buffers->all, all.begin());
}

}  // namespace tutti::mpi
