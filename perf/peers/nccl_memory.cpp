// SPDX-License-Identifier: Apache-2.0
#include "perf/peers/nccl_memory.hpp"

#include "tutti/cuda_interop.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"

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

/// The first one that has kernels for averages in windows.
constexpr int averages_in_windows = 23000;

bool is_summed_in_windows(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float16 || dtype == DType::bfloat16 ||
         dtype == DType::complex64;
}

/// Returns how many of a call's tensors go by kernels of windows; others go as in registered buffers.
std::size_t tensors_by_windows(int version, const Operation& operation, const Case& what) {
  if (operation.has_unequal_parts()) return 0;
  const std::vector<TensorSpec> tensors = payload_tensors(what, operation.is_coalesced());
  if (operation.is(Collective::all_gather)) return tensors.size();
  if (!operation.is(Collective::all_reduce) && !operation.is(Collective::reduce_scatter)) return 0;
  const bool averages = what.reduce_kind == ReduceKind::avg && version >= averages_in_windows;
  if (what.reduce_kind != ReduceKind::sum && !averages) return 0;
  return static_cast<std::size_t>(std::ranges::count_if(
      tensors, [](const TensorSpec& tensor) { return is_summed_in_windows(*tensor.dtype); }));
}

}  // namespace

void NcclCommunicators::make() {
  const Members& members = session_.members();
  ncclUniqueId id{};
  if (session_.processes().rank() == 0) nccl_.check(nccl_.get_unique_id(&id), "ncclGetUniqueId");
  id = gather_values<ncclUniqueId>({&id, 1}, session_.processes()).front().front();
  std::vector<ncclComm_t> made(session_.streams().size(), nullptr);
  nccl_.check(nccl_.group_start(), "ncclGroupStart");
  for (std::size_t local = 0; local < made.size(); ++local) {
    const DeviceGuard guard(session_.streams()[local].device());
    nccl_.check(nccl_.init_rank(&made[local], members.count, id, members.number_of(local)),
                "ncclCommInitRank");
  }
  nccl_.check(nccl_.group_end(), "ncclGroupEnd");
  communicators_ = std::move(made);
}

void NcclCommunicators::end() noexcept {
  for (const Premultiplied& made : premultiplied_)
    static_cast<void>(nccl_.destroy_operation(made.operation, communicators_[made.local]));
  premultiplied_.clear();
  for (ncclComm_t communicator : communicators_) static_cast<void>(nccl_.destroy(communicator));
  communicators_.clear();
  sends_ = false;
}

void NcclCommunicators::abandon() noexcept {
  premultiplied_.clear();
  for (ncclComm_t communicator : communicators_) static_cast<void>(nccl_.abort(communicator));
  communicators_.clear();
  sends_ = false;
}

bool NcclCommunicators::can_make(NcclCallKind kind) const {
  return kind == NcclCallKind::messages || !sends_ || !loses_addresses_after_messages(nccl_.version());
}

void NcclCommunicators::expect(NcclCallKind kind) noexcept {
  sends_ = sends_ || kind == NcclCallKind::messages;
}

ncclRedOp_t NcclCommunicators::premultiplied_sum(std::size_t local, ncclDataType_t type,
                                                 std::span<const std::byte> factor) {
  const auto known = std::ranges::find_if(
      premultiplied_, [&](const Premultiplied& made) { return made.local == local && made.type == type; });
  if (known != premultiplied_.end()) return known->operation;
  std::vector<std::byte> element(factor.begin(), factor.end());  // NCCL takes it from what may change
  ncclRedOp_t operation = ncclSum;
  nccl_.check(nccl_.create_premul_sum(&operation, element.data(), type, ncclScalarHostImmediate,
                                      communicators_[local]),
              "ncclRedOpCreatePreMulSum");
  premultiplied_.push_back({local, type, operation});
  return operation;
}

NcclMemory::NcclMemory(Kind kind, const NcclLibrary& nccl, const Session& session,
                       NcclCommunicators& communicators, IsOnDevice is_on_device)
    : BlockMemory(session.members().local),
      kind_(kind),
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
  cut(bytes_of_set);
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
  return session_.processes().largest(here ? 1.0 : 0.0) != 0.0;
}

bool loses_addresses_after_messages(int version) {
  return version >= 22300 && version < 22900;
}

std::string defect_of_windows(int version, const Operation& operation, const Case& what) {
  const std::size_t tensors = tensors_by_windows(version, operation, what);
  if (version >= 22800 && version < 22807 && tensors > 1)
    return "NCCL 2.28 before 2.28.7 mixes up the calls of a group in symmetric windows";
  // No version is known in which it has them.
  if (version >= averages_in_windows && tensors > 0 && what.reduce_kind == ReduceKind::avg &&
      operation.is(Collective::all_reduce))
    return "NCCL 2.30 and later has no kernel for averages of all_reduce in symmetric windows";
  return "";
}

}  // namespace tutti::perf
