// SPDX-License-Identifier: Apache-2.0
#include "perf/session/job.hpp"

#include <algorithm>

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

}  // namespace tutti::perf
