// SPDX-License-Identifier: Apache-2.0
#include "perf/report/show_topology.hpp"

#include "perf/report/table.hpp"
#include "perf/session/session.hpp"
#include "tutti/communicator.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <fmt/format.h>

namespace tutti::perf {

std::string show_topology(const Options& options, Processes& processes) {
  const Session session(options, processes);
  const std::string mine = to_string(session.topology());
  if (session.job().mode == Mode::single_process) return mine;
  const std::vector<std::string> all = processes.gather(mine);
  std::string text = format_members(session.job());
  for (std::size_t first = 0; first < all.size(); ++first) {
    if (std::find(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first), all[first]) !=
        all.begin() + static_cast<std::ptrdiff_t>(first)) {
      continue;
    }
    std::vector<std::size_t> ranks;
    for (std::size_t rank = first; rank < all.size(); ++rank) {
      if (all[rank] == all[first]) ranks.push_back(rank);
    }
    text += fmt::format("\nseen by {} {}:\n{}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "),
                        all[first]);
  }
  return text + "\nbetween ranks:\n" + session.members().communicator->explain();
}

}  // namespace tutti::perf
