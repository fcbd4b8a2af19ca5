// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/call/arguments.hpp"
#include "tutti/communicator.hpp"
#include "tutti/gradient_clip.hpp"
#include "tutti/tensor.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::collectives {

/// Some consecutive elements of a contiguous tensor.
struct ElementRange {
  Tensor tensor;
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// The gradients of one local member.
struct ClippedGradients {
  std::vector<ElementRange> measured;  ///< all members' together are all gradients, each once
  std::vector<Tensor> scaled;          ///< without shared elements
};

/// Checks the options, the element types of the gradients, and that no current stream of the members is being
/// captured if that cannot be. `argument` is the gradients' name. Throws Error(invalid_argument) or
/// Error(unsupported).
void check_clip(const Arguments& arguments, const Communicator& communicator, const GradientClip& clip,
                std::span<const Tensor> gradients, std::string_view argument);

/// Returns the part of equal gradients that a member measures: as many tiles as other members, or one more.
[[nodiscard]] std::vector<ElementRange> measured_share(std::span<const Tensor> gradients, int member,
                                                       int members);

/// Clips the gradients of the local members on the current streams and returns their norm before, a float64
/// scalar on the device of local member 0. A call of the communicator (an all_gather of 8 bytes for each
/// member), unless it has one member.
[[nodiscard]] Tensor clip_norm(Communicator& communicator, const Arguments& arguments,
                               std::span<const ClippedGradients> members, const GradientClip& clip);

}  // namespace tutti::collectives
