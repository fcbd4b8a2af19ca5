// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/values/host_array.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

/// Memory that a program gets for one device alone: its peers have no access to it, although they have to
/// other memory of the device.
namespace tutti::test {

enum class ClosedKind { pieces, pool };
[[nodiscard]] constexpr std::string_view name_of(ClosedKind kind) {
  return kind == ClosedKind::pieces ? "pieces" : "pool";
}
inline constexpr ClosedKind all_closed_kinds[] = {ClosedKind::pieces, ClosedKind::pool};

/// Memory that is freed with the last copy, after waiting for the device.
using ClosedBlock = std::shared_ptr<void>;

/// Returns new memory of a device.
[[nodiscard]] ClosedBlock allocate_closed(ClosedKind kind, int device, std::size_t bytes);

/// Makes contiguous tensors in closed memory, and keeps that.
class ClosedTensors {
 public:
  [[nodiscard]] Tensor make(ClosedKind kind, DType dtype, const Sizes& sizes, Device device) {
    std::size_t bytes = size_of(dtype);
    for (const std::int64_t size : sizes) bytes *= static_cast<std::size_t>(size);
    const ClosedBlock& block =
        blocks_.emplace_back(allocate_closed(kind, device.index(), std::max<std::size_t>(bytes, 1)));
    return from_blob(block.get(), sizes, {.dtype = dtype, .device = device});
  }

 private:
  std::vector<ClosedBlock> blocks_;
};

}  // namespace tutti::test
