// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/exit_status.hpp"

#include "perf/processes/failure.hpp"
#include "perf/processes/interrupt.hpp"
#include "perf/report/baseline.hpp"

#include <exception>

namespace tutti::perf {

ExitStatus status_of(const Results& results) noexcept {
  if (results.own_wrong() != 0) return wrong_data;
  if (results.out_of_memory() != 0) return run_failed;
  if (results.baseline && !compare_with_baseline(results).is_passed()) return is_slower;
  return results.wrong() != 0 ? peer_is_wrong : all_right;
}

int guarded(const Output& output, const std::function<int()>& work) {
  try {
    return work();
  } catch (const UsageError& error) {
    output.complain(error.what());
    return bad_usage;
  } catch (const TimedOut& late) {
    output.complain(late.what());
    return timed_out;
  } catch (const Interrupted& interrupted) {
    output.complain(interrupted.what());
    return was_interrupted;
  } catch (const std::exception& error) {
    output.complain(error.what());
    return run_failed;
  }
}

}  // namespace tutti::perf
