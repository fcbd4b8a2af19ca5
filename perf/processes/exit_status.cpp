// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/exit_status.hpp"

#include "perf/report/baseline_report.hpp"

namespace tutti::perf {

ExitStatus status_of(const Results& results) noexcept {
  if (results.own_wrong() != 0) return wrong_data;
  if (results.out_of_memory() != 0) return run_failed;
  if (results.baseline && !compare_with_baseline(results).is_passed()) return is_slower;
  return results.wrong() != 0 ? peer_is_wrong : all_right;
}

}  // namespace tutti::perf
