// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/values/host_array.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test {

/// Layouts of a test's tensor in its memory.
enum class Placement {
  contiguous,
  misaligned,     ///< contiguous, but starting an odd number of elements after an aligned address
  gapped,         ///< the last dimension is a part of a longer one
  transposed,     ///< dimensions in reversed order in memory; dense
  channels_last,  ///< rank 4 or 5
  expanded,       ///< all indices of dimension 0 share their elements; for inputs only
};
[[nodiscard]] std::string_view name_of(Placement placement);

/// Returns the strides of a tensor of these sizes.
[[nodiscard]] Sizes strides_of(const Sizes& sizes, Placement placement);

/// A tensor inside memory of known bytes, which checks its own bytes and those around it.
class TestTensor {
 public:
  /// Makes a tensor that holds `values`. With `Placement::expanded`, dimension 0 of `values` must repeat.
  TestTensor(const HostArray& values, Device device, Placement placement = Placement::contiguous,
             HostMemory host_memory = HostMemory::pageable);
  /// Makes a tensor that holds the poison pattern.
  [[nodiscard]] static TestTensor poisoned(DType dtype, const Sizes& sizes, Device device,
                                           Placement placement = Placement::contiguous,
                                           HostMemory host_memory = HostMemory::pageable);

  [[nodiscard]] const Tensor& tensor() const noexcept { return tensor_; }
  operator const Tensor&() const noexcept { return tensor_; }

  /// Checks that every element is as expected, and that no byte around them has changed. Waits for the
  /// device.
  [[nodiscard]] testing::AssertionResult holds(const HostArray& expected) const;
  /// Checks that no byte has changed since construction. Waits for the device.
  [[nodiscard]] testing::AssertionResult untouched() const;

 private:
  /// Consecutive elements that are contiguous in memory.
  struct Run {
    std::size_t offset = 0;         ///< in the memory, in bytes
    std::size_t packed_offset = 0;  ///< without gaps
    std::size_t bytes = 0;
  };

  [[nodiscard]] std::size_t byte_offset(std::int64_t element) const;
  template <class Visit>
  void for_each_run(const Visit& visit) const;

  std::vector<std::byte> initial_;
  Tensor memory_;
  Tensor tensor_;
  std::size_t start_ = 0;  // of the first element, in bytes
};

/// Returns the tensors of several test tensors, for list arguments.
[[nodiscard]] std::vector<Tensor> tensors_of(const std::vector<TestTensor>& tensors);

/// Returns the elements of any tensor in index order; waits for its device.
[[nodiscard]] HostArray read(const Tensor& tensor);

/// Checks that `tensor` is on `device` and holds `expected`.
[[nodiscard]] testing::AssertionResult holds(const Tensor& tensor, Device device, const HostArray& expected);

/// Checks that all elements of an int32 tensor are `number`. Waits for its device.
[[nodiscard]] testing::AssertionResult holds(const Tensor& tensor, std::int32_t number);

/// Makes a contiguous tensor that holds `values`.
[[nodiscard]] Tensor make_tensor(const HostArray& values, Device device,
                                 HostMemory host_memory = HostMemory::pageable);

/// Fills the memory that the allocators will hand out next with the poison pattern. Otherwise uninitialised
/// memory could hold the right answer by chance, left over from an earlier call.
void poison_cached_memory(Device device, std::size_t bytes);

}  // namespace tutti::test
