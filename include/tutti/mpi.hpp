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

/// Makes communicators among the processes of an MPI job.
///
/// MPI serves to bootstrap the communicator. If the processes are on one host, it has no part in the
/// collectives: only these functions call it, on the calling thread. A `tutti::Communicator` never does, and
/// may outlive MPI_Finalize.
///
/// If they are on several hosts, MPI also carries all data between hosts that NCCL does not carry from GPU to
/// GPU: a thread of each communicator calls MPI all the time. That needs MPI_THREAD_MULTIPLE, which
/// MPI_Init_thread provides and MPI_Init does not. Communicators have to be destroyed before MPI_Finalize;
/// those that are left, and their calls under way, end with Error(transport_failure). Without that level on
/// all ranks, these data go over TCP beside MPI, from host to host, as `tcp::make_network` says;
/// TUTTI_SECRET, TUTTI_ENCRYPT and TUTTI_ADDRESS apply.
///
/// Everything here is collective over `comm`: all its processes call it together. Requires an initialised MPI
/// that has not been finalised; MPI_Init is enough on the thread that called it, other threads need
/// MPI_THREAD_SERIALIZED or more. Throws Error(invalid_argument) otherwise, and if `comm` is MPI_COMM_NULL or
/// an inter-communicator; Error(transport_failure) with MPI's own text and error code if MPI reports a
/// failure. As everywhere in MPI, a failure on `comm` itself goes to the error handler of `comm` first.
///
/// When a process is lost, the communicators of the others report it; but mpirun, as soon as it notices, ends
/// them by SIGTERM. A program that wants to report it or save its work has to handle the signal.
namespace tutti::mpi {

/// Exchanges messages among the processes of an MPI communicator, for `tutti::Communicator`. The program may
/// go on making calls on `comm`: the exchange works on a duplicate.
class TUTTI_EXPORT Exchange final : public tutti::Exchange {
 public:
  /// Returns when all processes have arrived. `timeout` bounds how long this and each `all_gather` wait for
  /// the others: Error(timeout) otherwise, naming those that are missing.
  explicit Exchange(MPI_Comm comm, std::chrono::milliseconds timeout = std::chrono::minutes(1));
  /// Frees the duplicate, unless MPI has been finalised.
  ~Exchange() override;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  /// Gathers `mine` of every rank into `all`. Takes at most INT_MAX bytes per rank: Error(invalid_argument)
  /// otherwise. Throws Error(timeout) if other ranks do not arrive; after that the exchange can only be
  /// destroyed.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  /// Makes a network on a duplicate of its own if all ranks have initialised MPI with MPI_THREAD_MULTIPLE,
  /// else one over TCP.
  [[nodiscard]] std::unique_ptr<Network> network() override;
  /// Limits the timeout of later calls: it is the shorter of `timeout` and the constructor's.
  void limit_waits(std::chrono::milliseconds timeout) override;

 private:
  std::chrono::milliseconds made_with_;
  std::chrono::milliseconds timeout_;
  MPI_Comm comm_;
  int rank_;
  int size_;
  bool is_abandoned_ = false;
};

/// Returns this process's number among those of `comm` that share its host. Throws Error(timeout), naming the
/// missing ones, if others do not arrive within a minute.
[[nodiscard]] TUTTI_EXPORT int local_rank(MPI_Comm comm);

/// Makes a communicator of all processes of `comm`, which may be freed right away.
///
/// If `options.devices` is empty, the device is `local_rank(comm)` modulo the number of devices, whichever
/// device is current; `.devices = {tutti::Device::current()}` takes that one. The current device stays what
/// it was: make `devices().front()` of the result current to use that device. A sub-communicator of MPI
/// renumbers its processes: to keep a process on one device in several communicators, give it `.devices =
/// {tutti::mpi::local_rank(MPI_COMM_WORLD) % tutti::device_count()}`.
///
/// Throws what the constructor of `Communicator` throws, and Error(timeout) if others do not arrive within
/// `options.timeout`, which counts for each step, naming them and what they have not done. Cost: a few small
/// all-gathers, in which every process sends to every other.
[[nodiscard]] TUTTI_EXPORT Communicator make_communicator(MPI_Comm comm,
                                                          const CommunicatorOptions& options = {});

}  // namespace tutti::mpi
