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

/// Returns the exit status of a run that has come to its end: whether the results are correct, and if not,
/// whose are wrong.
[[nodiscard]] ExitStatus status_of(const Results& results) noexcept;

/// Returns the exit status of `work`. If it throws, writes a line to the standard error stream, and returns
/// the corresponding status.
[[nodiscard]] int guarded(const Output& output, const std::function<int()>& work);

}  // namespace tutti::perf
