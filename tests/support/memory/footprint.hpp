// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/machines/machines.hpp"

#include <cstddef>
#include <functional>

#include <gtest/gtest.h>

namespace tutti::test {

/// Measures amounts that must not grow, however long this process uses the library.
class Footprint {
 public:
  /// Repeats `round`, and checks that later repetitions need no more than the first ones did.
  [[nodiscard]] static testing::AssertionResult does_not_grow(const std::function<void()>& round);

 private:
  Footprint() = default;
  /// Measures this process. Waits for the devices.
  [[nodiscard]] static Footprint now();

  [[nodiscard]] testing::AssertionResult has_not_grown_since(const Footprint& before) const;

  MemoryInUse in_use_;
  std::size_t reserved_ = 0;  ///< on all devices
  std::size_t threads_ = 0;
  std::size_t descriptors_ = 0;
  std::size_t shared_mappings_ = 0;
};

}  // namespace tutti::test
