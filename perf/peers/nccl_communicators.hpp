// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/peers/nccl_library.hpp"
#include "perf/session/session.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::perf {

/// What an operation is to NCCL.
enum class NcclCallKind : std::uint8_t {
  messages,  ///< ncclSend and ncclRecv
  collective,
};

/// NCCL's communicators of a session's local members, together with those of all ranks. Each way of calling
/// NCCL has communicators of its own: what NCCL remembers of memory, and a failure to register some, stay
/// with them.
class NcclCommunicators {
 public:
  NcclCommunicators(const NcclLibrary& nccl, const Session& session) : nccl_(nccl), session_(session) {}
  NcclCommunicators(const NcclCommunicators&) = delete;
  NcclCommunicators& operator=(const NcclCommunicators&) = delete;
  ~NcclCommunicators() { end(); }

  /// There were none. Collective: all ranks make theirs; throws Error(transport_failure).
  void make();
  /// Forgets all memory that NCCL was told of, by name or in a graph. No graph with their calls is left, and
  /// all ranks end theirs. Nothing where there are none.
  void end() noexcept;
  /// The same after NCCL has failed in them.
  void abandon() noexcept;

  /// Whether they can make such calls after those that have been expected of them, in memory they know.
  [[nodiscard]] bool can_make(NcclCallKind kind) const;
  /// Such calls are going to be made. There are communicators.
  void expect(NcclCallKind kind) noexcept;
  [[nodiscard]] bool are_made() const noexcept { return !communicators_.empty(); }
  [[nodiscard]] ncclComm_t operator[](std::size_t local) const { return communicators_[local]; }
  /// Multiplies with an element of `type` at `factor`, then sums. The factor is the same in every call.
  [[nodiscard]] ncclRedOp_t premultiplied_sum(std::size_t local, ncclDataType_t type,
                                              std::span<const std::byte> factor);

 private:
  /// NCCL has this reduction made for each communicator and element type.
  struct Premultiplied {
    std::size_t local;
    ncclDataType_t type;
    ncclRedOp_t operation;
  };

  const NcclLibrary& nccl_;
  const Session& session_;
  std::vector<ncclComm_t> communicators_;
  std::vector<Premultiplied> premultiplied_;
  bool sends_ = false;  ///< messages have been expected
};

}  // namespace tutti::perf
