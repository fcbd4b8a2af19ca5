// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/nccl_joining.hpp"

#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/base/settings.hpp"
#include "collectives/nccl_api/handle.hpp"
#include "collectives/nccl_api/nccl_calls.hpp"
#include "collectives/nccl_api/nccl_library.hpp"
#include "settings/log.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tutti::nccl_api {
namespace {

/// Says whether a process has NCCL. The first party's has the id by which all join.
struct Offer {
  std::int32_t result = ncclSuccess;
  std::int32_t version = 0;
  ncclUniqueId id{};
  std::array<char, 512> sentence{};
};

Offer refused_offer(ncclResult_t result, std::string_view sentence) {
  Offer offer{.result = result};
  std::memcpy(offer.sentence.data(), sentence.data(), std::min(sentence.size(), offer.sentence.size() - 1));
  return offer;
}

Offer own_offer(bool leads) {
  if (Settings::get().fallback == Fallback::off)
    return refused_offer(ncclInvalidUsage, "TUTTI_NCCL_FALLBACK is 'off'");
  try {
    Offer offer{.version = NcclLibrary::get().version()};
    if (leads)
      require_success_of_nccl("ncclGetUniqueId", call_nccl<&ncclGetUniqueId>("ncclGetUniqueId", &offer.id),
                              nullptr);
    return offer;
  } catch (const Refusal& refusal) {
    return refused_offer(refusal.result, refusal.sentence);
  }
}

/// Returns the id that the first party has made. Throws a `Refusal` if a party has no NCCL.
ncclUniqueId agreed_id(Meeting* meeting, const Joining& first, const std::string& reason) {
  const Offer own = own_offer(meeting == nullptr || meeting->rank() == 0);
  std::vector<Offer> offers(meeting == nullptr ? 1 : static_cast<std::size_t>(meeting->size()), own);
  if (meeting != nullptr)
    meeting->all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(offers)));
  for (std::size_t i = 0; i < offers.size(); ++i) {
    if (offers[i].result == ncclSuccess) continue;
    throw Refusal{
        static_cast<ncclResult_t>(offers[i].result),
        fmt::format(
            "{}: tutti does not carry this communicator, because {}, and NCCL cannot, says rank {}: {}",
            first.function(), reason, meeting == nullptr ? first.rank : meeting->parties()[i].first,
            offers[i].sentence.data())};
  }
  return offers.front().id;
}

/// Writes the line that says who carries the communicator, on one rank.
void log_carrier(int ranks, const std::string& reason) {
  const NcclLibrary& library = NcclLibrary::get();
  const std::string line = fmt::format("NCCL {} ({}) carries a communicator of {} ranks: {}",
                                       version_text(library.version()), library.path(), ranks, reason);
  if (Settings::get().fallback == Fallback::always) return log_info(line);
  log_warning(line);
}

bool are_on_one_host(const Party& a, const Party& b) {
  return a.facts.host == b.facts.host;
}

}  // namespace

std::optional<std::string> reason_for_nccl(std::span<const Party> parties) {
  for (const Party& party : parties) {
    if (party.need == Need::always)
      return fmt::format("TUTTI_NCCL_FALLBACK is 'always' on rank {}", party.first);
    if (party.need == Need::one_sided)
      return fmt::format("the configuration of rank {} asks for one-sided calls", party.first);
    if (!are_on_one_host(party, parties.front()))
      return fmt::format("ranks {} and {} are on different hosts", parties.front().first, party.first);
  }
  // A thread that makes several parties could not make their calls, some of which wait for the others.
  for (std::size_t i = 0; i < parties.size(); ++i) {
    const auto same = std::ranges::find(parties.subspan(i + 1), parties[i].facts, &Party::facts);
    if (same != parties.end())
      return fmt::format("ranks {} and {} are made by one thread, but not those between them",
                         parties[i].first, same->first);
  }
  return std::nullopt;
}

ncclComm_t handle_for_nccl(ncclComm_t nccl, int rank, int ranks, Device device) {
  note_use();
  auto handle = std::make_shared<ncclComm>();
  handle->nccl = nccl;
  handle->rank = rank;
  handle->ranks = ranks;
  handle->device = device;
  return give_out(std::move(handle));
}

ncclComm_t handle_for_part(ncclComm_t nccl, Device device) {
  if (nccl == nullptr) return nullptr;
  int rank = 0;
  int ranks = 0;
  require_success_of_nccl("ncclCommUserRank", call_nccl<&ncclCommUserRank>("ncclCommUserRank", nccl, &rank),
                          nccl);
  require_success_of_nccl("ncclCommCount", call_nccl<&ncclCommCount>("ncclCommCount", nccl, &ranks), nccl);
  return handle_for_nccl(nccl, rank, ranks, device);
}

void make_by_nccl(std::span<const Joining> run, Meeting* meeting, const std::string& reason) {
  const Joining& first = run.front();
  const ncclUniqueId id = agreed_id(meeting, first, reason);
  if (first.rank == 0) log_carrier(first.ranks, reason);
  std::vector<Configuration> configurations;
  for (const Joining& joining : run) configurations.push_back(joining.configuration);
  std::vector<ncclComm_t> made(run.size());
  NcclGroup group;
  for (std::size_t i = 0; i < run.size(); ++i) {
    const DeviceGuard guard(run[i].device);
    ncclConfig_t* const config = config_in(configurations[i]);
    const ncclResult_t result =
        config == nullptr
            ? call_nccl<&ncclCommInitRank>("ncclCommInitRank", &made[i], first.ranks, id, run[i].rank)
            : call_nccl<&ncclCommInitRankConfig>("ncclCommInitRankConfig", &made[i], first.ranks, id,
                                                 run[i].rank, config);
    group.take("ncclCommInitRank", nullptr, result);
  }
  group.end();
  for (std::size_t i = 0; i < run.size(); ++i)
    *run[i].result = handle_for_nccl(made[i], run[i].rank, first.ranks, run[i].device);
}

void make_by_nccl(ncclComm_t* results, const std::vector<Device>& devices) {
  std::vector<int> list;
  for (const Device device : devices) list.push_back(device.index());
  std::vector<ncclComm_t> made(devices.size());
  const int ranks = static_cast<int>(list.size());
  require_success_of_nccl("ncclCommInitAll",
                          call_nccl<&ncclCommInitAll>("ncclCommInitAll", made.data(), ranks, list.data()),
                          nullptr);
  log_carrier(ranks, "TUTTI_NCCL_FALLBACK is 'always'");
  for (int rank = 0; rank < ranks; ++rank) {
    const auto place = static_cast<std::size_t>(rank);
    results[rank] = handle_for_nccl(made[place], rank, ranks, devices[place]);
  }
}

}  // namespace tutti::nccl_api
