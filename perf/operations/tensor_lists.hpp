// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/dtype.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Lists of tensor shapes for the coalesced operations.
namespace tutti::perf {

/// Parses an element type by its name in the library or in other libraries. Throws UsageError: its message
/// begins with `where` and lists all types.
[[nodiscard]] DType parse_element_type(std::string_view text, std::string_view where);

struct TensorSpec {
  std::vector<std::int64_t> sizes;  ///< empty: a scalar
  std::optional<DType> dtype;       ///< nothing: the run's element type (-d)

  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

/// Returns the tensors of ResNet-50 in torchvision: 161 parameters and the 106 running means and variances,
/// in the order of its state dictionary; 102.4 MB as float32.
[[nodiscard]] std::vector<TensorSpec> resnet50_tensors();
/// Returns the tensors of GPT-2 with 124 million parameters: 148 tensors, 497.8 MB as float32.
[[nodiscard]] std::vector<TensorSpec> gpt2_tensors();

/// Parses a tensor list for each of several element types, because a number of bytes is a different number of
/// elements for each: "resnet50", "gpt2", COUNTxSIZE such as "1000x1K" (bytes each), or the name of a file,
/// which is read once. Throws UsageError.
[[nodiscard]] std::vector<std::vector<TensorSpec>> parse_tensors(const std::string& text,
                                                                 std::span<const DType> dtypes);
/// Parses the lines of a tensor list: sizes joined by x, or "scalar", then optionally an element type:
/// "64x3x7x7 float16". Ignores empty lines and everything after a #. Throws UsageError "NAME:LINE: ...".
[[nodiscard]] std::vector<TensorSpec> parse_tensor_lines(std::string_view content, std::string_view name);

/// Formats a tensor list as `parse_tensor_lines` reads it: one line per tensor.
[[nodiscard]] std::string format_tensor_lines(const std::vector<TensorSpec>& tensors);

/// Divides the elements of `bytes` among `count` one-dimensional tensors as evenly as possible, none empty if
/// there are enough: the payload of a coalesced operation in a sweep over sizes.
[[nodiscard]] std::vector<TensorSpec> split_evenly(std::size_t bytes, DType dtype, int count);

}  // namespace tutti::perf
