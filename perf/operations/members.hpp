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
  int first_local = 0;                   ///< the number of this process's first one
  std::vector<Device> local{0};          ///< this process's, in order
  Communicator* communicator = nullptr;  ///< what joins the processes; nullptr: there is only this one

  [[nodiscard]] bool is_local(int member) const noexcept {
    return member >= first_local && member < first_local + static_cast<int>(local.size());
  }
  /// The place of a local member in `local`.
  [[nodiscard]] std::size_t local_of(int member) const noexcept {
    return static_cast<std::size_t>(member - first_local);
  }
  /// The next one, and the one before, in a ring.
  [[nodiscard]] int after(int member) const noexcept { return (member + 1) % count; }
  [[nodiscard]] int before(int member) const noexcept { return (member + count - 1) % count; }
  [[nodiscard]] int number_of(std::size_t index) const noexcept {
    return first_local + static_cast<int>(index);
  }
};

}  // namespace tutti::perf
