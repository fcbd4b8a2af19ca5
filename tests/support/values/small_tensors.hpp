// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/values/host_array.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

/// Small tensors for tests to begin with.
namespace tutti::test {

[[nodiscard]] inline Sizes sizes_of(const Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

/// Returns 0, 1, 2, …
[[nodiscard]] inline std::vector<std::int32_t> ascending(std::int64_t count) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

/// Returns the host and a device, for tests of properties that do not depend on the place.
[[nodiscard]] inline std::vector<Device> places() {
  return {Device::host(), Device(0)};
}

}  // namespace tutti::test
