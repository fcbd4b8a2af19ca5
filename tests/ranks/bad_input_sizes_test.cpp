// SPDX-License-Identifier: Apache-2.0
#include "ranks/bad_call.hpp"
#include "ranks/methods.hpp"

#include <string>
#include <utility>
#include <vector>

/// Parts that do not add up to the whole, where one process has them all and can tell by itself.
namespace tutti::test::ranks {
namespace {

enum class Direction { scatter, gather };

BadCall sizes(const std::string& name, Direction direction, const Sizes& whole,
              const std::vector<Sizes>& parts, Placement placement = Placement::contiguous) {
  return {name,
          [=](Scene& scene) -> CommunicatorCall {
            const Tensor all = scene.tensor(whole, 0, DType::float32, placement);
            Row own;
            for (std::size_t i = 0; i < parts.size(); ++i)
              own.push_back(scene.tensor(parts[i], static_cast<int>(i), DType::float32, placement));
            return [=](Communicator& communicator) {
              if (direction == Direction::scatter) {
                communicator.scatter(all, own, 0);
              } else {
                communicator.gather(own, all, 0);
              }
            };
          },
          {direction == Direction::scatter ? "scatter" : "gather", "out", "expected"}};
}

std::vector<BadCall> sizes_that_do_not_add_up() {
  return {
      sizes("ScatterOfMoreThanThePartsHold", Direction::scatter, {8, 6}, {{4, 6}, {3, 6}}),
      sizes("ScatterOfLessThanThePartsHold", Direction::scatter, {8, 6}, {{4, 6}, {5, 6}}),
      sizes("ScatterOfNoRows", Direction::scatter, {0, 6}, {{0, 6}, {1, 6}}),
      sizes("ScatterWithGaps", Direction::scatter, {8, 6}, {{4, 6}, {3, 6}}, Placement::gapped),
      sizes("GatherIntoTooFewRows", Direction::gather, {8, 6}, {{4, 6}, {5, 6}}),
      sizes("GatherIntoTooManyRows", Direction::gather, {8, 6}, {{4, 6}, {3, 6}}),
      sizes("GatherWithGaps", Direction::gather, {8, 6}, {{4, 6}, {3, 6}}, Placement::gapped),
  };
}
TUTTI_BAD_CALL_SUITE(CommunicatorSizes, sizes_that_do_not_add_up);

}  // namespace
}  // namespace tutti::test::ranks
