// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/failure.hpp"
#include "perf/processes/joined_processes.hpp"
#include "tutti/mpi.hpp"

#include <fmt/format.h>
#include <mpi.h>

namespace tutti::perf {
namespace {

class MpiProcesses final : public JoinedProcesses {
 public:
  MpiProcesses() {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    miss_those_that_go();
  }
  ~MpiProcesses() override {
    // A launcher ends the whole job when the first process leaves with a status other than 0.
    MPI_Barrier(comm_);
    MPI_Comm_free(&comm_);
    MPI_Finalize();
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] bool have_mpi() const override { return true; }

 protected:
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, const Look& look) override {
    const int count = static_cast<int>(mine.size());
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallgather(mine.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, comm_, &request);
    finish(request, look);
  }
  [[nodiscard]] std::unique_ptr<Communicator> join(const CommunicatorOptions& options) override {
    return std::make_unique<Communicator>(mpi::make_communicator(comm_, options));
  }
  void end_job(int status) override { MPI_Abort(MPI_COMM_WORLD, status); }

 private:
  static void finish(MPI_Request request, const Look& look) {
    for (;;) {
      int is_done = 0;
      MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
      if (is_done != 0) return;
      look();
    }
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
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
