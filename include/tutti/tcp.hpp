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

/// Makes communicators among processes that torchrun, Slurm or a script has started, without MPI.
///
/// Rank 0 listens on one address, the one that the launcher names, and all others connect to it. Both ends of
/// a connection prove that they know a secret and belong to the same job before either reads anything else.
/// Everything after that is authenticated, and encrypted if one rank asks for it, with keys that the two ends
/// agree on then: nobody else can change it unnoticed, and keys tell nothing about those of other
/// connections.
///
/// Ranks of several hosts make connections of their own to one another (`make_network`).
namespace tutti::tcp {

/// Says which rank a process is, and where the ranks meet.
struct Rendezvous {
  int rank = 0;
  int size = 1;
  int local_rank = 0;                ///< among the processes of its host
  std::string address{"127.0.0.1"};  ///< of rank 0, by name or number: it listens there, and nowhere else
  int port = 0;                      ///< 1 to 65535
  /// A secret of 16 bytes or more, the same on all ranks. It may be empty for loopback addresses only; then
  /// other users of the host must be trusted.
  std::string secret;
  std::string job;  ///< tells apart jobs that have the same secret
  bool encrypts =
      false;  ///< everything that is sent, not only authenticates it; one rank that asks is enough
  std::chrono::milliseconds timeout{60'000};  ///< how long this rank waits until all have come
  std::string address_name{"address"};        ///< what errors call `address`
  std::string port_name{"port"};              ///< and `port`
};

/// Looks up an environment variable: returns its value, or nullptr.
using Variables = std::function<const char*(const char* name)>;

/// Reads a rendezvous from the environment: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as
/// torchrun sets them; else, in a job step of Slurm, SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, and
/// SLURM_LOCALID. Under Slurm, the address is MASTER_ADDR if it is set, else 127.0.0.1 if the step has one
/// node, else SLURM_LAUNCH_NODE_IPADDR; the port is MASTER_PORT if it is set, else computed from the job's
/// and the step's numbers.
///
/// TUTTI_PORT overrides the port. If torchrun itself listens on MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE),
/// the next port is used. TUTTI_SECRET is the secret, TUTTI_ENCRYPT=1 asks for encryption, and
/// TUTTI_JOIN_TIMEOUT is the timeout in seconds.
///
/// Throws Error(invalid_argument) with the name and value of a variable that is missing or invalid.
[[nodiscard]] TUTTI_EXPORT Rendezvous rendezvous();
[[nodiscard]] TUTTI_EXPORT Rendezvous rendezvous(const Variables& variable);

/// Exchanges messages among the processes of a rendezvous, for `tutti::Communicator`. Every message goes
/// through rank 0; only those of its network do not.
class TUTTI_EXPORT Exchange final : public tutti::Exchange {
 public:
  /// A function that the waiting thread calls about every 10 ms during a wait. An exception from it ends the
  /// wait, and with it the exchange.
  using Watch = std::function<void()>;

  /// Returns when all processes have arrived. Ranks may arrive in any order, and wait for a rank 0 that is
  /// late.
  ///
  /// Throws Error(timeout) on all waiting ranks when `rendezvous.timeout` has passed. Its message says for
  /// each missing rank whether it has not arrived, when it arrived and then left or stopped waiting, or why
  /// it was refused; or that rank 0 does not listen or does not answer. Only a wrong answer ends the wait
  /// earlier: Error(invalid_argument) if the other end has another secret or job, or a rank is there already
  /// or was started for another number of ranks; Error(peer_unavailable) if whatever listens there does not
  /// speak rank 0's protocol, or rank 0 gives up because its watch throws. Throws at once
  /// Error(invalid_argument) for invalid members of `rendezvous`, and on rank 0 Error(transport_failure) with
  /// errno if it cannot listen, for instance because the port is taken.
  ///
  /// A rank whose process ends before all have arrived counts as missing at once; a new process may take its
  /// place. The same holds for rank 0. Foreign connections do no harm: besides those of ranks, rank 0 keeps
  /// at most 256, or a quarter of the descriptors that the process may have if that is less, and closes those
  /// that have been silent longest.
  explicit Exchange(const Rendezvous& rendezvous, Watch watch = {});
  /// Leaves the exchange: the next call of every other rank throws Error(peer_unavailable).
  ~Exchange() override;

  [[nodiscard]] int rank() const override;
  [[nodiscard]] int size() const override;
  /// Gathers `mine` of every rank into `all`, in rank order. Each rank gives the same number of bytes, at
  /// most 64 MiB, and all together at most 1 GiB: Error(invalid_argument) otherwise, on all ranks if their
  /// lengths differ. Throws Error(peer_unavailable) on all ranks if one is gone, naming it, and
  /// Error(timeout) when the timeout of a waiting rank has passed, naming the ranks that have given nothing.
  /// After an error the exchange can only be destroyed.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  /// Limits the timeout of later calls: it is the shorter of `timeout` and the exchange's own (see
  /// `set_timeout`).
  void limit_waits(std::chrono::milliseconds timeout) override;
  /// Makes a network among the processes, as `make_network` does, with the secret of the rendezvous. Each
  /// listens at TUTTI_ADDRESS, else at the address from which it has reached rank 0, at a port that the
  /// system chooses.
  [[nodiscard]] std::unique_ptr<Network> network() override;
  /// Sets the exchange's own timeout for later calls. Initially it is that of the rendezvous.
  void set_timeout(std::chrono::milliseconds timeout);

 private:
  class Star;
  std::unique_ptr<Star> star_;
};

struct NetworkOptions {
  /// Address at which the others reach this process, by name or number; it listens there, at a port that the
  /// system chooses. Empty: TUTTI_ADDRESS; else the address from which the system would send to rank 0's, and
  /// on rank 0 to anywhere; the loopback address if there is no other.
  std::string address;
  std::string
      secret;  ///< the same on all ranks; may be empty if nobody else can change what the exchange carries
  bool encrypts = false;  ///< everything that is sent, instead of authenticating it only; one rank is enough
  /// Longest silence of another process's host, which has three quarters of that to accept a connection.
  std::chrono::milliseconds timeout{60'000};
};

/// Makes a network over TCP among the processes of any exchange, by which they learn one another's addresses
/// and public keys. All ranks call it together.
///
/// A process connects directly to those that it sends to. Their messages are authenticated with keys that
/// both ends agree on, and encrypted if one asks: by AES-256-GCM where both processors have instructions for
/// it, else by ChaCha20-Poly1305. A rank whose process ends without leaving, or whose host has not answered
/// for the timeout, is named by Error(peer_unavailable) from `receive`. Connections that are lost are not
/// made anew.
///
/// Throws on all ranks Error(invalid_argument) if one was given a name that stands for no address, and
/// Error(transport_failure) if one cannot listen, for instance because its address is another host's.
[[nodiscard]] TUTTI_EXPORT std::unique_ptr<Network> make_network(tutti::Exchange& exchange,
                                                                 const NetworkOptions& options = {});

/// Makes a communicator of all processes of the rendezvous. If `options.devices` is empty, the device is
/// `local_rank` modulo the number of devices. Throws what the constructors of `Exchange` and `Communicator`
/// throw.
[[nodiscard]] TUTTI_EXPORT Communicator make_communicator(const Rendezvous& rendezvous,
                                                          const CommunicatorOptions& options = {});

}  // namespace tutti::tcp
