// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace tutti::perf {

/// Which processes the ranks are, so that those of this machine can be looked after.
class RankProcesses {
 public:
  using Gather = std::function<std::vector<std::string>(const std::string& mine)>;
  /// Collective: `gather` brings every rank's text to all, in order.
  explicit RankProcesses(const Gather& gather);

  /// A rank whose process has ended, of those that this one can see: "rank 1 (process 4711) is gone".
  [[nodiscard]] std::optional<std::string> gone() const;

 private:
  std::vector<pid_t> processes_;  ///< of each rank; 0: cannot be seen from here
};

}  // namespace tutti::perf
