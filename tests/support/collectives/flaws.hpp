// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/collectives/bad_input.hpp"

#include <functional>
#include <string>
#include <vector>

namespace tutti::test {

/// Something that can be wrong with an operand.
struct Flaw {
  std::string name;
  /// What is given in place of the right operand, which is float32.
  std::function<Tensor(Scene& scene, const Tensor& right)> spoil;
  /// What messages say beside function and argument.
  std::vector<std::string> message;
};

/// Flaws of operands on `here` that are wrong by themselves. `elsewhere` is another device.
[[nodiscard]] std::vector<Flaw> flaws_of_memory(Device here, Device elsewhere);
/// Only outputs must not have it.
[[nodiscard]] Flaw sharing_elements(Device device);

// Those of operands that are compared with others.
[[nodiscard]] std::vector<Flaw> other_element_types(Device device);
/// One longer in the last dimension.
[[nodiscard]] Flaw longer(Sizes right, Device device);

/// A tensor in the operand's place, of its sizes.
[[nodiscard]] std::function<Tensor(Scene&, const Tensor&)> another(
    Device device, DType dtype = DType::float32, Placement placement = Placement::contiguous);

}  // namespace tutti::test
