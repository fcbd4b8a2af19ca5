// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"

#include <cstddef>
#include <vector>

namespace tutti {
class Communicator;
}

namespace tutti::perf {

/// The devices that take part, numbered through all processes.
struct Members {
  int count = 1;
  int first_own = 0;                     ///< the number of this process's first one
  std::vector<Device> own{0};            ///< this process's, in order
  Communicator* communicator = nullptr;  ///< what joins the processes; nullptr: there is only this one

  [[nodiscard]] bool owns(int member) const noexcept {
    return member >= first_own && member < first_own + static_cast<int>(own.size());
  }
  /// The place of an own member in `own`.
  [[nodiscard]] std::size_t own_index(int member) const noexcept {
    return static_cast<std::size_t>(member - first_own);
  }
  /// The next one, and the one before, in a ring.
  [[nodiscard]] int after(int member) const noexcept { return (member + 1) % count; }
  [[nodiscard]] int before(int member) const noexcept { return (member + count - 1) % count; }
  [[nodiscard]] int number_of(std::size_t own_index) const noexcept {
    return first_own + static_cast<int>(own_index);
  }
};

}  // namespace tutti::perf
