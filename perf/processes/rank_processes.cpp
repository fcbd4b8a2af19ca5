// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/rank_processes.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <fstream>

#include <fmt/format.h>
#include <unistd.h>

namespace tutti::perf {
namespace {

/// Where a process number means the same process: one boot of a machine and one namespace. Empty if unknown.
std::string numbering() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> space{};
  const bool is_known = readlink("/proc/self/ns/pid", space.data(), space.size() - 1) > 0;
  return boot.empty() || !is_known ? "" : fmt::format("{} {}", boot, space.data());
}

}  // namespace

RankProcesses::RankProcesses(const Gather& gather) {
  const std::string own = numbering();
  for (const std::string& line : gather(fmt::format("{} {}", getpid(), own))) {
    const bool is_visible = !own.empty() && line.substr(line.find(' ') + 1) == own;
    processes_.push_back(is_visible ? static_cast<pid_t>(std::stol(line)) : 0);
  }
}

std::optional<std::string> RankProcesses::gone() const {
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    const pid_t process = processes_[rank];
    if (process != 0 && kill(process, 0) != 0 && errno == ESRCH)
      return fmt::format("rank {} (process {}) is gone", rank, process);
  }
  return std::nullopt;
}

}  // namespace tutti::perf
