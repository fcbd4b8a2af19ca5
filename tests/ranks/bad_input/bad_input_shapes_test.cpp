// SPDX-License-Identifier: Apache-2.0
#include "ranks/bad_input/bad_call.hpp"
#include "ranks/bad_input/methods.hpp"

#include <limits>
#include <vector>

/// Calls of a communicator with lists, sizes or dimensions that do not go together.
namespace tutti::test::ranks {
namespace {

const Sizes shape{4, 6};

Tensor good(Scene& scene, int device) {
  return scene.tensor(shape, device);
}
Row good_row(Scene& scene, int device) {
  return {good(scene, device), scene.tensor({7}, device)};
}

/// all_reduce_add_coalesced({good_row, make_row(scene)}, {good_row, good_row}).
template <class MakeRow>
auto summed_with(MakeRow make_row) {
  return [=](Scene& scene) -> CommunicatorCall {
    const std::vector<Row> inputs{good_row(scene, 0), make_row(scene)};
    const std::vector<Row> out{good_row(scene, 0), good_row(scene, 1)};
    return [=](Communicator& communicator) { communicator.all_reduce_add_coalesced(inputs, out); };
  };
}
/// all_reduce_add_coalesced({good_row, good_row}, {good_row, make_row(scene)}).
template <class MakeRow>
auto summed_into(MakeRow make_row) {
  return [=](Scene& scene) -> CommunicatorCall {
    const std::vector<Row> inputs{good_row(scene, 0), good_row(scene, 1)};
    const std::vector<Row> out{good_row(scene, 0), make_row(scene)};
    return [=](Communicator& communicator) { communicator.all_reduce_add_coalesced(inputs, out); };
  };
}

Row too_long(Scene& scene) {
  return {good(scene, 1), scene.tensor({7}, 1), scene.tensor({7}, 1)};
}

std::vector<BadCall> coalesced_lines() {
  return {
      {"TooFewTensorsOfAMember",
       [](Scene& scene) -> CommunicatorCall {
         const std::vector<Row> tensors{good_row(scene, 0), {good(scene, 1)}};
         return [=](Communicator& communicator) { communicator.broadcast_coalesced(tensors, 0); };
       },
       {"broadcast_coalesced: ", "tensors[1] has 1 tensors", "expected 2", "tensors[0]"}},
      {"TooManyOutputsOfAMember",
       [](Scene& scene) -> CommunicatorCall {
         const Row tensors = good_row(scene, 0);
         const std::vector<Row> out{good_row(scene, 0), too_long(scene)};
         return [=](Communicator& communicator) { communicator.broadcast_coalesced(tensors, out, 0); };
       },
       {"broadcast_coalesced: ", "out[1] has 3 tensors", "expected 2", "out[0]"}},
      {"FewerTensorsThanOutputs",
       [](Scene& scene) -> CommunicatorCall {
         const Row tensors{good(scene, 0)};
         const std::vector<Row> out{good_row(scene, 0), good_row(scene, 1)};
         return [=](Communicator& communicator) { communicator.broadcast_coalesced(tensors, out, 0); };
       },
       {"broadcast_coalesced: ", "tensors has 1", "expected 2", "out[0]"}},
      {"TooFewInputsOfAMember",
       summed_with([](Scene& scene) { return Row{good(scene, 1)}; }),
       {"all_reduce_coalesced: ", "inputs[1] has 1 tensors", "expected 2", "inputs[0]"}},
      {"TooManyInputsOfAMember",
       summed_with(too_long),
       {"all_reduce_coalesced: ", "inputs[1] has 3 tensors", "expected 2", "inputs[0]"}},
      {"NoOutputsOfAMember",
       summed_into([](Scene&) { return Row{}; }),
       {"all_reduce_coalesced: ", "out[1] has 0 tensors", "expected 2", "inputs[0]"}},
      {"TooManyOutputsOfASum",
       summed_into(too_long),
       {"all_reduce_coalesced: ", "out[1] has 3 tensors", "expected 2", "inputs[0]"}},
      {"TooFewOutputsOfTheRoot",
       [](Scene& scene) -> CommunicatorCall {
         const std::vector<Row> inputs{good_row(scene, 0), good_row(scene, 1)};
         return [=, out = std::vector<Row>{{good(scene, 0)}}](Communicator& communicator) {
           communicator.reduce_add_coalesced(inputs, out, 0);
         };
       },
       {"reduce_coalesced: ", "out[0] has 1 tensors", "expected 2", "inputs[0]"}},
  };
}
TUTTI_BAD_CALL_SUITE(CommunicatorCoalescedLists, coalesced_lines);

/// scatter(make_source(scene), {part, part}, 0, dim), of parts of these sizes.
template <class MakeSource>
auto cut(MakeSource make_source, Sizes part, int dim) {
  return [=](Scene& scene) -> CommunicatorCall {
    const Tensor source = make_source(scene);
    const Row out{scene.tensor(part, 0), scene.tensor(part, 1)};
    return [=](Communicator& communicator) { communicator.scatter(source, out, 0, dim); };
  };
}
/// gather({part, part}, make_output(scene), 1, dim).
template <class MakeOutput>
auto joined(MakeOutput make_output, Sizes part, int dim) {
  return [=](Scene& scene) -> CommunicatorCall {
    const Tensor output = make_output(scene);
    const Row tensors{scene.tensor(part, 0), scene.tensor(part, 1)};
    return [=](Communicator& communicator) { communicator.gather(tensors, output, 1, dim); };
  };
}
auto of_sizes(Sizes sizes, int device) {
  return [=](Scene& scene) { return scene.tensor(sizes, device); };
}

std::vector<BadCall> cut_lines() {
  const int least = std::numeric_limits<int>::min();
  return {
      {"ScatterDimensionTooLarge",
       cut(of_sizes({8, 6}, 0), shape, 2),
       {"scatter: ", "dim is 2", "expected -2 to 1"}},
      {"ScatterDimensionTooSmall",
       cut(of_sizes({8, 6}, 0), shape, -3),
       {"scatter: ", "dim is -3", "expected -2 to 1"}},
      {"ScatterLeastDimension", cut(of_sizes({8, 6}, 0), shape, least), {"scatter: ", "expected -2 to 1"}},
      {"ScatterOfAScalar", cut(of_sizes({}, 0), {}, 0), {"scatter: ", "dim is 0", "without dimensions"}},
      {"ScatterIntoScalars", cut(of_sizes({2}, 0), {}, 0), {"scatter: ", "dim is 0", "without dimensions"}},
      {"ScatterOfFewerDimensions",
       cut(of_sizes({48}, 0), shape, 0),
       {"scatter: ", "tensor has sizes [48]", "expected 2 dimensions", "out[0]"}},
      {"ScatterOfMoreDimensions",
       cut(of_sizes({8, 6, 1}, 0), shape, 0),
       {"scatter: ", "tensor has sizes [8, 6, 1]", "expected 2 dimensions", "out[0]"}},
      {"ScatterAlongAnotherDimension",
       cut(of_sizes({8, 6}, 0), shape, 1),
       {"scatter: ", "tensor has sizes [8, 6]", "expected [4, 6]", "outside dimension 1"}},
      {"ScatterIntoPartsOfSeveralRanks",
       [](Scene& scene) -> CommunicatorCall {
         const Tensor source = scene.tensor({8, 6}, 0);
         const Row out{good(scene, 0), scene.tensor({24}, 1)};
         return [=](Communicator& communicator) { communicator.scatter(source, out, 0); };
       },
       {"scatter: ", "out[1] has sizes [24]", "expected 2 dimensions", "out[0]"}},
      {"ScatterOfNothing",
       cut([](Scene&) { return Tensor(); }, shape, 0),
       {"scatter: ", "tensor is undefined"}},
      {"ScatterIntoNothing",
       [](Scene& scene) -> CommunicatorCall {
         const Tensor source = scene.tensor({8, 6}, 0);
         const Row out{Tensor(), good(scene, 1)};
         return [=](Communicator& communicator) { communicator.scatter(source, out, 0); };
       },
       {"scatter: ", "out[0] is undefined"}},
      {"GatherDimensionTooLarge",
       joined(of_sizes({8, 6}, 1), shape, 2),
       {"gather: ", "dim is 2", "expected -2 to 1"}},
      {"GatherDimensionTooSmall",
       joined(of_sizes({8, 6}, 1), shape, -3),
       {"gather: ", "dim is -3", "expected -2 to 1"}},
      {"GatherIntoFewerDimensions",
       joined(of_sizes({48}, 1), shape, 0),
       {"gather: ", "out has sizes [48]", "expected 2 dimensions", "tensors[0]"}},
      {"GatherAlongAnotherDimension",
       joined(of_sizes({4, 12}, 1), shape, 0),
       {"gather: ", "out has sizes [4, 12]", "expected [4, 6]", "outside dimension 0"}},
      {"GatherIntoNothing",
       joined([](Scene&) { return Tensor(); }, shape, 0),
       {"gather: ", "out is undefined"}},
      {"GatherOfNothing",
       [](Scene& scene) -> CommunicatorCall {
         const Tensor output = scene.tensor({8, 6}, 0);
         const Row tensors{Tensor(), good(scene, 1)};
         return [=](Communicator& communicator) { communicator.gather(tensors, output, 0); };
       },
       {"gather: ", "tensors[0] is undefined"}},
  };
}
TUTTI_BAD_CALL_SUITE(CommunicatorCuts, cut_lines);

/// all_gather({good, good}, out), with outputs of these sizes.
auto gathered_into(Sizes first, Sizes second) {
  return [=](Scene& scene) -> CommunicatorCall {
    const Row inputs{good(scene, 0), good(scene, 1)};
    const Row out{scene.tensor(first, 0), scene.tensor(second, 1)};
    return [=](Communicator& communicator) { communicator.all_gather(inputs, out); };
  };
}
/// reduce_scatter_add(inputs, {good, good}), with inputs of these sizes.
auto summed_parts_of(Sizes whole) {
  return [=](Scene& scene) -> CommunicatorCall {
    const Row inputs{scene.tensor(whole, 0), scene.tensor(whole, 1)};
    const Row out{good(scene, 0), good(scene, 1)};
    return [=](Communicator& communicator) { communicator.reduce_scatter_add(inputs, out); };
  };
}

std::vector<BadCall> element_lines() {
  return {
      {"TooFewElementsToGatherInto",
       gathered_into({8, 6}, {47}),
       {"all_gather: ", "out[1] has 47 elements", "expected 48", "24 from each of 2"}},
      {"TooManyElementsToGatherInto",
       gathered_into({7, 7}, {8, 6}),
       {"all_gather: ", "out[0] has 49 elements", "expected 48", "24 from each of 2"}},
      {"MoreElementsToGatherThanCanBeCounted",
       [](Scene& scene) -> CommunicatorCall {
         const auto huge = [&scene](int device) {
           const Tensor byte = scene.tensor({1}, device, DType::uint8);
           const TensorView all(byte.data(), DType::uint8, {std::int64_t{1} << 62}, {0}, byte.device());
           return Tensor(byte.storage(), all);
         };
         const Row inputs{huge(0), huge(1)};
         const Row out{scene.tensor({0}, 0, DType::uint8), scene.tensor({0}, 1, DType::uint8)};
         return [=](Communicator& communicator) { communicator.all_gather(inputs, out); };
       },
       {"all_gather: ", "inputs[0] has 4611686018427387904 elements", "more than 2^63 - 1"}},
      {"TooFewElementsToSumPartsOf",
       summed_parts_of({47}),
       {"reduce_scatter: ", "inputs[0] has 47 elements", "expected 48", "24 for each of 2"}},
      {"TooManyElementsToSumPartsOf",
       summed_parts_of({7, 7}),
       {"reduce_scatter: ", "inputs[0] has 49 elements", "expected 48", "24 for each of 2"}},
      {"NoSumAtTheRoot",
       [](Scene& scene) -> CommunicatorCall {
         const Row inputs{good(scene, 0), good(scene, 1)};
         return [=](Communicator& communicator) {
           communicator.reduce_add(inputs, Row{inputs[0], Tensor()}, 1);
         };
       },
       {"reduce: ", "out[1] is undefined"}},
  };
}
TUTTI_BAD_CALL_SUITE(CommunicatorElements, element_lines);

}  // namespace
}  // namespace tutti::test::ranks
