// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime.hpp"
#include "transport/nccl_calls.hpp"
#include "transport/team/team.hpp"
#include "tutti/dtype.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tutti::transport::ranks {

/// One call of NCCL by one own member.
struct NcclCall {
  nccl::Function function = nccl::Function::broadcast;
  std::size_t own_member = 0;
  std::size_t peer = 0;  ///< the root, or the other member
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::uint64_t count = 0;  ///< elements that a member gives; of reduce_scatter, that it gets
  DType dtype = DType::uint8;
};

/// NCCL among the members of a team. Its communicators are made in the first call that uses them, which waits
/// on the host until all ranks have made it, and may take a second; when the team is ended they are aborted,
/// and what they have queued ends.
class TeamNccl {
 public:
  /// Whether all ranks can, agreed upon by all: collective over the exchange. nullptr if not, and then
  /// `reason` says why, the same on all ranks.
  [[nodiscard]] static std::unique_ptr<TeamNccl> create(Runtime& runtime, Exchange& exchange, Team& team,
                                                        std::string& reason);
  TeamNccl() = default;
  TeamNccl(const TeamNccl&) = delete;
  TeamNccl& operator=(const TeamNccl&) = delete;
  virtual ~TeamNccl() = default;

  /// Whether NCCL adds elements of this type as `reduce_add` does, but for the order.
  [[nodiscard]] virtual bool adds(DType dtype) const = 0;
  /// Must have been called, by all ranks, before `enqueue` in a call that is captured.
  virtual void connect(std::uint64_t sequence) = 0;
  [[nodiscard]] virtual bool is_connected() const = 0;
  /// Queues one group; all ranks' groups match. Throws Error(transport_failure), and what ended the team.
  virtual void enqueue(std::span<const NcclCall> calls, std::span<const backend::StreamRef> streams) = 0;
};

}  // namespace tutti::transport::ranks
