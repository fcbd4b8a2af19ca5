// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/base/settings.hpp"
#include "collectives/nccl_api/clique.hpp"
#include "collectives/nccl_api/configuration.hpp"
#include "collectives/nccl_api/forwarding.hpp"
#include "collectives/nccl_api/group.hpp"
#include "collectives/nccl_api/handle.hpp"
#include "collectives/nccl_api/joining.hpp"
#include "collectives/nccl_api/nccl_joining.hpp"
#include "tutti/device.hpp"

#include <memory>
#include <optional>

#include <fmt/format.h>

/// Lets new ranks into communicators.
namespace tutti::nccl_api {
namespace {

constexpr const char* grow_function = "ncclCommGrow";

/// Throws a `Refusal` if NCCL, which may have made a new rank's id, is not there, or cannot let ranks in.
void require_nccl_for_id() {
  try {
    static_cast<void>(nccl_function<&ncclCommGrow>(grow_function));
  } catch (const Refusal& refusal) {
    throw Refusal{
        refusal.result,
        fmt::format("ncclCommGrow: uniqueId is no unique id of tutti, expected one that this library "
                    "has made, or NCCL for it: {}",
                    refusal.sentence)};
  }
}

/// Has NCCL let a rank of its own, or a new one if `comm` is null, into a communicator that it carries.
void grow_by_nccl(ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank, ncclComm_t* result,
                  const ncclConfig_t* config) {
  struct Growth {
    Configuration configuration;
    std::optional<ncclUniqueId> id;
    ncclComm_t made = nullptr;
  };
  const auto growth = std::make_shared<Growth>(Growth{
      .configuration = configuration_of(config), .id = id == nullptr ? std::nullopt : std::optional(*id)});
  const ncclComm_t nccl = comm == nullptr ? nullptr : comm->nccl;
  const Device device = comm == nullptr ? current_device() : comm->device;
  static_cast<void>(nccl_function<&ncclCommGrow>(grow_function));  // if NCCL lacks it, the group fails now
  Group::of_thread().add(
      Forwarded{.function = grow_function,
                .comm = comm,
                .call =
                    [nccl, ranks, rank, device, growth] {
                      const DeviceGuard guard(device);
                      const ncclUniqueId* const given = growth->id ? &*growth->id : nullptr;
                      return call_nccl<&ncclCommGrow>(grow_function, nccl, ranks, given, rank, &growth->made,
                                                      config_in(growth->configuration));
                    },
                .finish = [device, result, growth] { *result = handle_for_part(growth->made, device); }});
}

/// Queues a rank of a communicator that grows.
void add_member(ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank, ncclComm_t* result,
                const ncclConfig_t* config) {
  require_communicator(grow_function, comm);
  if (rank != -1)
    throw Refusal{ncclInvalidArgument,
                  fmt::format("ncclCommGrow: rank is {}, expected -1 where comm is given", rank)};
  if (ranks <= comm->ranks)
    throw Refusal{ncclInvalidArgument,
                  fmt::format("ncclCommGrow: nRanks is {}, expected more than the {} ranks that comm has",
                              ranks, comm->ranks)};
  if (is_of_nccl(comm)) return grow_by_nccl(comm, ranks, id, rank, result, config);
  Group::of_thread().add(Growing{
      .comm = comm,
      .ranks = ranks,
      .given = id == nullptr ? std::nullopt : std::optional(meeting_of(grow_function, "uniqueId", *id)),
      .result = result,
      .configuration = configuration_of(config),
      .need = need_of(config)});
}

/// Queues a new rank.
void add_newcomer(int ranks, const ncclUniqueId* id, int rank, ncclComm_t* result,
                  const ncclConfig_t* config) {
  require(grow_function, id, "uniqueId");
  if (ranks < 2 || rank < 1 || rank >= ranks)
    throw Refusal{
        ncclInvalidArgument,
        fmt::format("ncclCommGrow: rank is {} and nRanks {}, expected a number that the communicator "
                    "does not have and that is less than nRanks",
                    rank, ranks)};
  if (!is_of_tutti(*id) && Settings::get().fallback != Fallback::off) {
    require_nccl_for_id();
    return grow_by_nccl(nullptr, ranks, id, rank, result, config);
  }
  Group::of_thread().add(Joining{.result = result,
                                 .address = meeting_of(grow_function, "uniqueId", *id),
                                 .ranks = ranks,
                                 .rank = rank,
                                 .device = current_device(),
                                 .configuration = configuration_of(config),
                                 .need = need_of(config),
                                 .purpose = Purpose::grow});
}

}  // namespace
}  // namespace tutti::nccl_api

namespace face = tutti::nccl_api;

// NOLINTBEGIN(readability-identifier-naming): the names are the interface's
extern "C" {

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* uniqueId) {
  return face::called_now<&ncclCommGetUniqueId>(
      "ncclCommGetUniqueId",
      [&] {
        face::require_communicator("ncclCommGetUniqueId", comm);
        face::require("ncclCommGetUniqueId", uniqueId, "uniqueId");
        comm->clique->communicator().check();
        *uniqueId = face::new_id("ncclCommGetUniqueId", [&] { return comm->clique->announce_growth(); });
      },
      comm, uniqueId);
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank,
                          ncclComm_t* newcomm, ncclConfig_t* config) {
  const ncclResult_t result = face::guarded("ncclCommGrow", [&] {
    face::require("ncclCommGrow", newcomm, "newcomm");
    *newcomm = nullptr;
    face::require_config("ncclCommGrow", config);
    if (comm == nullptr) return face::add_newcomer(nRanks, uniqueId, rank, newcomm, config);
    face::add_member(comm, nRanks, uniqueId, rank, newcomm, config);
  });
  if (result != ncclSuccess) face::Group::of_thread().fail(result);
  return result;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
