// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include <sched.h>

namespace tutti::perf {

/// Those that the calling thread may run on, in order.
[[nodiscard]] std::vector<int> usable_cpus();

/// Keeps the calling thread on one CPU, if there is one, until the object is gone: then the thread may run
/// where it could before. Threads that it starts meanwhile stay there.
class OnCpu {
 public:
  /// Throws UsageError where the system refuses.
  explicit OnCpu(std::optional<int> cpu);
  OnCpu(const OnCpu&) = delete;
  OnCpu& operator=(const OnCpu&) = delete;
  ~OnCpu();

 private:
  std::optional<cpu_set_t> before_;
};

}  // namespace tutti::perf
