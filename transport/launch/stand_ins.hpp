// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/launch/operands.hpp"
#include "transport/plan/plan.hpp"
#include "tutti/storage.hpp"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::transport {

/// Follows the algorithm of a call whose operands are replaced, in a `PlanSummary`.
inline constexpr std::string_view through_stand_ins = ", through stand-ins";

/// Allocates tutti's own memory for work on a stream, which all peers of its device have access to, whatever
/// allocator tensors come from. Throws OutOfMemoryError.
[[nodiscard]] detail::IntrusivePtr<Storage> allocate_stand_in(Runtime& runtime, backend::StreamRef stream,
                                                              std::uint64_t bytes);

/// Memory of tutti that one launch of a plan, or the launches of one graph, use in place of operands that
/// other devices have no access to (`ForeignMemory`). Inputs are copied to it on their lanes before the
/// launch, and outputs back after it.
///
/// Work that is queued on the lanes between the copies needs no other orders than with the operands
/// themselves.
class StandIns {
 public:
  StandIns() = default;
  /// Allocates the memory for the lanes' streams, and puts it in the place of the operands. What is tutti's
  /// own memory costs a look at its storage. `function` is the call, for the log. Throws OutOfMemoryError.
  StandIns(Runtime& runtime, const Plan& plan, Operands& operands, std::string_view function);

  [[nodiscard]] bool empty() const noexcept { return replaced_.empty(); }
  /// Keeps the operands' own memory for the streams of the `lanes`.
  void keep_operands(std::span<const backend::StreamRef> lanes) const;
  /// Queues the copies of inputs, and what orders the plan's lanes after earlier uses of the stand-ins.
  void copy_in(Runtime& runtime, std::span<const backend::StreamRef> lanes) const;
  /// Queues the copies back to outputs.
  void copy_back(Runtime& runtime, std::span<const backend::StreamRef> lanes) const;
  /// Calls `visit(lane)` for the lane of each operand that is replaced.
  template <class Visit>
  void visit_lanes(const Visit& visit) const {
    for (const Replaced& replaced : replaced_) visit(replaced.lane);
  }
  /// Defers the reuse of the memory until the stream has passed.
  void record_stream(const Stream& stream) const;

 private:
  struct Replaced {
    LaneId lane = 0;
    PeerUse use;
    std::byte* operand = nullptr;
    Storage* owner = nullptr;  ///< of the operand; nullptr if it has none
    detail::IntrusivePtr<Storage> stand_in;
  };
  std::vector<Replaced> replaced_;
};

}  // namespace tutti::transport
