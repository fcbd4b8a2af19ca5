// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/communicator.hpp"
#include "tutti/exchange.hpp"
#include "tutti/export.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

/// Makes communicators among processes that share a folder, where no process may listen on a port. Use
/// `tutti/tcp.hpp` where one may: a folder is slower, by milliseconds a message on a network file system.
///
/// # Files
/// Ranks write files that the others read. A file is made under a name of its own, exclusively, and renamed
/// when it is complete, so that nobody reads half of one. The folder belongs to the user or to root and,
/// unless it has the sticky bit as /tmp has, nobody else may write there. In it, the ranks make a folder of
/// the job's that only the user can read and write; other owners, other permissions and links in their place
/// are refused. Files have a digest that is keyed by the secret and their place. They are not encrypted.
///
/// When ranks meet, each draws a number, and rank 0 one for the meeting; a file counts only if it answers to
/// these. So files that an earlier job of the same name has left are never taken for this one's.
///
/// A job that ends removes its files, also if its ranks have not met in time. After a rank was killed, they
/// stay until the next job of that name meets, or somebody removes the job's folder: a few short files of
/// each rank, and the messages that the killed rank had not read.
///
/// If a rank that has arrived cannot write, because the disk is full for instance, the others get an error
/// with its reason at once: each rank reserves 1 KiB for that as it arrives, and needs no space to leave. On
/// a full copy-on-write file system, which needs space to overwrite, the others only see that the rank has
/// left the exchange, or notice by their timeouts that it is silent in a network.
///
/// # Network file systems
/// The exchange relies on a file system where making a file exclusively, making a folder, renaming and
/// removing are atomic on the server (NFS since version 3); where who opens a file reads what had been
/// written when it was closed (close-to-open consistency); and where a folder which is opened anew lists new
/// names after a bounded time, on NFS at most `acdirmax` (60 s unless the mount says otherwise): the timeout
/// should be longer than that. Neither locks nor modification times are used.
namespace tutti::shared_folder {

/// Says which rank a process is, and where the ranks meet.
struct Rendezvous {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  ///< among the processes of its host
  std::string folder;  ///< exists; the same for all ranks, by whatever path
  /// A secret of 16 bytes or more, the same on all ranks. Empty: the file system and the network to it must
  /// be trusted.
  std::string secret;
  std::string job;                            ///< tells apart jobs that use the folder at the same time
  std::chrono::milliseconds timeout{60'000};  ///< how long this rank waits until all have come
};

/// Reads a rendezvous from the environment: the folder from TUTTI_FOLDER, the others as
/// `tutti::tcp::rendezvous` reads them from the variables of torchrun or Slurm; no address and no port are
/// needed. Throws Error(invalid_argument) with the name and value of a variable that is missing or invalid.
[[nodiscard]] TUTTI_EXPORT Rendezvous rendezvous();

/// Exchanges messages among the processes of a rendezvous, for `tutti::Communicator`.
class TUTTI_EXPORT Exchange final : public tutti::Exchange {
 public:
  /// Returns when all processes have arrived, in any order. Throws Error(timeout) when `rendezvous.timeout`
  /// has passed, which names the missing ranks on rank 0, and on others rank 0. Throws
  /// Error(invalid_argument) for invalid members of `rendezvous`, for a folder that others could change, and
  /// if a rank was started for another number of ranks; Error(transport_failure) with errno if the folder
  /// cannot be used.
  explicit Exchange(const Rendezvous& rendezvous);
  /// Leaves the exchange: the next call of every other rank throws Error(peer_unavailable). The last one to
  /// leave removes the files, unless networks are still in use.
  ~Exchange() override;

  [[nodiscard]] int rank() const override;
  [[nodiscard]] int size() const override;
  /// Gathers `mine` of every rank into `all`, in rank order. Each rank gives the same number of bytes, at
  /// most 64 MiB: Error(invalid_argument) otherwise, on all ranks if their lengths differ. Throws
  /// Error(peer_unavailable) if a rank has left, naming it, Error(timeout) when the timeout has passed,
  /// naming the ranks that have given nothing, and Error(transport_failure) on all ranks if one cannot use
  /// the folder. After an error the exchange can only be destroyed.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  /// Limits the timeout of later calls to the shorter of `timeout` and that of the rendezvous.
  void limit_waits(std::chrono::milliseconds timeout) override;
  /// Makes a network whose messages are files in the folder. If a rank cannot write them, calls of
  /// the others throw Error(peer_unavailable) with its reason.
  [[nodiscard]] std::unique_ptr<Network> network() override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Makes a communicator of all processes of the rendezvous. If `options.devices` is empty, the device is
/// `local_rank` modulo the number of devices. Throws what the constructors of `Exchange` and `Communicator`
/// throw.
[[nodiscard]] TUTTI_EXPORT Communicator make_communicator(const Rendezvous& rendezvous,
                                                          const CommunicatorOptions& options = {});

}  // namespace tutti::shared_folder
