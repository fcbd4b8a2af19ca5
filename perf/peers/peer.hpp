// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/case.hpp"
#include "perf/operations/operation.hpp"
#include "perf/session/session.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::perf {

/// One of the ways in which a peer can be asked to do the same.
struct PeerMode {
  std::string name;     ///< in the table; empty where there is only one
  std::string about;    ///< what it means, for people
  std::string refusal;  ///< why it is not to be had; empty if it is
};

/// Another library that does the same with the same data, measured by the same driver.
class Peer {
 public:
  Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  virtual ~Peer() = default;

  /// In the table.
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Such as "NCCL 2.28.3 (libnccl.so.2)".
  [[nodiscard]] virtual std::string name_and_version() const = 0;
  /// Why it cannot do this; empty if it can.
  [[nodiscard]] virtual std::string refusal(const Operation& operation, const Call& call) const = 0;
  /// Each is measured, and the fastest is what tutti is compared with. At least one; always as many.
  [[nodiscard]] virtual std::vector<PeerMode> modes() const { return {PeerMode{}}; }
  /// That a call will want `sets` sets of `bytes_of_set` in each member: what memory a peer has of its own it
  /// may get at once for all of them. On all ranks alike, before the first call.
  virtual void foresee(std::size_t /*sets*/, std::size_t /*bytes_of_set*/) {}
  /// Where operands of the operation lie in this mode, with room for `sets` sets of them in each member. It
  /// is valid, as are its tensors, until the next call. nullptr: the very buffers tutti has. Collective: all
  /// ranks throw, or none; Error(unsupported) where the mode is not to be had, which `modes` then says as
  /// well, or not for this operation, Error(out_of_memory).
  [[nodiscard]] virtual OperandMemory* memory(std::size_t /*mode*/, const Operation& /*operation*/,
                                              const Case& /*what*/, std::size_t /*sets*/) {
    return nullptr;
  }
  /// Gives back memory that others may need. No tensor of it is in use. Collective.
  virtual void trim() {}
  /// Enqueues the call, in the peer's own usual way. Its operands lie where the mode wants them.
  virtual void enqueue(std::size_t mode, const Operation& operation, const Call& call) = 0;
  /// Records one graph that makes all of `calls`, one after another; the result launches it. It is let go of
  /// before the mode's memory is asked for anew.
  [[nodiscard]] virtual std::function<void()> record(std::size_t mode, const Operation& operation,
                                                     const std::vector<const Call*>& calls) = 0;
};

/// NCCL: a communicator per device for each mode, one group per operation. Its modes are those of nccl-tests'
/// -R: "R0" with tutti's buffers, "R1" with registered ones, "R2" with those of symmetric windows; `only`
/// restricts them to one. Throws UsageError, one line that starts with "--peer nccl:", where there are no
/// GPUs or no NCCL, or one without that mode.
[[nodiscard]] std::unique_ptr<Peer> make_nccl_peer(const Session& session, std::optional<int> only);
/// The MPI library's own blocking collectives on host memory, one call per tensor. Throws UsageError, one
/// line that starts with "--peer mpi:", where a rank has several devices, or GPUs.
[[nodiscard]] std::unique_ptr<Peer> make_mpi_peer(const Session& session);

}  // namespace tutti::perf
