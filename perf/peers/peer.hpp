// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/case.hpp"
#include "perf/operations/operation.hpp"
#include "perf/session/session.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::perf {

/// One of the ways in which a peer can make the same call.
struct PeerMode {
  std::string name;      ///< in the table; empty where there is only one
  std::string about;     ///< what it means, for people
  std::string refusal;   ///< why it is not to be had; empty if it is
  std::string memory{};  ///< of its operands, in files; empty: they are where tutti's are
};

/// Another library that makes the same calls on the same data, measured by the same driver.
class Peer {
 public:
  Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  virtual ~Peer() = default;

  /// Returns the name for the table.
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Returns a text such as "NCCL 2.28.3 (libnccl.so.2)".
  [[nodiscard]] virtual std::string name_and_version() const = 0;
  /// Returns why the peer cannot make the call; empty if it can.
  [[nodiscard]] virtual std::string refusal(const Operation& operation, const Call& call) const = 0;
  /// Returns the modes: at least one, always the same number. Each is measured, and tutti is compared with
  /// the fastest.
  [[nodiscard]] virtual std::vector<PeerMode> modes() const { return {PeerMode{}}; }
  /// Announces that a call will need `sets` sets of `bytes_of_set` in each member, so that a peer with memory
  /// of its own can allocate it once. On all ranks alike, before the first call.
  virtual void foresee(std::size_t /*sets*/, std::size_t /*bytes_of_set*/) {}
  /// Returns the memory for operands of the operation in this mode, with room for `sets` sets of them in each
  /// member; nullptr: tutti's own buffers. It is valid, with its tensors, until the next call. Collective:
  /// all ranks throw, or none. Throws Error(unsupported) if the mode is not available, which `modes` then
  /// reports as well, or not for this operation; and Error(out_of_memory).
  [[nodiscard]] virtual OperandMemory* memory(std::size_t /*mode*/, const Operation& /*operation*/,
                                              const Case& /*what*/, std::size_t /*sets*/) {
    return nullptr;
  }
  /// Frees memory that others may need. No tensor in it is in use. Collective.
  virtual void trim() {}
  /// Enqueues the call on the session's streams, in the peer's usual way; also while these are being
  /// captured. Its operands are in the memory of the mode. Graphs of it are destroyed before that memory is
  /// asked for again.
  virtual void enqueue(std::size_t mode, const Operation& operation, const Call& call) = 0;
};

/// Makes the peer NCCL: a communicator per device for each mode, one group per operation. Its modes are those
/// of nccl-tests' -R: "R0" with tutti's buffers, "R1" with registered ones, "R2" with symmetric windows;
/// `only` selects one. Throws UsageError, one line that starts with "--peer nccl:", if there are no GPUs, no
/// NCCL, or no such mode.
[[nodiscard]] std::unique_ptr<Peer> make_nccl_peer(const Session& session, std::optional<int> only);
/// Makes the peer MPI: the MPI library's own blocking collectives on host memory, one call per tensor. Throws
/// UsageError, one line that starts with "--peer mpi:", if a rank has several devices, or GPUs.
[[nodiscard]] std::unique_ptr<Peer> make_mpi_peer(const Session& session);

}  // namespace tutti::perf
