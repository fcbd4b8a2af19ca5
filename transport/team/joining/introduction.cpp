// SPDX-License-Identifier: Apache-2.0
#include "transport/team/joining/introduction.hpp"

#include "os/process_identity.hpp"
#include "os/shared_memory.hpp"
#include "settings/log.hpp"
#include "transport/probes/launch_probe.hpp"
#include "transport/team/joining/build_mark.hpp"
#include "transport/team/joining/common_memory.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/shared/signature.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace tutti::transport::team {
namespace {

struct Introduction {
  Note complaint;  ///< why this rank cannot join
  Note host;
  std::uint32_t member_count = 0;
  std::array<int, most_local_members> devices{};  ///< as many
  pid_t process = 0;
  std::uint64_t process_space = 0;  ///< in which `process` is a number
  std::uint64_t process_identity = 0;
  std::uint64_t window_bytes = 0;
  TransportKind transport = TransportKind::automatic;
  TransportSource transport_source = TransportSource::options;
  Determinism determinism = Determinism::fastest;
  std::uint32_t most_multiprocessors = backend::all_multiprocessors;
  BackendKind backend = BackendKind::host;
  bool is_direct = true;
};

/// A setting that must be the same on all ranks.
struct Common {
  const char* name;
  std::string (*value)(const Introduction& introduction);
  std::string_view (*source)(const Introduction& introduction) = [](const Introduction& /*from*/) {
    return std::string_view();
  };
};
const std::array common_settings{
    Common{"options.window_bytes",
           [](const Introduction& from) { return fmt::to_string(from.window_bytes); }},
    Common{"options.transport", [](const Introduction& from) { return std::string(name_of(from.transport)); },
           [](const Introduction& from) { return in_words(from.transport_source); }},
    Common{"options.determinism",
           [](const Introduction& from) {
             return std::string(from.determinism == Determinism::bitwise ? "bitwise" : "fastest");
           }},
    Common{"options.multiprocessors",
           [](const Introduction& from) {
             return from.most_multiprocessors == backend::all_multiprocessors
                        ? std::string("not given")
                        : fmt::to_string(from.most_multiprocessors);
           }},
    Common{"TUTTI_DIRECT", [](const Introduction& from) { return std::string(from.is_direct ? "1" : "0"); }},
    Common{"the backend", [](const Introduction& from) { return std::string(name_of(from.backend)); }},
};

void require_alike(const Introduction& introduction, std::size_t rank, const Introduction& first) {
  for (const Common& common : common_settings) {
    if (common.value(introduction) == common.value(first)) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Communicator: {} is {}{} on rank {}, expected {}{} as on rank 0", common.name,
                            common.value(introduction), common.source(introduction), rank,
                            common.value(first), common.source(first)));
  }
}

/// Makes the network between hosts. Throws on all ranks if there is none. `reason` says why some ranks of one
/// name are told apart.
std::unique_ptr<Network> make_network(BootstrapExchange& exchange, const Membership& membership,
                                      const std::string& reason) {
  exchange.begin("set up messages between hosts");
  const std::vector<Membership::Host>& hosts = membership.hosts();
  std::unique_ptr<Network> network;
  std::optional<Error> refusal;
  try {
    network = exchange.network();
    if (network == nullptr) {
      refusal.emplace(
          ErrorCode::unsupported,
          fmt::format("Communicator: rank {} is on host '{}' and rank 0 on '{}', and the exchange "
                      "has no network between them{}{}",
                      hosts[1].ranks.front(), hosts[1].name, hosts[0].name, reason.empty() ? "" : ": ",
                      reason));
    }
  } catch (const Error& error) {
    refusal = error;
  }
  const std::string complaint = first_complaint(exchange, refusal ? refusal->what() : "");
  if (refusal) throw Error(*refusal);
  if (!complaint.empty()) refuse_to_join(complaint);
  return network;
}

std::span<const int> devices_of(const Introduction& introduction) {
  return std::span(introduction.devices).first(introduction.member_count);
}

/// Kernels of both ranks would wait for one another in the same queues of one device.
void require_other_devices(const Introduction& introduction, std::size_t rank, const Introduction& earlier,
                           std::size_t earlier_rank) {
  if (introduction.process_identity != earlier.process_identity) return;
  for (const int device : devices_of(introduction)) {
    if (std::ranges::find(devices_of(earlier), device) == devices_of(earlier).end()) continue;
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("Communicator: options.devices has device {} on ranks {} and {}, which are threads "
                    "of one process, expected each device of a process on one rank",
                    device, earlier_rank, rank));
  }
}

/// Returns why ranks that are threads of this process cannot launch kernels that wait for one another; empty
/// if they can.
std::string complaint_about_launches(Runtime& runtime, const Membership& membership,
                                     const std::vector<Introduction>& introductions) {
  std::vector<int> devices = membership.devices();
  for (std::size_t rank = 0; rank < introductions.size(); ++rank) {
    if (!membership.shares_process(rank)) continue;
    const std::span<const int> more = devices_of(introductions[rank]);
    devices.insert(devices.end(), more.begin(), more.end());
  }
  if (devices.size() == membership.local_count()) return {};  // asked about before
  if (runtime.part<LaunchProbe>().find(devices) != Launching::impossible) return {};
  return fmt::format("other ranks are threads of its process, where {}", launches_block);
}

