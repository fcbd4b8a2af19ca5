// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/clique.hpp"
#include "collectives/nccl_api/configuration.hpp"
#include "collectives/nccl_api/forwarding.hpp"
#include "collectives/nccl_api/group.hpp"
#include "collectives/nccl_api/handle.hpp"
#include "collectives/nccl_api/joining.hpp"
#include "collectives/nccl_api/meeting/meeting_host.hpp"
#include "collectives/nccl_api/nccl_joining.hpp"
#include "tutti/device.hpp"

#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

/// Makes communicators, splits, shrinks and ends them.
namespace tutti::nccl_api {
namespace {

void require_ranks(const char* function, int ranks, int rank) {
  if (ranks >= 1 && rank >= 0 && rank < ranks) return;
  throw Refusal{ncclInvalidArgument,
                fmt::format("{}: rank is {} of {}, expected 0 to {}", function, rank, ranks, ranks - 1)};
}

ncclResult_t init_rank(const char* function, ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank,
                       const ncclConfig_t* config) {
  const ncclResult_t result = guarded(function, [&] {
    require(function, comm, "comm");
    *comm = nullptr;
    require_config(function, config);
    require_ranks(function, ranks, rank);
    Group::of_thread().add(Joining{.result = comm,
                                   .address = meeting_of(function, "commId", id),
                                   .ranks = ranks,
                                   .rank = rank,
                                   .device = current_device(),
                                   .configuration = configuration_of(config),
                                   .need = need_of(config)});
  });
  if (result != ncclSuccess) Group::of_thread().fail(result);
  return result;
}

std::vector<Device> listed_devices(int count, const int* list) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) devices.emplace_back(list == nullptr ? i : list[i]);
  return devices;
}

/// Returns the ranks that `ncclCommShrink` leaves out. Throws a `Refusal` if they cannot be.
std::vector<int> excluded_ranks(ncclComm_t comm, const int* list, int count) {
  if (count < 0)
    throw Refusal{ncclInvalidArgument,
                  fmt::format("ncclCommShrink: excludeRanksCount is {}, expected 0 or more", count)};
  if (count > 0) require("ncclCommShrink", list, "excludeRanksList");
  std::vector<int> excluded;
  for (int i = 0; i < count; ++i) {
    if (list[i] < 0 || list[i] >= comm->ranks || list[i] == comm->rank)
      throw Refusal{ncclInvalidArgument,
                    fmt::format("ncclCommShrink: excludeRanksList[{}] is {}, expected 0 to {}, and not the "
                                "caller's rank {}",
                                i, list[i], comm->ranks - 1, comm->rank)};
    excluded.push_back(list[i]);
  }
  return excluded;
}

/// Has NCCL make a part of a communicator that it carries, when the group ends or at once.
void split_by_nccl(ncclComm_t comm, int color, int key, ncclComm_t* result, const ncclConfig_t* config) {
  struct Split {
    Configuration configuration;
    ncclComm_t part = nullptr;
  };
  const auto split = std::make_shared<Split>(Split{.configuration = configuration_of(config)});
  Group::of_thread().add(Forwarded{
      .function = "ncclCommSplit",
      .comm = comm,
      .call =
          [nccl = comm->nccl, color, key, split] {
            return call_nccl<&ncclCommSplit>("ncclCommSplit", nccl, color, key, &split->part,
                                             config_in(split->configuration));
          },
      .finish = [device = comm->device, result, split] { *result = handle_for_part(split->part, device); }});
}

/// Has NCCL make a communicator of the ranks that are left.
void shrink_by_nccl(ncclComm_t comm, int* excluded, int count, ncclComm_t* result, const ncclConfig_t* config,
                    int flags) {
  Configuration configuration = configuration_of(config);
  ncclComm_t rest = nullptr;
  require_success_of_nccl("ncclCommShrink",
                          call_nccl<&ncclCommShrink>("ncclCommShrink", comm->nccl, excluded, count, &rest,
                                                     config_in(configuration), flags),
                          comm->nccl);
  *result = handle_for_part(rest, comm->device);
}

/// Returns the state of a communicator that NCCL carries.
ncclResult_t state_of_nccl(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  require_success_of_nccl("ncclCommGetAsyncError",
                          call_nccl<&ncclCommGetAsyncError>("ncclCommGetAsyncError", comm->nccl, &state),
                          comm->nccl);
  if (state != ncclSuccess && state != ncclInProgress)
    remember(state, call_nccl<&ncclGetLastError>("ncclGetLastError", comm->nccl));
  return state;
}

/// Returns the result that stands for the communicator's end, or success.
ncclResult_t state_of(Communicator& communicator) noexcept {
  if (communicator.is_running()) return ncclSuccess;
  try {
    communicator.check();
    return ncclSuccess;
  } catch (const Error& error) {
    // Of the end of a communicator, the code says that ranks have called differently.
    const bool is_mismatch = error.code() == ErrorCode::invalid_argument;
    return remember(is_mismatch ? ncclInvalidUsage : result_of(error.code()), error.what());
  } catch (...) {
    return handled();
  }
}

}  // namespace
}  // namespace tutti::nccl_api

namespace face = tutti::nccl_api;

