// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Needs mpi.h, and the library `tutti::mpi` beside `tutti::tutti`.

#include "tutti/communicator.hpp"
#include "tutti/exchange.hpp"
#include "tutti/export.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>

#include <mpi.h>

/// Communicators among the processes of an MPI job.
///
/// MPI introduces the processes to one another. If they are on one host, it then has no part in the
/// collectives: it is called by these functions alone, on the calling thread, never by a
/// `tutti::Communicator`, which may outlive MPI_Finalize.
///
/// If they are on several hosts, MPI also carries what goes between the hosts, but for what goes from GPU to
/// GPU by NCCL: a thread of each communicator calls it all the time. That needs MPI_THREAD_MULTIPLE, which
/// MPI_Init_thread gives and MPI_Init does not, and communicators have to be destroyed before MPI_Finalize;
/// those that are left end with Error(transport_failure), and so does what they have under way.
///
/// Everything here is collective over `comm`: all its processes call it together. Requires an initialised MPI
/// that has not been finalised; MPI_Init is enough on the thread that called it, other threads need
/// MPI_THREAD_SERIALIZED or more. Throws Error(invalid_argument) otherwise, and if `comm` is MPI_COMM_NULL or
/// an inter-communicator; Error(transport_failure) with MPI's own text and error code if MPI reports a
/// failure. As everywhere in MPI, what fails on `comm` itself goes to the error handler of `comm` first.
///
/// When a process is lost, the others hear of it from their communicator; but mpirun, as soon as it notices,
/// ends them by SIGTERM. A program that wants to say what happened, or save its work, handles the signal.
namespace tutti::mpi {

/// The processes of an MPI communicator, for `tutti::Communicator`. Calls on `comm` may go on meanwhile: the
/// exchange works on a duplicate.
class TUTTI_EXPORT Exchange final : public tutti::Exchange {
 public:
  /// Returns when all processes have come. `timeout` is how long this and an `all_gather` wait for the
  /// others: Error(timeout) otherwise, naming those that have not come.
  explicit Exchange(MPI_Comm comm, std::chrono::milliseconds timeout = std::chrono::minutes(1));
  /// Frees the duplicate, unless MPI has been finalised.
  ~Exchange() override;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  /// Takes at most INT_MAX bytes per rank: Error(invalid_argument) otherwise. Throws Error(timeout) if other
  /// ranks do not come; the exchange can only be destroyed then.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  /// On a duplicate of its own. Throws Error(unsupported) on all ranks, naming the first that lacks it,
  /// unless all of them have initialised MPI with MPI_THREAD_MULTIPLE.
  [[nodiscard]] std::unique_ptr<Network> network() override;
  /// Waits for the shorter of `timeout` and what it was made with, from now on.
  void limit_waits(std::chrono::milliseconds timeout) override;

 private:
  std::chrono::milliseconds made_with_;
  std::chrono::milliseconds timeout_;
  MPI_Comm comm_;
  int rank_;
  int size_;
  bool is_abandoned_ = false;
};

/// This process's number among those of `comm` that share its host. Throws Error(timeout), naming them,
/// if others do not come within a minute.
[[nodiscard]] TUTTI_EXPORT int local_rank(MPI_Comm comm);

/// A communicator of all processes of `comm`, which may be freed right away.
///
/// Where `options.devices` is empty, the device is `local_rank(comm)` modulo the number of devices, whichever
/// device is current; `.devices = {tutti::Device::current()}` takes that one. The current device stays what
/// it was: make `devices().front()` of the result current to go on there. A part of the job numbers its
/// processes anew: to keep a process on one device in several communicators, give it
/// `.devices = {tutti::mpi::local_rank(MPI_COMM_WORLD) % tutti::device_count()}`.
///
/// Throws what the constructor of `Communicator` throws, and Error(timeout) if others do not come within
/// `options.timeout`, which counts for each step, naming them and what they have not done. Cost: a few small
/// all-gathers, in which every process sends to every other.
[[nodiscard]] TUTTI_EXPORT Communicator make_communicator(MPI_Comm comm,
                                                          const CommunicatorOptions& options = {});

}  // namespace tutti::mpi
