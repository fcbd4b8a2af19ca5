// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/mpi/checks.hpp"
#include "collectives/bootstrap/mpi/network.hpp"
#include "collectives/bootstrap/mpi/waiting.hpp"
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
    : made_with_(std::min(timeout, longest_timeout)),
      timeout_(made_with_),
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

  // From each to each: so it is known who has not come.
  const auto count = static_cast<int>(mine.size());
  struct Bytes {
    std::vector<std::byte> given;
    std::vector<std::byte> gathered;
  };
  const auto bytes = std::make_shared<Bytes>();
  bytes->given.assign(mine.begin(), mine.end());
  bytes->gathered.resize(all.size());
  const auto place = [&](int rank) { return static_cast<std::size_t>(rank) * mine.size(); };
  Requests receives;
  Requests sends;
  // If a call fails, MPI goes on with those that have been made, and writes where they said.
  const auto leave = [&] {
    is_abandoned_ = true;
    leave_to_mpi(bytes);
  };
  try {
    for (int step = 1; step < size_; ++step) {
      const int source = (rank_ + size_ - step) % size_;
      check(MPI_Irecv(bytes->gathered.data() + place(source), count, MPI_BYTE, source, 0, comm_,
                      receives.add(source, "MPI_Irecv")),
            "MPI_Irecv");
    }
    for (int step = 1; step < size_; ++step) {
      const int target = (rank_ + step) % size_;
      check(MPI_Isend(bytes->given.data(), count, MPI_BYTE, target, 0, comm_, sends.add(target, "MPI_Isend")),
            "MPI_Isend");
    }
    if (receives.complete_within(timeout_) && sends.complete_within(timeout_)) {
      std::ranges::copy(mine, bytes->gathered.begin() + static_cast<std::ptrdiff_t>(place(rank_)));
      std::ranges::copy(bytes->gathered, all.begin());
      return;
    }
  } catch (...) {
    leave();
    throw;
  }
  leave();
  const std::string missing = receives.missing();
  throw Error(ErrorCode::timeout,
              fmt::format("MPI: after {} ms, rank {} of {} still waits for {} to join", timeout_.count(),
                          rank_, size_, missing.empty() ? sends.missing() : missing));
}

void Exchange::limit_waits(std::chrono::milliseconds timeout) {
  timeout_ = std::min(made_with_, timeout);
}

std::unique_ptr<Network> Exchange::network() {
  return make_network(comm_, *this, timeout_);
}

}  // namespace tutti::mpi
