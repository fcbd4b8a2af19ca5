// SPDX-License-Identifier: Apache-2.0
#include "perf/session/job.hpp"

#include "perf/processes/failure.hpp"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

namespace tutti::perf {

std::vector<std::string> Job::hosts() const {
  std::vector<std::string> names;
  for (const MemberDevice& member : members) {
    if (std::ranges::find(names, member.host) == names.end()) names.push_back(member.host);
  }
  return names;
}

std::string_view name_of(Mode mode) noexcept {
  return mode == Mode::ranks ? "ranks" : "single_process";
}

DeviceChoice devices_of_rank(int used, int available, BackendKind backend, int rank,
                             const std::vector<std::string>& hosts) {
  if (backend == BackendKind::host || used == available) return {.first = 0, .shown = used};
  const std::string& host = hosts[static_cast<std::size_t>(rank)];
  const auto on_host = static_cast<int>(std::ranges::count(hosts, host));
  const auto before = static_cast<int>(std::count(hosts.begin(), hosts.begin() + rank, host));
  if (on_host * used > available) {
    throw UsageError(fmt::format("-g: {} device(s) for each of {} ranks on {} asked for, but there are {}",
                                 used, on_host, host, available));
  }
  return {.first = before * used, .shown = on_host * used};
}

}  // namespace tutti::perf
