// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nccl_library.hpp"
#include "operand_memory.hpp"
#include "session.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace tutti::perf {

/// Memory from NCCL for the operands of its calls, of which its communicators are told: one piece in each own
/// member, as large in all members of all ranks, so that what is made in the same order lies at the same
/// place of it in each.
class NcclMemory final : public OperandMemory {
 public:
  enum class Kind : std::uint8_t {
    buffers,  ///< ncclCommRegister
    windows,  ///< ncclCommWindowRegister, symmetric
  };
  NcclMemory(Kind kind, const NcclLibrary& nccl, const Session& session,
             const std::vector<ncclComm_t>& communicators);
  ~NcclMemory() override { release(); }

  /// Why there is none; empty if there is, or as long as nobody knows.
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }
  /// Has room for `sets` sets of `bytes_of_set` in each member. The same on all ranks, collective: all throw
  /// Error(unsupported) or Error(out_of_memory) where one cannot. What was made before is gone.
  void reserve(std::size_t sets, std::size_t bytes_of_set);
  /// Gives the memory back if there is more of it than is worth keeping for the next ones.
  void trim();

  void start_set(std::size_t set) override;
  [[nodiscard]] Tensor make(const std::vector<std::int64_t>& sizes, DType dtype, std::size_t own) override;

 private:
  struct Piece {
    void* memory = nullptr;
    void* handle = nullptr;  ///< what NCCL knows it by
    std::size_t used = 0;    ///< of a set
  };

  [[nodiscard]] bool are_windows() const noexcept { return kind_ == Kind::windows; }
  void allocate(std::size_t bytes);
  void tell_communicators();
  void release() noexcept;
  void give_back();
  /// The first result that is none of success, of this rank.
  template <class Work>
  [[nodiscard]] ncclResult_t in_group(Work&& work) const;
  /// Whether any rank says so.
  [[nodiscard]] bool anywhere(bool here) const;

  Kind kind_;
  const NcclLibrary& nccl_;
  const Session& session_;
  const std::vector<ncclComm_t>& communicators_;
  std::string refusal_;
  std::vector<Piece> pieces_;
  std::size_t bytes_ = 0;         ///< of each
  std::size_t bytes_of_set_ = 0;  ///< the stride of sets
  std::size_t set_ = 0;
};

}  // namespace tutti::perf
