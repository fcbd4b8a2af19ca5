#include "mpi/checks.hpp"
#include "mpi/network.hpp"
#include "mpi/waiting.hpp"
#include "tutti/error.hpp"
#include "tutti/mpi.hpp"

#include <algorithm>
#include <climits>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti::mpi {
namespace {

MPI_Comm checked(MPI_Comm comm) {
  require_usable(comm, "tutti::mpi::Exchange");
  return comm;
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

/// Longer ones would not fit where time is counted in nanoseconds.
constexpr std::chrono::milliseconds longest_timeout = std::chrono::hours(24 * 365);

}  // namespace

Exchange::Exchange(MPI_Comm comm, std::chrono::milliseconds timeout)
    : timeout_(std::min(timeout, longest_timeout)),
      comm_(duplicate(checked(comm), timeout_)),
      rank_(rank_in(comm_)),
      size_(size_of(comm_)) {}

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

  std::vector<std::byte> given(mine.begin(), mine.end());
  std::vector<std::byte> gathered(all.size());
  const auto count = static_cast<int>(mine.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallgather(given.data(), count, MPI_BYTE, gathered.data(), count, MPI_BYTE, comm_, &request),
        "MPI_Iallgather");
  if (!completes_within(request, timeout_, "MPI_Iallgather")) {
    is_abandoned_ = true;
    leave_to_mpi(std::move(given));
    leave_to_mpi(std::move(gathered));
    throw Error(
        ErrorCode::timeout,
        fmt::format("MPI: after {} ms, rank {} of {} still waits for others to join, one of which has "
                    "failed or is late",
                    timeout_.count(), rank_, size_));
  }
  std::ranges::copy(gathered, all.begin());
}

std::unique_ptr<Network> Exchange::network() {
  return make_network(comm_, *this, timeout_);
}

}  // namespace tutti::mpi
