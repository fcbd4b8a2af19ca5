// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/forwarding.hpp"
#include "collectives/nccl_api/handle.hpp"
#include "collectives/nccl_api/nccl_library.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// The functions that are exported, so that programs load, and carried out by NCCL alone: for communicators
/// that it carries, and for none of tutti.
namespace tutti::nccl_api {
namespace {

[[noreturn]] void refuse(const char* function, const char* instead = "") {
  throw Refusal{ncclInvalidUsage,
                std::string(function) + ": tutti does not carry this function out" + instead};
}

/// Keeps the sentence that says so.
ncclResult_t refused(const char* function) noexcept {
  return guarded(function, [&] { refuse(function); });
}

constexpr const char* ask_for_nccl = "; with TUTTI_NCCL_FALLBACK=always, NCCL carries all communicators";

/// Has NCCL make the call for a communicator of its own, at once or when the group ends.
template <auto Own, class... Arguments>
ncclResult_t only_by_nccl_now(const char* function, Arguments... arguments) noexcept {
  return called_now<Own>(
      function, [&] { refuse(function, ask_for_nccl); }, arguments...);
}
template <auto Own, class... Arguments>
ncclResult_t only_by_nccl(const char* function, Arguments... arguments) noexcept {
  return called<Own>(
      function, [&] { refuse(function, ask_for_nccl); }, arguments...);
}

/// Has NCCL make a call that names no communicator, but things that come from communicators of NCCL's.
template <auto Own, class... Arguments>
ncclResult_t only_by_open_nccl(const char* function, Arguments... arguments) noexcept {
  return guarded(function, [&] {
    if (!NcclLibrary::is_open()) refuse(function, ask_for_nccl);
    require_success_of_nccl(function, call_nccl<Own>(function, arguments...), nullptr);
  });
}

/// Has NCCL wait for signals, at once or, of a copy of the list, when the group ends.
template <auto Own>
ncclResult_t wait_signal_by_nccl(int count, ncclWaitSignalDesc_t* signals, ncclComm_t comm,
                                 cudaStream_t stream) noexcept {
  static constexpr const char* function = "ncclWaitSignal";
  const ncclResult_t result = guarded(function, [&] {
    if (!is_of_nccl(comm)) refuse(function, ask_for_nccl);
    static_cast<void>(nccl_function<Own>(function));
    std::vector<ncclWaitSignalDesc_t> list(signals, signals + std::max(count, 0));
    Group::of_thread().add(
        Forwarded{.function = function, .comm = comm, .call = [list, nccl = comm->nccl, stream]() mutable {
                    return call_nccl<Own>(function, static_cast<int>(list.size()), list.data(), nccl, stream);
                  }});
  });
  if (result != ncclSuccess) Group::of_thread().fail(result);
  return result;
}

/// Returns what NCCL says of a communicator of its own, else `none`: these functions have no result for
/// errors.
template <auto Own, class Answer, class... Arguments>
Answer answer_of_nccl(const char* function, Answer none, ncclComm_t comm, Arguments... arguments) noexcept {
  static_cast<void>(guarded(function, [&] {
    if (!is_of_nccl(comm)) refuse(function, ask_for_nccl);
    none = call_nccl<Own>(function, comm->nccl, arguments...);
  }));
  return none;
}

/// Stands for ranks that nobody knows.
constexpr ncclTeam_t no_team{0, 0, 0};

}  // namespace
}  // namespace tutti::nccl_api

namespace face = tutti::nccl_api;
using face::only_by_nccl;
using face::only_by_nccl_now;
using face::only_by_open_nccl;
using face::refused;

