// SPDX-License-Identifier: Apache-2.0
#include "nccl_memory.hpp"

#include "tutti/device.hpp"
#include "tutti/error.hpp"
#include "tutti/layout.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

constexpr std::size_t unit_of_pieces = std::size_t{2} << 20U;
constexpr std::size_t most_bytes_kept = std::size_t{64} << 20U;
constexpr int symmetric_window = 1;  ///< NCCL_WIN_COLL_SYMMETRIC, which older headers do not have

}  // namespace

NcclMemory::NcclMemory(Kind kind, const NcclLibrary& nccl, const Session& session,
                       const std::vector<ncclComm_t>& communicators)
    : kind_(kind),
      nccl_(nccl),
      session_(session),
      communicators_(communicators),
      pieces_(communicators.size()) {
  const bool has_all = nccl.allocate != nullptr && nccl.free != nullptr &&
                       (are_windows() ? nccl.add_window != nullptr && nccl.remove_window != nullptr
                                      : nccl.add_buffer != nullptr && nccl.remove_buffer != nullptr);
  if (!has_all) {
    refusal_ = fmt::format("NCCL {} has no {}, expected {} or newer", nccl.version_text(),
                           are_windows() ? "ncclCommWindowRegister" : "ncclCommRegister",
                           are_windows() ? "2.27" : "2.19");
  }
}

void NcclMemory::reserve(std::size_t sets, std::size_t bytes_of_set) {
  if (!refusal_.empty()) throw Error(ErrorCode::unsupported, refusal_);
  bytes_of_set_ = bytes_of_set;
  if (sets * bytes_of_set <= bytes_) return;
  release();
  allocate((sets * bytes_of_set + unit_of_pieces - 1) / unit_of_pieces * unit_of_pieces);
  tell_communicators();
}

void NcclMemory::trim() {
  if (bytes_ > most_bytes_kept) release();
}

void NcclMemory::allocate(std::size_t bytes) {
  ncclResult_t failure = ncclSuccess;
  for (std::size_t own = 0; own < pieces_.size() && failure == ncclSuccess; ++own) {
    const DeviceGuard guard(session_.streams()[own].device());
    failure = nccl_.allocate(&pieces_[own].memory, bytes);
    if (failure != ncclSuccess) pieces_[own].memory = nullptr;
  }
  // All ranks or none go on to what waits for the others.
  if (anywhere(failure != ncclSuccess)) {
    release();
    throw Error(
        ErrorCode::out_of_memory,
        fmt::format("--peer nccl: ncclMemAlloc of {} bytes: {}", bytes,
                    failure == ncclSuccess ? "no memory on another rank" : nccl_.error_string(failure)),
        static_cast<int>(failure));
  }
  bytes_ = bytes;
}

void NcclMemory::tell_communicators() {
  const ncclResult_t result = in_group([this](std::size_t own) {
    Piece& piece = pieces_[own];
    return are_windows()
               ? nccl_.add_window(communicators_[own], piece.memory, bytes_, &piece.handle, symmetric_window)
               : nccl_.add_buffer(communicators_[own], piece.memory, bytes_, &piece.handle);
  });
  // Where there are no windows between the devices, NCCL gives none, and calls that a success.
  const bool has_none =
      std::ranges::any_of(pieces_, [](const Piece& piece) { return piece.handle == nullptr; });
  if (!anywhere(result != ncclSuccess || (are_windows() && has_none))) return;
  refusal_ = fmt::format("NCCL {} makes no {} between these devices{}", nccl_.version_text(),
                         are_windows() ? "symmetric windows" : "registered buffers",
                         result == ncclSuccess ? "" : fmt::format(": {}", nccl_.error_string(result)));
  release();
  throw Error(ErrorCode::unsupported, refusal_);
}

void NcclMemory::release() noexcept {
  try {
    give_back();
  } catch (const Error&) {
    // The device has failed: so has the run, with a better word on it.
  }
  for (Piece& piece : pieces_) piece = {};
  bytes_ = 0;
}

void NcclMemory::give_back() {
  session_.synchronize();
  static_cast<void>(in_group([this](std::size_t own) {
    void* const handle = std::exchange(pieces_[own].handle, nullptr);
    if (handle == nullptr) return ncclSuccess;
    return are_windows() ? nccl_.remove_window(communicators_[own], handle)
                         : nccl_.remove_buffer(communicators_[own], handle);
  }));
  for (std::size_t own = 0; own < pieces_.size(); ++own) {
    const DeviceGuard guard(session_.streams()[own].device());
    if (pieces_[own].memory != nullptr) static_cast<void>(nccl_.free(pieces_[own].memory));
  }
}

template <class Work>
ncclResult_t NcclMemory::in_group(Work&& work) const {
  ncclResult_t result = nccl_.group_start();
  for (std::size_t own = 0; own < pieces_.size(); ++own) {
    const DeviceGuard guard(session_.streams()[own].device());
    const ncclResult_t one = work(own);
    if (result == ncclSuccess) result = one;
  }
  const ncclResult_t ended = nccl_.group_end();
  return result == ncclSuccess ? ended : result;
}

bool NcclMemory::anywhere(bool here) const {
  double flag = here ? 1.0 : 0.0;
  session_.processes().maximum({&flag, 1});
  return flag != 0.0;
}

void NcclMemory::start_set(std::size_t set) {
  set_ = set;
  for (Piece& piece : pieces_) piece.used = 0;
}

Tensor NcclMemory::make(const std::vector<std::int64_t>& sizes, DType dtype, std::size_t own) {
  Piece& piece = pieces_[own];
  const std::size_t bytes = Layout(dtype, sizes).nbytes();
  const std::size_t taken = std::max<std::size_t>((bytes + alignment - 1) / alignment, 1) * alignment;
  if (piece.used + taken > bytes_of_set_)
    throw Error(ErrorCode::internal, "--peer nccl: a call has more operands than were foreseen");
  std::byte* const memory = static_cast<std::byte*>(piece.memory) + set_ * bytes_of_set_ + piece.used;
  piece.used += taken;
  return Tensor(TensorView(memory, dtype, sizes, session_.members().own[own]));
}

}  // namespace tutti::perf
