// SPDX-License-Identifier: Apache-2.0
#include "perf/report/guarded.hpp"

#include "perf/processes/exit_status.hpp"
#include "perf/processes/interrupt.hpp"
#include "perf/processes/usage_error.hpp"

#include <exception>

namespace tutti::perf {

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