#pragma GCC visibility push(default)
// NOLINTBEGIN(readability-identifier-naming): the names are the interface's
extern "C" {

/// A multicast address, as device communicators have it.
struct ncclMultimemHandle {
  void* mcBasePtr;
};

// Communicators.
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  return only_by_nccl_now<&ncclCommRevoke>(__func__, comm, revokeFlags);
}
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags) {
  return only_by_nccl_now<&ncclCommSuspend>(__func__, comm, flags);
}
ncclResult_t ncclCommResume(ncclComm_t comm) {
  return only_by_nccl_now<&ncclCommResume>(__func__, comm);
}
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value) {
  return only_by_nccl_now<&ncclCommMemStats>(__func__, comm, stat, value);
}
ncclResult_t ncclCommQueryProperties(ncclComm_t comm, void* props) {
  return only_by_nccl_now<&ncclCommQueryProperties>(__func__, comm, props);
}

// One-sided calls.
ncclResult_t ncclPutSignal(const void* localbuff, size_t count, ncclDataType_t datatype, int peer,
                           ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                           unsigned int flags, ncclComm_t comm, cudaStream_t stream) {
  return only_by_nccl<&ncclPutSignal>(__func__, localbuff, count, datatype, peer, peerWin, peerWinOffset,
                                      sigIdx, ctx, flags, comm, stream);
}
ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                        cudaStream_t stream) {
  return only_by_nccl<&ncclSignal>(__func__, peer, sigIdx, ctx, flags, comm, stream);
}
ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm,
                            cudaStream_t stream) {
  return face::wait_signal_by_nccl<&ncclWaitSignal>(nDesc, signalDescs, comm, stream);
}

// Device communicators.
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void* reqs, void* outDevComm) {
  return only_by_nccl_now<&ncclDevCommCreate>(__func__, comm, reqs, outDevComm);
}
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const void* devComm) {
  return only_by_nccl_now<&ncclDevCommDestroy>(__func__, comm, devComm);
}
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int nBarriers, void* outHandle,
                                             void* outReq) {
  return only_by_nccl_now<&ncclGinBarrierCreateRequirement>(__func__, comm, team, nBarriers, outHandle,
                                                            outReq);
}
ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers, void* outHandle, void* outReq) {
  return only_by_open_nccl<&ncclLsaBarrierCreateRequirement>(__func__, team, nBarriers, outHandle, outReq);
}
ncclResult_t ncclLLA2ACreateRequirement(int nBlocks, int nSlots, void* outHandle, void* outReq) {
  return only_by_open_nccl<&ncclLLA2ACreateRequirement>(__func__, nBlocks, nSlots, outHandle, outReq);
}
ncclResult_t ncclGinOutboxCreateRequirement(int nBlocks, int sizeLog2, void* outHandle, void* outReq) {
  return only_by_open_nccl<&ncclGinOutboxCreateRequirement>(__func__, nBlocks, sizeLog2, outHandle, outReq);
}
ncclResult_t ncclGinInboxA2ACreateRequirement(ncclTeam_t peers, int nBlocks, int sizeLog2, void* outHandle,
                                              void* outReq) {
  return only_by_open_nccl<&ncclGinInboxA2ACreateRequirement>(__func__, peers, nBlocks, sizeLog2, outHandle,
                                                              outReq);
}
int ncclLLA2ACalcSlots(int maxElts, int maxEltSize) {
  const char* const function = __func__;
  int slots = 0;
  static_cast<void>(face::guarded(function, [&] {
    if (!face::NcclLibrary::is_open()) face::refuse(function, face::ask_for_nccl);
    slots = face::call_nccl<&ncclLLA2ACalcSlots>(function, maxElts, maxEltSize);
  }));
  return slots;
}
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void** outPtr) {
  return only_by_open_nccl<&ncclGetLsaMultimemDevicePointer>(__func__, window, offset, outPtr);
}
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset, ncclMultimemHandle multimem,
                                          void** outPtr) {
  return only_by_open_nccl<&ncclGetMultimemDevicePointer>(__func__, window, offset, multimem, outPtr);
}
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank, void** outPtr) {
  return only_by_open_nccl<&ncclGetLsaDevicePointer>(__func__, window, offset, lsaRank, outPtr);
}
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void** outPtr) {
  return only_by_open_nccl<&ncclGetPeerDevicePointer>(__func__, window, offset, peer, outPtr);
}
ncclResult_t ncclGetMultimemDeviceLeInfo(ncclWindow_t window, size_t offset, uint32_t* leId,
                                         size_t* leOffset) {
  return only_by_open_nccl<&ncclGetMultimemDeviceLeInfo>(__func__, window, offset, leId, leOffset);
}
ncclResult_t ncclGetCftDeviceLeInfo(ncclWindow_t window, size_t offset, int peerCft, ncclTeam_t cftTeam,
                                    uint32_t* leId, size_t* leOffset) {
  return only_by_open_nccl<&ncclGetCftDeviceLeInfo>(__func__, window, offset, peerCft, cftTeam, leId,
                                                    leOffset);
}
ncclResult_t ncclGetPeerDeviceLeInfo(ncclWindow_t window, size_t offset, int peerWorld, uint32_t* leId,
                                     size_t* leOffset) {
  return only_by_open_nccl<&ncclGetPeerDeviceLeInfo>(__func__, window, offset, peerWorld, leId, leOffset);
}
ncclTeam_t ncclTeamCft(ncclComm_t comm, int mode) {
  return face::answer_of_nccl<&ncclTeamCft>(__func__, face::no_team, comm, mode);
}
ncclTeam_t ncclTeamCftMultimem(ncclComm_t comm) {
  return face::answer_of_nccl<&ncclTeamCftMultimem>(__func__, face::no_team, comm);
}
ncclTeam_t ncclTeamLsa(ncclComm_t comm) {
  return face::answer_of_nccl<&ncclTeamLsa>(__func__, face::no_team, comm);
}
ncclTeam_t ncclTeamRail(ncclComm_t comm) {
  return face::answer_of_nccl<&ncclTeamRail>(__func__, face::no_team, comm);
}
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank) {
  return face::answer_of_nccl<&ncclTeamRankToLsa>(__func__, -1, comm, team, rank);
}

