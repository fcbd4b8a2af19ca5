// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/mpi/waiting.hpp"

#include "base/ranks_in_words.hpp"
#include "collectives/bootstrap/mpi/checks.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti::mpi {
namespace {

/// Tells which ranks have come. Part of a collective on a communicator that may be the program's: other
/// messages are out of the question there, and a barrier would not say who is missing. So every rank is the
/// root of a scatter, which ends when that rank has begun it.
class RollCall {
 public:
  /// All ranks call the roll, at the same place among the collectives of `comm`.
  explicit RollCall(MPI_Comm comm) {
    int size = 0;
    int self = 0;
    check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    check(MPI_Comm_rank(comm, &self), "MPI_Comm_rank");
    if (size == 1) return;
    const auto count = static_cast<std::size_t>(size);
    bytes_->given.resize(count);
    bytes_->taken.resize(count);
    bytes_->counts.assign(count, 1);
    bytes_->places.resize(count);
    std::iota(bytes_->places.begin(), bytes_->places.end(), 0);
    for (int root = 0; root < size; ++root) {
      check(MPI_Iscatterv(bytes_->given.data(), bytes_->counts.data(), bytes_->places.data(), MPI_BYTE,
                          &bytes_->taken[static_cast<std::size_t>(root)], 1, MPI_BYTE, root, comm,
                          requests_.add(root == self ? Requests::all : root, "MPI_Iscatterv")),
            "MPI_Iscatterv");
    }
  }

  [[nodiscard]] Requests& requests() noexcept { return requests_; }
  void give_up() { leave_to_mpi(std::move(bytes_)); }

 private:
  struct Bytes {
    std::vector<std::byte> given;
    std::vector<std::byte> taken;
    std::vector<int> counts;
    std::vector<int> places;
  };

  std::shared_ptr<Bytes> bytes_ = std::make_shared<Bytes>();
  Requests requests_;
};

}  // namespace

MPI_Request* Requests::add(int rank, const char* call) {
  requests_.push_back({.handle = MPI_REQUEST_NULL, .rank = rank, .call = call});
  return &requests_.back().handle;
}

bool Requests::are_complete() {
  bool are_all = true;
  for (Request& request : requests_) {
    if (request.handle == MPI_REQUEST_NULL) continue;
    int is_complete = 0;
    check(MPI_Test(&request.handle, &is_complete, MPI_STATUS_IGNORE), request.call);
    are_all = are_all && is_complete != 0;
  }
  return are_all;
}

bool Requests::complete_within(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (int round = 0; !are_complete(); ++round) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    if (round < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  return true;
}

std::string Requests::missing() const {
  std::vector<int> ranks;
  for (const Request& request : requests_) {
    if (request.handle != MPI_REQUEST_NULL && request.rank != all) ranks.push_back(request.rank);
  }
  std::ranges::sort(ranks);
  ranks.erase(std::ranges::unique(ranks).begin(), ranks.end());
  return ranks_in_words(ranks);
}

MPI_Comm duplicate(MPI_Comm comm, std::chrono::milliseconds timeout) {
  RollCall roll(comm);
  // MPI has the address of what it is to fill in.
  auto copy = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
  int self = 0;
  check(MPI_Comm_rank(comm, &self), "MPI_Comm_rank");
  Requests duplication;
  check(MPI_Comm_idup(comm, copy.get(), duplication.add(Requests::all, "MPI_Comm_idup")), "MPI_Comm_idup");
  // All have come to the roll call when there is a duplicate; and who has, is looked up when there is none.
  const bool is_complete = duplication.complete_within(timeout);
  if (!roll.requests().complete_within(is_complete ? timeout : std::chrono::milliseconds(0)) ||
      !is_complete) {
    const std::string missing = roll.requests().missing();
    leave_to_mpi(std::move(copy));
    roll.give_up();
    throw Error(ErrorCode::timeout,
                missing.empty()
                    ? fmt::format("MPI: after {} ms, rank {} still waits for others to duplicate the "
                                  "communicator, which all have begun",
                                  timeout.count(), self)
                    : fmt::format("MPI: after {} ms, rank {} still waits for others to duplicate the "
                                  "communicator: {} not begun to",
                                  timeout.count(), self,
                                  missing + (missing.starts_with("ranks") ? " have" : " has")));
  }
  check(MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return *copy;
}

void leave_to_mpi(std::shared_ptr<void> memory) {
  static std::mutex mutex;
  static auto* const given_up = new std::vector<std::shared_ptr<void>>;
  const std::scoped_lock lock(mutex);
  given_up->push_back(std::move(memory));
}

void leave_to_mpi(std::vector<std::byte> bytes) {
  leave_to_mpi(std::make_shared<std::vector<std::byte>>(std::move(bytes)));
}

}  // namespace tutti::mpi
