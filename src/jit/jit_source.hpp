// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/code_calls.hpp"
#include "tutti/dtype.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// The kind of a scalar in the text that is compiled.
enum class JitScalarKind : std::uint8_t { boolean, integer, real, unsigned_integer };

/// The most tensors that an elementwise function may have as inputs, and as outputs.
inline constexpr std::size_t most_jit_inputs = 8;
inline constexpr std::size_t most_jit_outputs = 8;
inline constexpr std::size_t most_jit_scalars = 16;

/// Returns whether texts are made for elements of the type.
[[nodiscard]] bool is_jit_dtype(DType dtype) noexcept;

/// Throws Error(unsupported), in the name of `function`, for element types that no text is made for: complex
/// numbers and float8.
void require_jit_dtype(DType dtype, std::string_view function);

/// The parameters of `elementwise_text`, word by word: count, whether all is dense, rank, sizes, strides of
/// each input in elements, inputs, outputs, scalars.
struct ElementwisePlaces {
  std::size_t inputs_count = 0;
  std::size_t outputs_count = 0;
  std::size_t scalars_count = 0;

  static constexpr std::size_t count = 0;
  static constexpr std::size_t is_dense = 1;
  static constexpr std::size_t rank = 2;
  static constexpr std::size_t sizes = 3;
  [[nodiscard]] std::size_t strides(std::size_t input) const noexcept;
  [[nodiscard]] std::size_t input(std::size_t i) const noexcept;
  [[nodiscard]] std::size_t output(std::size_t i) const noexcept;
  [[nodiscard]] std::size_t scalar(std::size_t i) const noexcept;
  [[nodiscard]] std::size_t total() const noexcept;
};

/// Returns a kernel that applies the function `name` of `source`, a template of one type, to each element of
/// inputs and scalars. It returns the output, or takes several by reference, behind the rest.
[[nodiscard]] backend::CodeText elementwise_text(std::string_view source, std::string_view name, DType dtype,
                                                 const ElementwisePlaces& places,
                                                 const std::vector<JitScalarKind>& scalars,
                                                 bool returns_output);

/// The most operands that one run of `combination_text` takes.
inline constexpr std::size_t most_combined = 64;
/// The parameters of `combination_text`: count, number of operands, target, operands.
struct CombinationPlaces {
  static constexpr std::size_t count = 0;
  static constexpr std::size_t operands_count = 1;
  static constexpr std::size_t target = 2;
  static constexpr std::size_t operands = 3;
  static constexpr std::size_t total = operands + most_combined;
};
/// Returns a kernel that combines operands, element by element, in ascending order: `name(name(a0, a1), a2)`
/// and so on. Elements of 16 bits are combined in float32, and rounded once.
[[nodiscard]] backend::CodeText combination_text(std::string_view source, std::string_view name, DType dtype);

}  // namespace tutti
