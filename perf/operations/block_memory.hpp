// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/case.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tutti::perf {

/// Memory for operands in one block for each local member, which is cut into sets: tensors made in the same
/// order lie at the same place of each block.
class BlockMemory : public OperandMemory {
 public:
  void start_set(std::size_t set) override;
  [[nodiscard]] Tensor make(const std::vector<std::int64_t>& sizes, DType dtype, std::size_t local) override;

 protected:
  explicit BlockMemory(std::vector<Device> devices) : devices_(std::move(devices)), used_(devices_.size()) {}

  [[nodiscard]] const std::vector<Device>& devices() const noexcept { return devices_; }
  [[nodiscard]] virtual std::byte* block(std::size_t local) const = 0;
  /// Sets of tensors made from now on have so many bytes in each block.
  void cut(std::size_t bytes_of_set) noexcept { bytes_of_set_ = bytes_of_set; }

 private:
  std::vector<Device> devices_;    ///< of the local members
  std::vector<std::size_t> used_;  ///< of the set, in each block
  std::size_t bytes_of_set_ = 0;
  std::size_t set_ = 0;
};

}  // namespace tutti::perf
