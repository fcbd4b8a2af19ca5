// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/measure/results.hpp"

#include <string>
#include <vector>

/// What a comparison with a baseline comes to; `results` have one.
namespace tutti::perf {

/// Times that have been compared, or would have been.
struct BaselineVerdict {
  struct Change {
    std::string what;  ///< "broadcast 64K float32 root 0 in place"
    double microseconds = 0.0;
    double before = 0.0;
    [[nodiscard]] double percent() const noexcept { return 100.0 * (microseconds / before - 1.0); }
  };
  std::size_t compared = 0;
  std::vector<Change> slower;            ///< of tutti's, by more than the tolerance; the worst first
  std::vector<std::string> unaccounted;  ///< which the baseline does not have

  /// A comparison of nothing says nothing.
  [[nodiscard]] bool is_passed() const noexcept { return compared > 0 && slower.empty(); }
};
[[nodiscard]] BaselineVerdict compare_with_baseline(const Results& results);

/// For the foot of the table, in whole lines.
[[nodiscard]] std::string format_baseline(const Results& results);
/// In a line: how many times are slower, and which the most, or that none could be compared; empty if it is
/// passed.
[[nodiscard]] std::string complaint_of_baseline(const Results& results);

/// "+2.1", in per cent, of a time over that of the baseline.
[[nodiscard]] std::string format_change(double over_baseline);

}  // namespace tutti::perf
