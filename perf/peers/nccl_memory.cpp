// SPDX-License-Identifier: Apache-2.0
#include "perf/peers/nccl_memory.hpp"

#include "tutti/cuda_interop.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"
#include "tutti/layout.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

constexpr std::size_t unit_of_pieces = std::size_t{2} << 20U;
constexpr std::size_t always_kept = std::size_t{64} << 20U;
constexpr int symmetric_window = 1;  ///< NCCL_WIN_COLL_SYMMETRIC, which older headers do not have

std::size_t whole_units(std::size_t bytes) {
  return (bytes + unit_of_pieces - 1) / unit_of_pieces * unit_of_pieces;
}

}  // namespace

NcclMemory::NcclMemory(Kind kind, const NcclLibrary& nccl, const Session& session,
                       NcclCommunicators& communicators, IsOnDevice is_on_device)
    : kind_(kind),
      nccl_(nccl),
      session_(session),
      communicators_(communicators),
      is_on_device_(std::move(is_on_device)),
      pieces_(session.streams().size()) {
  const bool has_all = nccl.allocate != nullptr && nccl.free != nullptr &&
                       (are_windows() ? nccl.add_window != nullptr && nccl.remove_window != nullptr
                                      : nccl.add_buffer != nullptr && nccl.remove_buffer != nullptr);
  if (!has_all) {
    refusal_ = fmt::format("NCCL {} has no {}, expected {} or newer", nccl.version_text(),
                           are_windows() ? "ncclCommWindowRegister" : "ncclCommRegister",
                           are_windows() ? "2.27" : "2.19");
  }
}

NcclMemory::~NcclMemory() {
  end_use();
  free_all();
}

void NcclMemory::foresee(std::size_t bytes) noexcept {
  foreseen_ = std::max(foreseen_, bytes);
}

void NcclMemory::reserve(std::size_t sets, std::size_t bytes_of_set, NcclCallKind kind) {
  if (!refusal_.empty()) throw Error(ErrorCode::unsupported, refusal_);
  bytes_of_set_ = bytes_of_set;
  if (sets * bytes_of_set > bytes_ || !communicators_.can_make(kind)) {
    release();
    allocate(whole_units(std::max(sets * bytes_of_set, foreseen_)));
    communicators_.make();
    tell_communicators();
  }
  communicators_.expect(kind);
}

void NcclMemory::trim() {
  if (bytes_ > std::max(always_kept, whole_units(foreseen_))) release();
}

void NcclMemory::allocate(std::size_t bytes) {
  ncclResult_t failure = ncclSuccess;
  for (std::size_t local = 0; local < pieces_.size() && failure == ncclSuccess; ++local) {
    const DeviceGuard guard(session_.streams()[local].device());
    failure = nccl_.allocate(&pieces_[local].memory, bytes);
    if (failure != ncclSuccess) pieces_[local].memory = nullptr;
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
  const ncclResult_t result = in_group([this](std::size_t local) {
    Piece& piece = pieces_[local];
    return are_windows() ? nccl_.add_window(communicators_[local], piece.memory, bytes_, &piece.handle,
                                            symmetric_window)
                         : nccl_.add_buffer(communicators_[local], piece.memory, bytes_, &piece.handle);
  });
  const bool are_known = std::ranges::all_of(pieces_, [this](const Piece& piece) { return is_known(piece); });
  if (!anywhere(result != ncclSuccess || !are_known)) return;
  refusal_ = fmt::format("NCCL {} {}", nccl_.version_text(), reason_of(result));
  if (anywhere(result != ncclSuccess)) {
    for (Piece& piece : pieces_) piece.handle = nullptr;
    communicators_.abandon();
  }
  release();
  throw Error(ErrorCode::unsupported, refusal_);
}

bool NcclMemory::is_known(const Piece& piece) const {
  // Where there are no windows between the devices, NCCL gives none, or a buffer's handle, which is the
  // host's, and calls that a success. A window is known by what lies on the device.
  return piece.handle != nullptr && (!are_windows() || is_on_device_(piece.handle));
}

std::string NcclMemory::reason_of(ncclResult_t result) const {
  std::string reason =
      are_windows() ? "makes no symmetric windows between these devices" : "registers no buffers";
  if (result != ncclSuccess) return reason + fmt::format(": {}", nccl_.error_string(result));
  const char* const registers = std::getenv("NCCL_LOCAL_REGISTER");
  if (!are_windows() && registers != nullptr) reason += fmt::format(": NCCL_LOCAL_REGISTER is {}", registers);
  return reason;
}

bool NcclMemory::lies_on_device(const void* memory) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, memory) == cudaSuccess)
    return attributes.type == cudaMemoryTypeDevice;
  static_cast<void>(cudaGetLastError());
  return false;
}

void NcclMemory::release() {
  end_use();
  // What a rank frees, no other one's NCCL has mapped any longer.
  session_.processes().barrier();
  free_all();
}

void NcclMemory::end_use() noexcept {
  try {
    session_.synchronize();
    static_cast<void>(in_group([this](std::size_t local) {
      void* const handle = std::exchange(pieces_[local].handle, nullptr);
      if (handle == nullptr) return ncclSuccess;
      return are_windows() ? nccl_.remove_window(communicators_[local], handle)
                           : nccl_.remove_buffer(communicators_[local], handle);
    }));
  } catch (const Error&) {
    // The device has failed: so has the run, with a better word on it.
  }
  communicators_.end();
}

void NcclMemory::free_all() noexcept {
  for (std::size_t local = 0; local < pieces_.size(); ++local) {
    const Piece piece = std::exchange(pieces_[local], {});
    if (piece.memory == nullptr) continue;
    try {
      const DeviceGuard guard(session_.streams()[local].device());
      static_cast<void>(nccl_.free(piece.memory));
    } catch (const Error&) {
      // As above.
    }
  }
  bytes_ = 0;
}

template <class Work>
ncclResult_t NcclMemory::in_group(Work&& work) const {
  ncclResult_t result = nccl_.group_start();
  for (std::size_t local = 0; local < pieces_.size(); ++local) {
    const DeviceGuard guard(session_.streams()[local].device());
    const ncclResult_t one = work(local);
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

Tensor NcclMemory::make(const std::vector<std::int64_t>& sizes, DType dtype, std::size_t local) {
  Piece& piece = pieces_[local];
  const std::size_t bytes = Layout(dtype, sizes).nbytes();
  const std::size_t taken = std::max<std::size_t>((bytes + alignment - 1) / alignment, 1) * alignment;
  if (piece.used + taken > bytes_of_set_)
    throw Error(ErrorCode::internal, "--peer nccl: a call has more operands than were announced");
  std::byte* const memory = static_cast<std::byte*>(piece.memory) + set_ * bytes_of_set_ + piece.used;
  piece.used += taken;
  return Tensor(TensorView(memory, dtype, sizes, session_.members().local[local]));
}

}  // namespace tutti::perf
