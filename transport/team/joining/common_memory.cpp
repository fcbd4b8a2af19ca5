// SPDX-License-Identifier: Apache-2.0
#include "transport/team/joining/common_memory.hpp"

#include "os/shared_memory.hpp"
#include "settings/log.hpp"
#include "transport/team/shared/agreement.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::team {
namespace {

/// The ranks whose memory this rank can open.
struct Reach {
  std::vector<std::uint8_t> ranks;  ///< by rank: whether it can
  std::string complaint;            ///< why not, of the first it cannot
};

Reach reach_of(std::size_t mine, const std::vector<std::string>& names,
               const std::vector<SharedMemory::Handle>& handles) {
  Reach reach{.ranks = std::vector<std::uint8_t>(names.size(), 1), .complaint = {}};
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    // A rank without memory to offer says why when some is needed.
    if (rank == mine || names[rank] != names[mine] || handles[rank].bytes == 0) continue;
    try {
      const SharedMemory opened(handles[rank]);
    } catch (const std::exception& error) {
      reach.ranks[rank] = 0;
      if (reach.complaint.empty()) reach.complaint = error.what();
    }
  }
  return reach;
}

bool has_neighbours(const std::vector<std::string>& names) {
  std::vector<std::string> sorted = names;
  std::ranges::sort(sorted);
  return std::ranges::adjacent_find(sorted) != sorted.end();
}

}  // namespace

std::vector<std::string> told_apart(std::vector<std::string> names,
                                    const std::function<bool(std::size_t, std::size_t)>& reaches) {
  struct Group {
    std::string name;
    std::vector<std::size_t> ranks;
  };
  std::vector<Group> groups;
  std::vector<std::string> hosts = names;
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    const auto fits = [&](const Group& group) {
      return names[group.ranks.front()] == names[rank] &&
             std::ranges::all_of(group.ranks, [&](std::size_t other) {
               return reaches(rank, other) && reaches(other, rank);
             });
    };
    auto group = std::ranges::find_if(groups, fits);
    if (group == groups.end()) {
      const bool is_first =
          std::ranges::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(rank), names[rank]) ==
          names.begin() + static_cast<std::ptrdiff_t>(rank);
      group = groups.insert(
          groups.end(),
          {.name = is_first ? names[rank] : fmt::format("{} (rank {})", names[rank], rank), .ranks = {}});
    }
    group->ranks.push_back(rank);
    hosts[rank] = group->name;
  }
  return hosts;
}

Places places_of(Exchange& exchange, std::vector<std::string> names) {
  Places places{.hosts = std::move(names), .reason = {}, .port = nullptr};
  if (!has_neighbours(places.hosts)) return places;
  SharedMemory probe;
  try {
    probe = SharedMemory(1);
  } catch (const std::exception&) {
    // It says so when more is needed.
  }
  try {
    places.port = DescriptorPort::get();
  } catch (const std::exception&) {
    // Perhaps /proc is open to all.
  }
  const auto mine = static_cast<std::size_t>(exchange.rank());
  const auto try_all = [&](Reach& reach) {
    reach = reach_of(mine, places.hosts, gather(exchange, probe.share(Audience::anyone)));
    return first_complaint(exchange, reach.complaint);
  };
  Reach reach;
  std::string complaint = try_all(reach);
  if (complaint.empty()) return places;
  // Ranks in different network namespaces do not see one another's sockets, but perhaps the same files.
  try {
    if (places.port != nullptr) places.port->listen_in_files();
  } catch (const std::exception&) {
    // It cannot be reached by these, either.
  }
  complaint = try_all(reach);
  if (complaint.empty()) return places;
  std::vector<std::uint8_t> all(places.hosts.size() * places.hosts.size());
  exchange.all_gather(std::as_bytes(std::span(reach.ranks)), std::as_writable_bytes(std::span(all)));
  places.hosts = told_apart(places.hosts, [&](std::size_t rank, std::size_t other) {
    return all[rank * places.hosts.size() + other] != 0;
  });
  places.reason = fmt::format(
      "ranks of one host cannot share memory, and are treated as being on different hosts, with the network "
      "between them ({}). To share memory they need access to one another's /proc, or one network namespace, "
      "or one /tmp. If they should not share memory, set TUTTI_HOST_ID to different values",
      complaint);
  if (mine == 0) log_warning(fmt::format("Communicator: {}", places.reason));
  return places;
}

}  // namespace tutti::transport::team
