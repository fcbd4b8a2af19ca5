// SPDX-License-Identifier: Apache-2.0
#include "ranks/bad_input/bad_call.hpp"
#include "ranks/bad_input/methods.hpp"

#include <utility>
#include <vector>

/// Outputs of a communicator's calls that overlap inputs, or one another.
namespace tutti::test::ranks {
namespace {

const Sizes shape{4, 6};

Tensor good(Scene& scene, int device) {
  return scene.tensor(shape, device);
}

/// Two tensors of `shape` that have three rows in common.
std::pair<Tensor, Tensor> overlapping(Scene& scene, int device) {
  const Tensor memory = scene.tensor({5, 6}, device);
  return {memory.narrow(0, 0, 4), memory.narrow(0, 1, 4)};
}

std::vector<BadCall> broadcast_lines() {
  return {
      {"OutputOverlapsTensor",
       [](Scene& scene) -> CommunicatorCall {
         const auto [source, output] = overlapping(scene, 1);
         return [source = source, out = Row{good(scene, 0), output}](Communicator& communicator) {
           communicator.broadcast(source, out, 1);
         };
       },
       {"broadcast: ", "out[1]", "tensor", "overlaps"}},
      {"OutputIsTheTensorTransposed",
       [](Scene& scene) -> CommunicatorCall {
         const Tensor source = scene.tensor({3, 3}, 0);
         const Row out{source.transpose(0, 1), scene.tensor({3, 3}, 1)};
         return [=](Communicator& communicator) { communicator.broadcast(source, out, 0); };
       },
       {"broadcast: ", "out[0]", "tensor", "overlaps"}},
      {"TensorsOfAMemberOverlap",
       [](Scene& scene) -> CommunicatorCall {
         const auto [first, second] = overlapping(scene, 1);
         const std::vector<Row> tensors{{good(scene, 0), good(scene, 0)}, {first, second}};
         return [=](Communicator& communicator) { communicator.broadcast_coalesced(tensors, 0); };
       },
       {"broadcast_coalesced: ", "tensors[1][0]", "tensors[1][1]", "overlaps"}},
      {"OutputsOfAMemberOverlap",
       [](Scene& scene) -> CommunicatorCall {
         const auto [first, second] = overlapping(scene, 1);
         const Row tensors{good(scene, 0), good(scene, 0)};
         const std::vector<Row> out{tensors, {first, second}};
         return [=](Communicator& communicator) { communicator.broadcast_coalesced(tensors, out, 0); };
       },
       {"broadcast_coalesced: ", "out[1][0]", "out[1][1]", "overlaps"}},
      {"OutputIsNamedTwice",
       [](Scene& scene) -> CommunicatorCall {
         const Tensor output = good(scene, 1);
         const Row tensors{good(scene, 0), good(scene, 0)};
         const std::vector<Row> out{tensors, {output, output}};
         return [=](Communicator& communicator) { communicator.broadcast_coalesced(tensors, out, 0); };
       },
       {"broadcast_coalesced: ", "out[1][0]", "out[1][1]", "overlaps"}},
      {"OutputsAreTheTensorsInAnotherOrder",
       [](Scene& scene) -> CommunicatorCall {
         const Row tensors{good(scene, 0), good(scene, 0)};
         const std::vector<Row> out{{tensors[1], tensors[0]}, {good(scene, 1), good(scene, 1)}};
         return [=](Communicator& communicator) { communicator.broadcast_coalesced(tensors, out, 0); };
       },
       {"broadcast_coalesced: ", "out[0][", "tensors[", "overlaps"}},
  };
}
TUTTI_BAD_CALL_SUITE(CommunicatorBroadcastOverlaps, broadcast_lines);

/// reduce_add_coalesced and all_reduce_add_coalesced of member 0's inputs and outputs.
template <class MakeRows>
BadCall sum_at_root(const char* name, MakeRows make_rows, std::vector<std::string> message) {
  message.emplace_back("reduce_coalesced: ");
  return {name,
          [=](Scene& scene) -> CommunicatorCall {
            const auto [inputs, out] = make_rows(scene);
            return [inputs = std::vector<Row>{inputs, Row{good(scene, 1), good(scene, 1)}},
                    out = std::vector<Row>{out}](Communicator& communicator) {
              communicator.reduce_add_coalesced(inputs, out, 0);
            };
          },
          std::move(message)};
}

std::vector<BadCall> sum_lines() {
  using Rows = std::pair<Row, Row>;
  return {
      {"OutputOverlapsTheRootsInput",
       [](Scene& scene) -> CommunicatorCall {
         const auto [input, output] = overlapping(scene, 1);
         return [inputs = Row{good(scene, 0), input}, out = Row{Tensor(), output}](
                    Communicator& communicator) { communicator.reduce_add(inputs, out, 1); };
       },
       {"reduce: ", "out[1]", "inputs[1]", "overlaps"}},
      {"OutputIsTheRootsInputTransposed",
       [](Scene& scene) -> CommunicatorCall {
         const Tensor input = scene.tensor({3, 3}, 0);
         return [inputs = Row{input, scene.tensor({3, 3}, 1)}, out = Row{input.transpose(0, 1)}](
                    Communicator& communicator) { communicator.reduce_add(inputs, out, 0); };
       },
       {"reduce: ", "out[0]", "inputs[0]", "overlaps"}},
      {"OneOfTheOutputsOverlapsItsInput",
       [](Scene& scene) -> CommunicatorCall {
         const auto [output, input] = overlapping(scene, 1);
         return [inputs = Row{good(scene, 0), input}, out = Row{good(scene, 0), output}](
                    Communicator& communicator) { communicator.all_reduce_add(inputs, out); };
       },
       {"all_reduce: ", "out[1]", "inputs[1]", "overlaps"}},
      {"OutputsOfAMemberOverlap",
       [](Scene& scene) -> CommunicatorCall {
         const auto [first, second] = overlapping(scene, 1);
         const std::vector<Row> inputs{{good(scene, 0), good(scene, 0)}, {good(scene, 1), good(scene, 1)}};
         const std::vector<Row> out{inputs[0], {first, second}};
         return [=](Communicator& communicator) { communicator.all_reduce_add_coalesced(inputs, out); };
       },
       {"all_reduce_coalesced: ", "out[1][0]", "out[1][1]", "overlaps"}},
      sum_at_root("OutputsAreInputsInAnotherOrder",
                  [](Scene& scene) {
                    const Row row{good(scene, 0), good(scene, 0)};
                    return Rows{row, {row[1], row[0]}};
                  },
                  {"out[0][", "inputs[0][", "overlaps"}),
      sum_at_root("InputTwiceAmongOutputs",
                  [](Scene& scene) {
                    const Tensor tensor = good(scene, 0);
                    return Rows{{tensor, tensor}, {tensor, tensor}};
                  },
                  {"out[0][", "overlaps"}),
      sum_at_root("OneOutputInPlaceAndOneOverIt",
                  [](Scene& scene) {
                    const auto [first, second] = overlapping(scene, 0);
                    return Rows{{first, good(scene, 0)}, {first, second}};
                  },
                  {"out[0][", "overlaps"}),
      sum_at_root("OutputInPlaceOverAnotherInput",
                  [](Scene& scene) {
                    const auto [first, second] = overlapping(scene, 0);
                    return Rows{{first, second}, {first, good(scene, 0)}};
                  },
                  {"out[0][0]", "inputs[0][1]", "overlaps"}),
      sum_at_root("OutputsOverlap",
                  [](Scene& scene) {
                    const auto [first, second] = overlapping(scene, 0);
                    return Rows{{good(scene, 0), good(scene, 0)}, {first, second}};
                  },
                  {"out[0][0]", "out[0][1]", "overlaps"}),
  };
}
TUTTI_BAD_CALL_SUITE(CommunicatorSumOverlaps, sum_lines);

/// A whole of both members' parts, and the part that belongs to the other one.
std::pair<Tensor, Tensor> whole_and_part_of(int owner, Scene& scene, int device) {
  const Tensor whole = scene.tensor({8, 6}, device);
  return {whole, whole.narrow(0, 4 * owner, 4)};
}

std::vector<BadCall> part_lines() {
  return {
      {"InputIsThePartOfAnotherMember",
       [](Scene& scene) -> CommunicatorCall {
         const auto [whole, part] = whole_and_part_of(1, scene, 0);
         return [inputs = Row{part, good(scene, 1)}, out = Row{whole, scene.tensor({8, 6}, 1)}](
                    Communicator& communicator) { communicator.all_gather(inputs, out); };
       },
       {"all_gather: ", "out[0]", "inputs[0]", "overlaps"}},
      {"LastInputIsThePartOfAnotherMember",
       [](Scene& scene) -> CommunicatorCall {
         const auto [whole, part] = whole_and_part_of(0, scene, 1);
         return [inputs = Row{good(scene, 0), part}, out = Row{scene.tensor({8, 6}, 0), whole}](
                    Communicator& communicator) { communicator.all_gather(inputs, out); };
       },
       {"all_gather: ", "out[1]", "inputs[1]", "overlaps"}},
      {"InputLiesBetweenTheParts",
       [](Scene& scene) -> CommunicatorCall {
         const Tensor whole = scene.tensor({8, 6}, 0);
         return [inputs = Row{whole.narrow(0, 2, 4), good(scene, 1)},
                 out = Row{whole, scene.tensor({8, 6}, 1)}](Communicator& communicator) {
           communicator.all_gather(inputs, out);
         };
       },
       {"all_gather: ", "out[0]", "inputs[0]", "overlaps"}},
      {"OutputIsThePartOfAnotherMember",
       [](Scene& scene) -> CommunicatorCall {
         const auto [whole, part] = whole_and_part_of(0, scene, 1);
         return [inputs = Row{scene.tensor({8, 6}, 0), whole}, out = Row{good(scene, 0), part}](
                    Communicator& communicator) { communicator.reduce_scatter_add(inputs, out); };
       },
       {"reduce_scatter: ", "out[1]", "inputs[1]", "overlaps"}},
      {"OutputLiesBetweenTheParts",
       [](Scene& scene) -> CommunicatorCall {
         const Tensor whole = scene.tensor({8, 6}, 0);
         return [inputs = Row{whole, scene.tensor({8, 6}, 1)},
                 out = Row{whole.narrow(0, 1, 4), good(scene, 1)}](Communicator& communicator) {
           communicator.reduce_scatter_add(inputs, out);
         };
       },
       {"reduce_scatter: ", "out[0]", "inputs[0]", "overlaps"}},
      {"ScatteredIntoItself",
       [](Scene& scene) -> CommunicatorCall {
         const auto [whole, part] = whole_and_part_of(0, scene, 0);
         return [whole = whole, out = Row{part, good(scene, 1)}](Communicator& communicator) {
           communicator.scatter(whole, out, 0);
         };
       },
       {"scatter: ", "out[0]", "tensor", "overlaps"}},
      {"ScatteredIntoItselfAlongAColumn",
       [](Scene& scene) -> CommunicatorCall {
         const Tensor whole = scene.tensor({4, 12}, 1);
         return [=, out = Row{good(scene, 0), whole.narrow(1, 3, 6)}](Communicator& communicator) {
           communicator.scatter(whole, out, 1, -1);
         };
       },
       {"scatter: ", "out[1]", "tensor", "overlaps"}},
      {"GatheredIntoItself",
       [](Scene& scene) -> CommunicatorCall {
         const auto [whole, part] = whole_and_part_of(1, scene, 1);
         return [whole = whole, tensors = Row{good(scene, 0), part}](Communicator& communicator) {
           communicator.gather(tensors, whole, 1);
         };
       },
       {"gather: ", "out", "tensors[1]", "overlaps"}},
  };
}
TUTTI_BAD_CALL_SUITE(CommunicatorParts, part_lines);

}  // namespace
}  // namespace tutti::test::ranks