// NOLINTBEGIN(readability-identifier-naming): the names are the interface's
extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  return face::guarded("ncclGetUniqueId", [&] {
    face::require("ncclGetUniqueId", uniqueId, "uniqueId");
    *uniqueId = face::new_id("ncclGetUniqueId", [] { return face::MeetingHost::get().announce(); });
  });
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return face::init_rank("ncclCommInitRank", comm, nranks, commId, rank, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config) {
  return face::init_rank("ncclCommInitRankConfig", comm, nranks, commId, rank, config);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId* commIds, ncclConfig_t* config) {
  const ncclResult_t result = face::guarded("ncclCommInitRankScalable", [&] {
    face::require("ncclCommInitRankScalable", commIds, "commIds");
    if (nId < 1)
      throw face::Refusal{ncclInvalidArgument,
                          fmt::format("ncclCommInitRankScalable: nId is {}, expected 1 or more", nId)};
  });
  if (result != ncclSuccess) {
    face::Group::of_thread().fail(result);
    return result;
  }
  // All ranks give the ids in the same order; the first one's maker holds the meeting.
  return face::init_rank("ncclCommInitRankScalable", newcomm, nranks, commIds[0], myrank, config);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  return face::guarded("ncclCommInitAll", [&] {
    face::require("ncclCommInitAll", comm, "comm");
    if (ndev < 1)
      throw face::Refusal{ncclInvalidArgument,
                          fmt::format("ncclCommInitAll: ndev is {}, expected 1 or more", ndev)};
    face::join_alone(comm, face::listed_devices(ndev, devlist));
  });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  const ncclResult_t result = face::guarded("ncclCommSplit", [&] {
    face::require_communicator("ncclCommSplit", comm);
    face::require("ncclCommSplit", newcomm, "newcomm");
    face::require_config("ncclCommSplit", config);
    if (color < NCCL_SPLIT_NOCOLOR)
      throw face::Refusal{
          ncclInvalidArgument,
          fmt::format("ncclCommSplit: color is {}, expected 0 or more, or NCCL_SPLIT_NOCOLOR", color)};
    if (face::is_of_nccl(comm)) return face::split_by_nccl(comm, color, key, newcomm, config);
    face::Group::of_thread().add(
        face::Splitting{.comm = comm, .color = color, .key = key, .result = newcomm});
  });
  if (result != ncclSuccess) face::Group::of_thread().fail(result);
  return result;
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                            ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  return face::guarded("ncclCommShrink", [&] {
    face::require_communicator("ncclCommShrink", comm);
    face::require("ncclCommShrink", newcomm, "newcomm");
    *newcomm = nullptr;
    face::require_config("ncclCommShrink", config);
    if (shrinkFlags != NCCL_SHRINK_DEFAULT && shrinkFlags != NCCL_SHRINK_ABORT)
      throw face::Refusal{
          ncclInvalidArgument,
          fmt::format("ncclCommShrink: shrinkFlags is {}, expected NCCL_SHRINK_DEFAULT or NCCL_SHRINK_ABORT",
                      shrinkFlags)};
    if (face::Group::of_thread().is_open())
      throw face::Refusal{ncclInvalidUsage,
                          "ncclCommShrink: it is called in a group, expected a call outside groups"};
    if (face::is_of_nccl(comm))
      return face::shrink_by_nccl(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
    std::vector<int> excluded = face::excluded_ranks(comm, excludeRanksList, excludeRanksCount);
    if (shrinkFlags == NCCL_SHRINK_ABORT) comm->clique->communicator().abort("ncclCommShrink");
    face::shrink(comm, std::move(excluded), newcomm);
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return face::called<&ncclCommFinalize>(
      "ncclCommFinalize",
      [&] {
        face::require_communicator("ncclCommFinalize", comm);
        comm->clique->communicator().check();
        comm->is_finalized = true;
      },
      comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  return face::guarded("ncclCommDestroy", [&] {
    face::require_communicator("ncclCommDestroy", comm);
    comm->mark = 0;
    if (face::Group::of_thread().is_open()) return face::Group::of_thread().add_leaving(comm);
    face::destroy({comm});
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  return face::guarded("ncclCommAbort", [&] {
    face::require_communicator("ncclCommAbort", comm);
    const std::shared_ptr<ncclComm> owner = face::take_back(comm);
    face::Group::of_thread().drop(comm);
    if (comm->clique) return comm->clique->abort();
    face::require_success_of_nccl("ncclCommAbort",
                                  face::call_nccl<&ncclCommAbort>("ncclCommAbort", comm->nccl), nullptr);
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  return face::guarded("ncclCommGetAsyncError", [&] {
    face::require_communicator("ncclCommGetAsyncError", comm);
    face::require("ncclCommGetAsyncError", asyncError, "asyncError");
    *asyncError = comm->clique ? face::state_of(comm->clique->communicator()) : face::state_of_nccl(comm);
  });
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  return face::guarded("ncclCommCount", [&] {
    face::require_communicator("ncclCommCount", comm);
    face::require("ncclCommCount", count, "count");
    *count = comm->ranks;
  });
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  return face::guarded("ncclCommCuDevice", [&] {
    face::require_communicator("ncclCommCuDevice", comm);
    face::require("ncclCommCuDevice", device, "device");
    *device = comm->device.index();
  });
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  return face::guarded("ncclCommUserRank", [&] {
    face::require_communicator("ncclCommUserRank", comm);
    face::require("ncclCommUserRank", rank, "rank");
    *rank = comm->rank;
  });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
