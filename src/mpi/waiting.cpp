#include "mpi/waiting.hpp"

#include "mpi/checks.hpp"
#include "tutti/error.hpp"

#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti::mpi {

bool completes_within(MPI_Request& request, std::chrono::milliseconds timeout, const char* call) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (int round = 0;; ++round) {
    int is_complete = 0;
    check(MPI_Test(&request, &is_complete, MPI_STATUS_IGNORE), call);
    if (is_complete != 0) return true;
    if (std::chrono::steady_clock::now() > deadline) return false;
    if (round < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

MPI_Comm duplicate(MPI_Comm comm, std::chrono::milliseconds timeout) {
  // MPI has the address of what it is to fill in.
  auto copy = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Comm_idup(comm, copy.get(), &request), "MPI_Comm_idup");
  if (!completes_within(request, timeout, "MPI_Comm_idup")) {
    leave_to_mpi(std::move(copy));
    throw Error(
        ErrorCode::timeout,
        fmt::format("MPI: after {} ms, other ranks have not duplicated the communicator", timeout.count()));
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
