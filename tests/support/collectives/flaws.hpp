// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/collectives/bad_input.hpp"

#include <functional>
#include <string>
#include <vector>

namespace tutti::test {

/// A flaw of an operand.
struct Flaw {
  std::string name;
  /// Returns the replacement of the right operand, which is float32.
  std::function<Tensor(Scene& scene, const Tensor& right)> spoil;
  /// Parts of the message besides function and argument.
  std::vector<std::string> message;
};

/// Returns flaws of operands on `here` that are wrong by themselves. `elsewhere` is another device.
[[nodiscard]] std::vector<Flaw> flaws_of_memory(Device here, Device elsewhere);
/// Returns the flaw of shared elements, which is one for outputs only.
[[nodiscard]] Flaw sharing_elements(Device device);

// Those of operands that are compared with others.
[[nodiscard]] std::vector<Flaw> other_element_types(Device device);
/// Makes the last dimension longer by one.
[[nodiscard]] Flaw longer(Sizes right, Device device);

/// Returns a function that replaces the operand by another tensor of its sizes.
[[nodiscard]] std::function<Tensor(Scene&, const Tensor&)> another(
    Device device, DType dtype = DType::float32, Placement placement = Placement::contiguous);

}  // namespace tutti::test
