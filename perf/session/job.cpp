// SPDX-License-Identifier: Apache-2.0
#include "perf/session/job.hpp"

#include <algorithm>
#include <set>

namespace tutti::perf {

std::vector<std::string> Job::hosts() const {
  std::vector<std::string> names;
  for (const MemberDevice& member : members) {
    if (std::ranges::find(names, member.host) == names.end()) names.push_back(member.host);
  }
  return names;
}

Job::Place Job::place_on_host(int rank) const {
  const auto own = std::ranges::find(members, rank, &MemberDevice::rank);
  std::set<int> neighbours;
  for (const MemberDevice& member : members) {
    if (own != members.end() && member.host == own->host) neighbours.insert(member.rank);
  }
  const auto before = std::ranges::count_if(neighbours, [rank](int other) { return other < rank; });
  return {static_cast<int>(before), static_cast<int>(neighbours.size())};
}

std::string_view name_of(Mode mode) noexcept {
  return mode == Mode::ranks ? "ranks" : "single_process";
}

}  // namespace tutti::perf