/// Throws on all ranks alike if threads of a process that are ranks keep one another's kernels waiting.
/// Collective if there are any such threads.
void check_launches(Runtime& runtime, BootstrapExchange& exchange, const Membership& membership,
                    const std::vector<Introduction>& introductions) {
  std::set<std::uint64_t> processes;
  for (const Introduction& introduction : introductions) processes.insert(introduction.process_identity);
  if (processes.size() == introductions.size()) return;
  exchange.begin("find out how threads that are ranks launch kernels");
  std::string complaint;
  try {
    complaint = complaint_about_launches(runtime, membership, introductions);
  } catch (const std::exception& error) {
    complaint = error.what();
  }
  const std::string first = first_complaint(exchange, complaint);
  if (!complaint.empty()) throw Error(ErrorCode::unsupported, fmt::format("Communicator: {}", complaint));
  if (!first.empty()) refuse_to_join(first);
}

/// Gathers what each rank tells the others, in order. Throws on all ranks alike.
std::vector<Introduction> exchange_introductions(Runtime& runtime, BootstrapExchange& exchange,
                                                 const TeamSettings& settings) {
  std::string host;
  try {
    host = Environment::read().host_id.value_or(host_identity());
  } catch (const Error& error) {
    decline_to_join(exchange, error.what());
    throw;
  }
  require_same_build(exchange);
  std::array<int, most_local_members> devices{};
  std::ranges::copy(settings.devices, devices.begin());
  std::vector<Introduction> introductions =
      gather(exchange, Introduction{.complaint = {},
                                    .host = Note(host),
                                    .member_count = static_cast<std::uint32_t>(settings.devices.size()),
                                    .devices = devices,
                                    .process = getpid(),
                                    .process_space = process_space(),
                                    .process_identity = process_identity(),
                                    .window_bytes = settings.window_bytes,
                                    .transport = settings.transport,
                                    .transport_source = settings.transport_source,
                                    .determinism = settings.determinism,
                                    .most_multiprocessors = settings.most_multiprocessors,
                                    .backend = runtime.backend().kind(),
                                    .is_direct = settings.is_direct});
  // All see the same introductions, so all throw.
  for (std::size_t rank = 0; rank < introductions.size(); ++rank) {
    if (const std::string complaint = introductions[rank].complaint.string(); !complaint.empty())
      refuse_to_join(fmt::format("rank {}: {}", rank, complaint));
  }
  for (std::size_t rank = 0; rank < introductions.size(); ++rank) {
    require_alike(introductions[rank], rank, introductions[0]);
    for (std::size_t earlier = 0; earlier < rank; ++earlier)
      require_other_devices(introductions[rank], rank, introductions[earlier], earlier);
  }
  return introductions;
}

}  // namespace

void decline_to_join(Exchange& exchange, const std::string& complaint) noexcept {
  try {
    require_same_build(exchange);
    Introduction introduction;
    introduction.complaint = Note(complaint.empty() ? "it gives no reason" : complaint);
    static_cast<void>(gather(exchange, introduction));
  } catch (const std::exception& error) {
    log_warning(fmt::format("Communicator: cannot tell the other ranks why this one does not join: {}",
                            error.what()));
  }
}

Introductions introduce(Runtime& runtime, BootstrapExchange& exchange, const TeamSettings& settings) {
  exchange.begin("introduce themselves");
  const std::vector<Introduction> introductions = exchange_introductions(runtime, exchange, settings);
  std::vector<std::string> names;
  for (const Introduction& introduction : introductions) names.push_back(introduction.host.string());
  exchange.begin("try one another's memory");
  const Places places = places_of(exchange, std::move(names));
  std::vector<Membership::Rank> ranks;
  for (std::size_t rank = 0; rank < introductions.size(); ++rank)
    ranks.push_back({.host = places.hosts[rank],
                     .member_count = introductions[rank].member_count,
                     .process = introductions[rank].process_identity});
  Introductions result{
      .membership = Membership(static_cast<std::size_t>(exchange.rank()), ranks, settings.devices),
      .process_numbers = {},
      .processes = {},
      .port = places.port,
      .network = nullptr};
  const Membership& membership = result.membership;
  for (std::size_t rank = 0; rank < introductions.size(); ++rank) {
    const Introduction& introduction = introductions[rank];
    result.process_numbers.push_back(introduction.process);
    // A process that is numbered elsewhere cannot be watched from here. This one is never gone.
    const bool is_watched = rank != membership.rank() && membership.is_on_this_host(rank) &&
                            !membership.shares_process(rank) && introduction.process_space == process_space();
    result.processes.push_back(is_watched ? PeerProcess(introduction.process) : PeerProcess());
  }
  check_launches(runtime, exchange, membership, introductions);
  if (membership.spans_hosts()) result.network = make_network(exchange, membership, places.reason);
  return result;
}

}  // namespace tutti::transport::team
