// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/processes/processes.hpp"
#include "tutti/device.hpp"

#include <cstddef>
#include <vector>

namespace tutti::perf {

/// How much less is free on each of a rank's devices, of which other ranks may take as well, after some of
/// what happens: that between `start` and `stop`. Collective.
class MemoryTaken {
 public:
  /// Keeps references to both.
  MemoryTaken(const std::vector<Device>& devices, Processes& processes)
      : devices_(devices), processes_(processes), taken_(devices.size()) {}

  void start();
  void stop();
  /// In bytes, on the device of any rank where it is the most.
  [[nodiscard]] std::size_t most() const;

 private:
  void add_free(double sign);

  const std::vector<Device>& devices_;
  Processes& processes_;
  std::vector<double> taken_;
};

}  // namespace tutti::perf
