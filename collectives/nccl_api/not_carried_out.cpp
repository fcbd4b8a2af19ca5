// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/handle.hpp"

#include <string>

/// The functions that are exported, so that programs load, and not carried out.
namespace tutti::nccl_api {
namespace {

/// Keeps the sentence that says so.
ncclResult_t refused(const char* function) noexcept {
  return guarded(function, [&] {
    throw Refusal{ncclInvalidUsage, std::string(function) + ": tutti does not carry this function out"};
  });
}

/// Stands for ranks that nobody knows: functions that return ranks have no other way to refuse.
constexpr ncclTeam_t no_team{0, 0, 0};

}  // namespace
}  // namespace tutti::nccl_api

using tutti::nccl_api::no_team;
using tutti::nccl_api::refused;

// Callers' arguments are not read, and most of their types are not known here.
#pragma GCC visibility push(default)
// NOLINTBEGIN(readability-identifier-naming): the names are the interface's
extern "C" {

ncclResult_t ncclCommGetUniqueId(ncclComm_t, ncclUniqueId*) {
  return refused("ncclCommGetUniqueId");
}
ncclResult_t ncclCommGrow(ncclComm_t, int, const ncclUniqueId*, int, ncclComm_t*, ncclConfig_t*) {
  return refused("ncclCommGrow");
}
ncclResult_t ncclCommRevoke(ncclComm_t, int) {
  return refused("ncclCommRevoke");
}
ncclResult_t ncclCommSuspend(ncclComm_t, int) {
  return refused("ncclCommSuspend");
}
ncclResult_t ncclCommResume(ncclComm_t) {
  return refused("ncclCommResume");
}
ncclResult_t ncclCommMemStats(ncclComm_t, ncclCommMemStat_t, uint64_t*) {
  return refused("ncclCommMemStats");
}
ncclResult_t ncclCommQueryProperties() {
  return refused("ncclCommQueryProperties");
}
ncclResult_t ncclDevCommCreate() {
  return refused("ncclDevCommCreate");
}
ncclResult_t ncclDevCommDestroy() {
  return refused("ncclDevCommDestroy");
}
ncclResult_t ncclGetCftDeviceLeInfo() {
  return refused("ncclGetCftDeviceLeInfo");
}
ncclResult_t ncclGetLsaDevicePointer() {
  return refused("ncclGetLsaDevicePointer");
}
ncclResult_t ncclGetLsaMultimemDevicePointer() {
  return refused("ncclGetLsaMultimemDevicePointer");
}
ncclResult_t ncclGetMultimemDeviceLeInfo() {
  return refused("ncclGetMultimemDeviceLeInfo");
}
ncclResult_t ncclGetMultimemDevicePointer() {
  return refused("ncclGetMultimemDevicePointer");
}
ncclResult_t ncclGetPeerDeviceLeInfo() {
  return refused("ncclGetPeerDeviceLeInfo");
}
ncclResult_t ncclGetPeerDevicePointer() {
  return refused("ncclGetPeerDevicePointer");
}
ncclResult_t ncclGinBarrierCreateRequirement() {
  return refused("ncclGinBarrierCreateRequirement");
}
ncclResult_t ncclGinInboxA2ACreateRequirement() {
  return refused("ncclGinInboxA2ACreateRequirement");
}
ncclResult_t ncclGinOutboxCreateRequirement() {
  return refused("ncclGinOutboxCreateRequirement");
}
ncclResult_t ncclLLA2ACreateRequirement() {
  return refused("ncclLLA2ACreateRequirement");
}
ncclResult_t ncclLsaBarrierCreateRequirement() {
  return refused("ncclLsaBarrierCreateRequirement");
}
ncclResult_t ncclParamBind() {
  return refused("ncclParamBind");
}
ncclResult_t ncclParamGet() {
  return refused("ncclParamGet");
}
ncclResult_t ncclParamGetAllParameterKeys() {
  return refused("ncclParamGetAllParameterKeys");
}
ncclResult_t ncclParamGetI16() {
  return refused("ncclParamGetI16");
}
ncclResult_t ncclParamGetI32() {
  return refused("ncclParamGetI32");
}
ncclResult_t ncclParamGetI64() {
  return refused("ncclParamGetI64");
}
ncclResult_t ncclParamGetI8() {
  return refused("ncclParamGetI8");
}
ncclResult_t ncclParamGetParameter() {
  return refused("ncclParamGetParameter");
}
ncclResult_t ncclParamGetStr() {
  return refused("ncclParamGetStr");
}
ncclResult_t ncclParamGetU16() {
  return refused("ncclParamGetU16");
}
ncclResult_t ncclParamGetU32() {
  return refused("ncclParamGetU32");
}
ncclResult_t ncclParamGetU64() {
  return refused("ncclParamGetU64");
}
ncclResult_t ncclParamGetU8() {
  return refused("ncclParamGetU8");
}
ncclResult_t ncclPutSignal() {
  return refused("ncclPutSignal");
}
ncclResult_t ncclSetEncryption() {
  return refused("ncclSetEncryption");
}
ncclResult_t ncclSignal() {
  return refused("ncclSignal");
}
ncclResult_t ncclWaitSignal() {
  return refused("ncclWaitSignal");
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t*) {
  return refused("ncclGroupSimulateEnd");
}

int ncclLLA2ACalcSlots(int, int) {
  static_cast<void>(refused("ncclLLA2ACalcSlots"));
  return 0;
}
ncclTeam_t ncclTeamCft() {
  static_cast<void>(refused("ncclTeamCft"));
  return no_team;
}
ncclTeam_t ncclTeamCftMultimem() {
  static_cast<void>(refused("ncclTeamCftMultimem"));
  return no_team;
}
ncclTeam_t ncclTeamLsa() {
  static_cast<void>(refused("ncclTeamLsa"));
  return no_team;
}
ncclTeam_t ncclTeamRail() {
  static_cast<void>(refused("ncclTeamRail"));
  return no_team;
}
int ncclTeamRankToLsa() {
  static_cast<void>(refused("ncclTeamRankToLsa"));
  return -1;
}

/// The team of all ranks, which needs no device communicator.
ncclTeam_t ncclTeamWorld(ncclComm_t comm) {
  return comm == nullptr ? no_team : ncclTeam_t{comm->ranks, comm->rank, 1};
}
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  return comm == nullptr ? -1 : comm->rank + (rank - team.rank) * team.stride;
}

void ncclParamDumpAll() {}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
#pragma GCC visibility pop
