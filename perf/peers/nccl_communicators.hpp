// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/peers/nccl_library.hpp"
#include "perf/session/session.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::perf {

/// The kind of NCCL calls that an operation needs.
enum class NcclCallKind : std::uint8_t {
  messages,  ///< ncclSend and ncclRecv
  collective,
};

/// NCCL's communicators of a session's local members, together with those of all ranks. Each mode of calling
/// NCCL has communicators of its own, so that the memory that NCCL remembers, and a failed registration,
/// affect only them.
class NcclCommunicators {
 public:
  NcclCommunicators(const NcclLibrary& nccl, const Session& session) : nccl_(nccl), session_(session) {}
  NcclCommunicators(const NcclCommunicators&) = delete;
  NcclCommunicators& operator=(const NcclCommunicators&) = delete;
  ~NcclCommunicators() { end(); }

  /// Makes the communicators; there must be none. Collective: all ranks make theirs. Throws
  /// Error(transport_failure).
  void make();
  /// Destroys the communicators, and with them all that NCCL knows of memory, by registration or in a graph.
  /// No graph with their calls may be left, and all ranks end theirs. Does nothing if there are none.
  void end() noexcept;
  /// Destroys the communicators after NCCL has failed in them.
  void abandon() noexcept;

  /// Returns true if the communicators can make such calls after those that `expect` has announced, in the
  /// memory that they know.
  [[nodiscard]] bool can_make(NcclCallKind kind) const;
  /// Announces such calls. The communicators must exist.
  void expect(NcclCallKind kind) noexcept;
  [[nodiscard]] bool are_made() const noexcept { return !communicators_.empty(); }
  [[nodiscard]] ncclComm_t operator[](std::size_t local) const { return communicators_[local]; }
  /// Returns NCCL's operation that multiplies by the element of `type` at `factor`, then sums. The factor is
  /// the same in every call.
  [[nodiscard]] ncclRedOp_t premultiplied_sum(std::size_t local, ncclDataType_t type,
                                              std::span<const std::byte> factor);

 private:
  /// A reduction that has been made for one communicator and element type, as NCCL requires.
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
