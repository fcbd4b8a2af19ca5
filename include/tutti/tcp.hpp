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

/// Communicators among processes that torchrun, Slurm or a script has started, without MPI.
///
/// Rank 0 listens on one address, the one that the launcher names, and all others connect to it. Both ends of
/// a connection prove that they know a secret, and that they are of the same job, before anything else that
/// comes from there is looked at. What is exchanged afterwards is neither encrypted nor signed: who can
/// change packets on their way is kept out by the network, not by this.
///
/// The processes must be on one host: an exchange over TCP has no `Network`.
namespace tutti::tcp {

/// Who a process is among those of its job, and where they meet.
struct Rendezvous {
  int rank = 0;
  int size = 1;
  int local_rank = 0;                ///< among the processes of its host
  std::string address{"127.0.0.1"};  ///< of rank 0, by name or number: it listens there, and nowhere else
  int port = 0;                      ///< 1 to 65535
  /// 16 bytes or more, the same on all ranks. Empty: none, which the loopback addresses alone may do with;
  /// then other users of the host must be trusted.
  std::string secret;
  std::string job;                            ///< tells apart jobs that have the same secret
  std::chrono::milliseconds timeout{60'000};  ///< how long this rank waits until all have come
  std::string address_name{"address"};        ///< what errors call `address`
  std::string port_name{"port"};              ///< and `port`
};

/// The value of an environment variable, or nullptr.
using Variables = std::function<const char*(const char* name)>;

/// What the environment tells: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun sets
/// them; else, in a step of Slurm's, SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, and SLURM_LOCALID.
/// There the address is MASTER_ADDR; else 127.0.0.1 where the step has one node, or SLURM_LAUNCH_NODE_IPADDR;
/// and the port is MASTER_PORT, or follows from the numbers of job and step.
///
/// TUTTI_PORT names another port. Where torchrun itself listens on MASTER_PORT, as
/// TORCHELASTIC_USE_AGENT_STORE says, it is the next one. TUTTI_SECRET is the secret, TUTTI_JOIN_TIMEOUT the
/// timeout in seconds.
///
/// Throws Error(invalid_argument) with the name and value of a variable that is missing or no good.
[[nodiscard]] TUTTI_EXPORT Rendezvous rendezvous();
[[nodiscard]] TUTTI_EXPORT Rendezvous rendezvous(const Variables& variable);

/// The processes of a rendezvous, for `tutti::Communicator`. Every message goes by rank 0.
class TUTTI_EXPORT Exchange final : public tutti::Exchange {
 public:
  /// Called about every 10 ms while something is waited for, on the waiting thread. What it throws ends the
  /// wait, and with it the exchange.
  using Watch = std::function<void()>;

  /// Returns when all processes have come; ranks may come in any order, and wait for a rank 0 that is late.
  ///
  /// Throws Error(timeout) when `rendezvous.timeout` is over, on all ranks that wait by then, and says of
  /// each rank that is missing whether it has not come, or when it came and left or gave up waiting, or why
  /// it was refused; or that rank 0 does not listen, or does not answer. Nothing ends the wait before but a
  /// wrong answer: invalid_argument where another secret or job is found than its own, for a rank that is
  /// there already, or that was started as one of another number; peer_unavailable where what listens there
  /// does not speak as rank 0 does, and where rank 0 gives up because its watch throws. It throws at once
  /// Error(invalid_argument) for members of `rendezvous` that are no good, and on rank 0 transport_failure
  /// with errno where it cannot listen, as on a port that is taken.
  ///
  /// A rank whose process ends before all have come is missed at once, and may come again and take its place;
  /// so may rank 0. Connections of others change nothing: rank 0 keeps 256 at most, or a quarter of the
  /// descriptors that the process may have if that is less, besides those of ranks, and lets go of the ones
  /// that have been silent for longest.
  explicit Exchange(const Rendezvous& rendezvous, Watch watch = {});
  /// The others hear of it in their next call: peer_unavailable.
  ~Exchange() override;

  [[nodiscard]] int rank() const override;
  [[nodiscard]] int size() const override;
  /// Takes at most 64 MiB per rank, and 1 GiB of all: Error(invalid_argument) otherwise, and on all ranks
  /// where they give different lengths. Throws Error(peer_unavailable) on all ranks where one is gone, naming
  /// it, and Error(timeout) when the timeout of this rank, or of another that waits with it, is over, naming
  /// those that give nothing. After an error the exchange can only be destroyed.
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  /// Waits for the shorter of `timeout` and the one before it, from now on.
  void limit_waits(std::chrono::milliseconds timeout) override;
  /// Waits for so long from now on. It was the timeout of the rendezvous.
  void set_timeout(std::chrono::milliseconds timeout);

 private:
  class Star;
  std::unique_ptr<Star> star_;
};

/// A communicator of all processes that `rendezvous` brings together. Where `options.devices` is empty, the
/// device is `local_rank` modulo the number of devices. Throws what the constructors of `Exchange` and
/// `Communicator` throw.
[[nodiscard]] TUTTI_EXPORT Communicator make_communicator(const Rendezvous& rendezvous,
                                                          const CommunicatorOptions& options = {});

}  // namespace tutti::tcp
