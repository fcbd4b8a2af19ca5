// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/measure/results.hpp"
#include "perf/report/output.hpp"

#include <functional>

namespace tutti::perf {

enum ExitStatus : int {
  all_right = 0,
  wrong_data = 1,  ///< of tutti's
  bad_usage = 2,
  is_slower = 3,      ///< than the baseline, or nothing of it could be compared
  peer_is_wrong = 4,  ///< and tutti is right
  run_failed = 5,     ///< or something had no memory
  timed_out = 6,      ///< a row has taken longer than it may
  was_interrupted = 130
};

/// Of a run that has come to its end: whether what it measured is right, and if not, whose fault it is.
[[nodiscard]] ExitStatus status_of(const Results& results) noexcept;

/// What `work` returns, an exit status. What it throws becomes a line on the standard error stream and the
/// status that goes with it.
[[nodiscard]] int guarded(const Output& output, const std::function<int()>& work);

}  // namespace tutti::perf
