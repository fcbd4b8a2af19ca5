// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/case.hpp"
#include "perf/peers/nccl_communicators.hpp"
#include "perf/peers/nccl_library.hpp"
#include "perf/session/session.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace tutti::perf {

/// Memory from NCCL for the operands of its calls, of which its communicators are told: one piece in each own
/// member, as large in all members of all ranks, so that what is made in the same order lies at the same
/// place of it in each.
///
/// NCCL goes on knowing memory that graphs have used, at its address, for some calls after the graphs and the
/// registration are gone; new memory at that address would be taken for the old. So communicators are told of
/// one piece in their lives: they are made with it, and end before it is freed.
class NcclMemory final : public OperandMemory {
 public:
  enum class Kind : std::uint8_t {
    buffers,  ///< ncclCommRegister
    windows,  ///< ncclCommWindowRegister, symmetric
  };
  /// Whether memory is a device's, so that a window's handle is none of a buffer.
  using IsOnDevice = std::function<bool(const void*)>;
  NcclMemory(Kind kind, const NcclLibrary& nccl, const Session& session, NcclCommunicators& communicators,
             IsOnDevice is_on_device = lies_on_device);
  ~NcclMemory() override;

  [[nodiscard]] bool are_windows() const noexcept { return kind_ == Kind::windows; }
  /// Why there is none; empty if there is, or as long as nobody knows.
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }
  /// That so much will be needed, and is worth keeping from the first use on. The same on all ranks.
  void foresee(std::size_t bytes) noexcept;
  /// Has room for `sets` sets of `bytes_of_set` in each member, for such calls. The same on all ranks,
  /// collective: all throw Error(unsupported) or Error(out_of_memory) where one cannot. What was made before
  /// is gone, as are the communicators and what refers to them, if there was less room, or if this NCCL
  /// cannot make such calls after those that were made there.
  void reserve(std::size_t sets, std::size_t bytes_of_set, NcclCallKind kind);
  /// Gives the memory back, and ends the communicators, if there is more of it than is worth keeping for the
  /// next ones. Collective.
  void trim();
  /// Whatever there is. Collective.
  void release();

  void start_set(std::size_t set) override;
  [[nodiscard]] Tensor make(const std::vector<std::int64_t>& sizes, DType dtype, std::size_t local) override;

 private:
  struct Piece {
    void* memory = nullptr;
    void* handle = nullptr;  ///< what NCCL knows it by
    std::size_t used = 0;    ///< of a set
  };

  [[nodiscard]] static bool lies_on_device(const void* memory);
  void allocate(std::size_t bytes);
  void tell_communicators();
  /// Whether what NCCL returned tells of the kind of memory that is wanted.
  [[nodiscard]] bool is_known(const Piece& piece) const;
  [[nodiscard]] std::string reason_of(ncclResult_t result) const;
  /// Of this rank: NCCL knows nothing of the memory any more.
  void end_use() noexcept;
  void free_all() noexcept;
  /// The first result that is none of success, of this rank.
  template <class Work>
  [[nodiscard]] ncclResult_t in_group(Work&& work) const;
  /// Whether any rank says so.
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
  std::size_t bytes_of_set_ = 0;  ///< the stride of sets
  std::size_t set_ = 0;
};

}  // namespace tutti::perf
