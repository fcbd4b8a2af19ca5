// SPDX-License-Identifier: Apache-2.0
#include "perf/session/cpu.hpp"

#include "perf/processes/usage_error.hpp"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace tutti::perf {

std::vector<int> usable_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<unsigned>(cpu), &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

OnCpu::OnCpu(std::optional<int> cpu) {
  if (!cpu) return;
  cpu_set_t before;
  CPU_ZERO(&before);
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(static_cast<unsigned>(*cpu), &only);
  if (sched_getaffinity(0, sizeof before, &before) != 0 || sched_setaffinity(0, sizeof only, &only) != 0)
    throw UsageError(fmt::format("--cpu: CPU {} cannot be had: {}", *cpu, std::strerror(errno)));
  before_ = before;
}

OnCpu::~OnCpu() {
  if (before_) static_cast<void>(sched_setaffinity(0, sizeof *before_, &*before_));
}

}  // namespace tutti::perf
