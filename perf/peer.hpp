// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "operation.hpp"
#include "session.hpp"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::perf {

/// Another library that does the same with the same buffers, measured by the same driver.
class Peer {
 public:
  Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  virtual ~Peer() = default;

  /// In the table.
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Name and version.
  [[nodiscard]] virtual std::string describe() const = 0;
  /// Why it cannot do this; empty if it can.
  [[nodiscard]] virtual std::string refusal(const Operation& operation, const Call& call) const = 0;
  /// Whether it wants the buffers in host memory, where they are equal but not the same as tutti's.
  [[nodiscard]] virtual bool wants_host_memory() const { return false; }
  /// Enqueues the call, in the peer's own usual way.
  virtual void enqueue(const Operation& operation, const Call& call) = 0;
  /// Records one graph that makes all of `calls`, one after another; the result launches it.
  [[nodiscard]] virtual std::function<void()> record(const Operation& operation,
                                                     const std::vector<const Call*>& calls) = 0;
};

/// Plain NCCL: one communicator per device, one group per operation. Throws UsageError, one line that starts
/// with "--peer nccl:", where there are no GPUs or no NCCL.
[[nodiscard]] std::unique_ptr<Peer> make_nccl_peer(const Session& session);
/// The MPI library's own blocking collectives on host memory, one call per tensor. Throws UsageError, one
/// line that starts with "--peer mpi:", where a rank has several devices, or GPUs.
[[nodiscard]] std::unique_ptr<Peer> make_mpi_peer(const Session& session);

}  // namespace tutti::perf
