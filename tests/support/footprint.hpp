#pragma once

#include "support/machines.hpp"

#include <cstddef>

#include <gtest/gtest.h>

namespace tutti::test {

/// What must not grow, however long a process uses the library.
class Footprint {
 public:
  /// That of this process. Waits for the devices.
  [[nodiscard]] static Footprint now();

  [[nodiscard]] testing::AssertionResult has_not_grown_since(const Footprint& before) const;

 private:
  Footprint() = default;

  MemoryInUse in_use_;
  std::size_t reserved_ = 0;  ///< on all devices
  std::size_t threads_ = 0;
  std::size_t descriptors_ = 0;
  std::size_t shared_mappings_ = 0;
};

}  // namespace tutti::test
