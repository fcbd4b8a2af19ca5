// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/values/host_array.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

/// What tests of tensors begin with.
namespace tutti::test {

[[nodiscard]] inline Sizes sizes_of(const Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

/// 0, 1, 2, …
[[nodiscard]] inline std::vector<std::int32_t> ascending(std::int64_t count) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

/// The host and a device: what does not depend on the place is tested in both.
[[nodiscard]] inline std::vector<Device> places() {
  return {Device::host(), Device(0)};
}

}  // namespace tutti::test