/// The team of all ranks, which needs no device communicator.
ncclTeam_t ncclTeamWorld(ncclComm_t comm) {
  return comm == nullptr ? face::no_team : ncclTeam_t{comm->ranks, comm->rank, 1};
}
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  return comm == nullptr ? -1 : comm->rank + (rank - team.rank) * team.stride;
}

// What belongs to the process, not to a communicator: NCCL might have read it before it is opened, or not.
ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t*) {
  return refused(__func__);
}
ncclResult_t ncclParamBind(ncclParamHandle_t*, const char*) {
  return refused(__func__);
}
ncclResult_t ncclParamGet(ncclParamHandle_t, void*, int, int*) {
  return refused(__func__);
}
ncclResult_t ncclParamGetAllParameterKeys(const char***, int*) {
  return refused(__func__);
}
ncclResult_t ncclParamGetI16(ncclParamHandle_t, int16_t*) {
  return refused(__func__);
}
ncclResult_t ncclParamGetI32(ncclParamHandle_t, int32_t*) {
  return refused(__func__);
}
ncclResult_t ncclParamGetI64(ncclParamHandle_t, int64_t*) {
  return refused(__func__);
}
ncclResult_t ncclParamGetI8(ncclParamHandle_t, int8_t*) {
  return refused(__func__);
}
ncclResult_t ncclParamGetParameter(const char*, const char**, int*) {
  return refused(__func__);
}
ncclResult_t ncclParamGetStr(ncclParamHandle_t, const char**) {
  return refused(__func__);
}
ncclResult_t ncclParamGetU16(ncclParamHandle_t, uint16_t*) {
  return refused(__func__);
}
ncclResult_t ncclParamGetU32(ncclParamHandle_t, uint32_t*) {
  return refused(__func__);
}
ncclResult_t ncclParamGetU64(ncclParamHandle_t, uint64_t*) {
  return refused(__func__);
}
ncclResult_t ncclParamGetU8(ncclParamHandle_t, uint8_t*) {
  return refused(__func__);
}
void ncclParamDumpAll() {}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t*) {
  return refused(__func__);
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
#pragma GCC visibility pop
