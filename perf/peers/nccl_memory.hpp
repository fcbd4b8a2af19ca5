// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/block_memory.hpp"
#include "perf/operations/operation.hpp"
#include "perf/peers/nccl_library.hpp"
#include "perf/session/session.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
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

/// Memory from NCCL for the operands of its calls, registered with its communicators: one piece for each
/// local member, of the same size on all members of all ranks, so that tensors made in the same order have
/// the same offset on each.
///
/// NCCL remembers memory that graphs have used, by its address, for some calls after the graphs and the
/// registration are gone; it would take new memory at that address for the old. So communicators get only one
/// piece in their lifetime: they are made with it, and end before it is freed.
class NcclMemory final : public BlockMemory {
 public:
  enum class Kind : std::uint8_t {
    buffers,  ///< ncclCommRegister
    windows,  ///< ncclCommWindowRegister, symmetric
  };
  /// Returns true if the address is in a device's memory: tells a window's handle from that of a buffer.
  using IsOnDevice = std::function<bool(const void*)>;
  NcclMemory(Kind kind, const NcclLibrary& nccl, const Session& session, NcclCommunicators& communicators,
             IsOnDevice is_on_device = lies_on_device);
  ~NcclMemory() override;

  [[nodiscard]] bool are_windows() const noexcept { return kind_ == Kind::windows; }
  /// Returns why there is no such memory; empty if there is, or if that is not yet known.
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }
  /// Announces that so much will be needed, and should be kept from the first use on. The same on all ranks.
  void foresee(std::size_t bytes) noexcept;
  /// Makes room for `sets` sets of `bytes_of_set` in each member, for such calls. The same on all ranks;
  /// collective: all throw Error(unsupported) or Error(out_of_memory) if one cannot. If there was less room,
  /// or this NCCL cannot make such calls after the earlier ones, all tensors made before are gone, and so are
  /// the communicators and everything that refers to them.
  void reserve(std::size_t sets, std::size_t bytes_of_set, NcclCallKind kind);
  /// Frees the memory, and ends the communicators, if there is more of it than should be kept. Collective.
  void trim();
  /// Frees all memory. Collective.
  void release();

 private:
  struct Piece {
    void* memory = nullptr;
    void* handle = nullptr;  ///< what NCCL knows it by
  };

  [[nodiscard]] static bool lies_on_device(const void* memory);
  [[nodiscard]] std::byte* block(std::size_t local) const override {
    return static_cast<std::byte*>(pieces_[local].memory);
  }
  void allocate(std::size_t bytes);
  void tell_communicators();
  /// Returns true if NCCL's handle is of the kind of memory that was asked for.
  [[nodiscard]] bool is_known(const Piece& piece) const;
  [[nodiscard]] std::string reason_of(ncclResult_t result) const;
  /// Ends the registration of this rank's memory with NCCL.
  void end_use() noexcept;
  void free_all() noexcept;
  /// Calls `work` for each local member in a group, and returns this rank's first result other than success.
  template <class Work>
  [[nodiscard]] ncclResult_t in_group(Work&& work) const;
  /// Returns true on all ranks if `here` is true on any rank.
  [[nodiscard]] bool anywhere(bool here) const;

  Kind kind_;
  const NcclLibrary& nccl_;
  const Session& session_;
  NcclCommunicators& communicators_;
  IsOnDevice is_on_device_;
  std::string refusal_;
  std::vector<Piece> pieces_;
  std::size_t bytes_ = 0;  ///< of each
  std::size_t foreseen_ = 0;
};

// Defects of NCCL versions in registered memory, according to their sources and release notes, which are
// avoided. Versions are numbers of ncclGetVersion: 22803 is 2.28.3.

/// Returns true if a collective loses the addresses of memory that messages (ncclSend, ncclRecv) used first:
/// it takes other members' memory to be at address 0, and so writes out of bounds or waits for ever.
[[nodiscard]] bool loses_addresses_after_messages(int version);

/// Returns why calls of the operation must not be made in symmetric windows; empty if they may.
[[nodiscard]] std::string defect_of_windows(int version, const Operation& operation, const Case& what);

}  // namespace tutti::perf
