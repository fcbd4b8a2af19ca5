// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/bad_input.hpp"
#include "support/collectives/collective_test.hpp"

namespace tutti::test {
namespace {

const Sizes shape{4, 3};

Tensor good(Scene& scene, int device = 0) {
  return scene.tensor(shape, device);
}

/// reduce_add({good, make_input(scene)}, 0).
template <class MakeInput>
auto second_input(MakeInput make_input) {
  return [=](Scene& scene) -> std::function<void()> {
    const std::vector<Tensor> inputs{good(scene), make_input(scene)};
    return [=] { static_cast<void>(reduce_add(inputs, 0)); };
  };
}

/// reduce_add({good, good}, make_output(scene, inputs)).
template <class MakeOutput>
auto into_output(MakeOutput make_output) {
  return [=](Scene& scene) -> std::function<void()> {
    const std::vector<Tensor> inputs{good(scene, 0), good(scene, 1)};
    const Tensor output = make_output(scene, inputs);
    return [=] { reduce_add(inputs, output); };
  };
}

auto to_destination(std::function<Device()> destination) {
  return [=](Scene& scene) -> std::function<void()> {
    return [input = good(scene), destination] { static_cast<void>(reduce_add({input}, destination())); };
  };
}

using Row = std::vector<Tensor>;

std::vector<BadInput> reduce_add_lines() {
  return {
      {"NoInputs",
       [](Scene&) -> std::function<void()> {
         return [] { static_cast<void>(reduce_add(TensorList{}, Device(0))); };
       },
       {"reduce_add", "inputs", "empty"}},
      {"HostDestination",
       to_destination([] { return Device::host(); }),
       {"reduce_add", "destination", "host", "0 to #last"}},
      {"UnknownDestination",
       to_destination([] { return Device(device_count()); }),
       {"reduce_add", "destination", "#count", "0 to #last"}},
      {"UndefinedInput",
       second_input([](Scene&) { return Tensor(); }),
       {"reduce_add", "inputs[1]", "undefined"}},
      {"ElementType",
       second_input([](Scene& scene) { return scene.tensor(shape, 1, DType::float64); }),
       {"reduce_add", "inputs[1]", "float64", "float32"}},
      {"Sizes",
       second_input([](Scene& scene) {
         return scene.tensor({4, 4}, 1);
       }),
       {"reduce_add", "inputs[1]", "[4, 4]", "[4, 3]"}},
      {"InputOnTheHost",
       second_input([](Scene& scene) { return scene.tensor(shape, Device::host()); }),
       {"reduce_add", "inputs[1]", "host"}},
      {"MemoryOfAnotherDevice",
       second_input([](Scene& scene) { return claimed_for(good(scene, 1), 0, KeepStorage::no); }),
       {"reduce_add", "inputs[1]", "device:0", "device:1"}},
      {"StorageOfAnotherDevice",
       second_input([](Scene& scene) { return claimed_for(good(scene, 1), 0, KeepStorage::yes); }),
       {"reduce_add", "inputs[1]", "device:0", "device:1"}},
      {"MoreBytesThanTheAllocation",
       [](Scene& scene) -> std::function<void()> {
         return [input = oversized(good(scene), KeepStorage::no)] {
           static_cast<void>(reduce_add({input}, Device(1)));
         };
       },
       {"reduce_add", "inputs[0]", "1073741824 bytes"}},
      {"MoreBytesThanTheStorage",
       [](Scene& scene) -> std::function<void()> {
         return [input = oversized(good(scene), KeepStorage::yes)] {
           static_cast<void>(reduce_add({input}, Device(1)));
         };
       },
       {"reduce_add", "inputs[0]", "1073741824 bytes"}},
      {"UndefinedOutput",
       into_output([](Scene&, const Row&) { return Tensor(); }),
       {"reduce_add", "out", "undefined"}},
      {"OutputElementType",
       into_output([](Scene& scene, const Row&) { return scene.tensor(shape, 0, DType::int32); }),
       {"reduce_add", "out", "int32", "float32"}},
      {"OutputSizes",
       into_output([](Scene& scene, const Row&) {
         return scene.tensor({3, 4}, 0);
       }),
       {"reduce_add", "out", "[3, 4]", "[4, 3]"}},
      {"OutputOnTheHost",
       into_output([](Scene& scene, const Row&) { return scene.tensor(shape, Device::host()); }),
       {"reduce_add", "out", "host"}},
      {"OutputOverlapsItself",
       into_output([](Scene& scene, const Row&) {
         return scene.tensor(shape, 0, DType::float32, Placement::expanded);
       }),
       {"reduce_add", "out", "share memory"}},
      {"OutputOverlapsInputPartly",
       [](Scene& scene) -> std::function<void()> {
         const Tensor memory = scene.tensor({5, 3}, 0);
         const std::vector<Tensor> inputs{good(scene, 1), memory.narrow(0, 0, 4)};
         return [=] { reduce_add(inputs, memory.narrow(0, 1, 4)); };
       },
       {"reduce_add", "out", "inputs[1]", "overlaps"}},
      {"OutputIsAnInputTransposed",
       [](Scene& scene) -> std::function<void()> {
         const Tensor input = scene.tensor({3, 3}, 0);
         return [=] { reduce_add({input}, input.transpose(0, 1)); };
       },
       {"reduce_add", "out", "inputs[0]", "overlaps"}},
      {"OutputInMemoryOfAnotherDevice",
       into_output([](Scene& scene, const Row&) { return claimed_for(good(scene, 0), 1, KeepStorage::no); }),
       {"reduce_add", "out", "device:1", "device:0"}},
      {"OutputLargerThanItsAllocation",
       [](Scene& scene) -> std::function<void()> {
         const Tensor input = repeated(good(scene));
         const Tensor output = oversized(good(scene, 1), KeepStorage::no);
         return [=] { reduce_add({input}, output); };
       },
       {"reduce_add", "out", "1073741824 bytes"}},
  };
}
TUTTI_BAD_INPUT_SUITE(ReduceAddArguments, reduce_add_lines);

/// reduce_add_coalesced({{good, int8}, make_row(scene)}, 0).
template <class MakeRow>
auto second_row(MakeRow make_row) {
  return [=](Scene& scene) -> std::function<void()> {
    const std::vector<Row> inputs{{good(scene), scene.tensor({7}, 0, DType::int8)}, make_row(scene)};
    return [=] { static_cast<void>(reduce_add_coalesced(inputs, 0)); };
  };
}

/// reduce_add_coalesced({{good, int8}, {good, int8}}, make_out(scene, inputs)).
template <class MakeOut>
auto into_outputs(MakeOut make_out) {
  return [=](Scene& scene) -> std::function<void()> {
    const std::vector<Row> inputs{{good(scene, 0), scene.tensor({7}, 0, DType::int8)},
                                  {good(scene, 1), scene.tensor({7}, 1, DType::int8)}};
    const Row out = make_out(scene, inputs);
    return [=] { reduce_add_coalesced(inputs, out); };
  };
}

auto coalesced_to(std::function<Device()> destination) {
  return [=](Scene& scene) -> std::function<void()> {
    const std::vector<Row> inputs{{good(scene)}};
    return [=] { static_cast<void>(reduce_add_coalesced(inputs, destination())); };
  };
}

std::vector<BadInput> reduce_add_coalesced_lines() {
  return {
      {"NoRows",
       [](Scene&) -> std::function<void()> {
         return [] { static_cast<void>(reduce_add_coalesced(TensorLists{}, Device(0))); };
       },
       {"reduce_add_coalesced", "inputs", "empty"}},
      {"RaggedRows",
       second_row([](Scene& scene) { return Row{good(scene, 1)}; }),
       {"reduce_add_coalesced", "inputs[1]", "1", "expected 2"}},
      {"UndefinedInput",
       second_row([](Scene& scene) {
         return Row{good(scene, 1), Tensor()};
       }),
       {"reduce_add_coalesced", "inputs[1][1]", "undefined"}},
      {"ElementType",
       second_row([](Scene& scene) {
         return Row{good(scene, 1), scene.tensor({7}, 1, DType::boolean)};
       }),
       {"reduce_add_coalesced", "inputs[1][1]", "bool", "int8"}},
      {"Sizes",
       second_row([](Scene& scene) {
         return Row{scene.tensor({12}, 1), scene.tensor({7}, 1, DType::int8)};
       }),
       {"reduce_add_coalesced", "inputs[1][0]", "[12]", "[4, 3]"}},
      {"InputOnTheHost",
       second_row([](Scene& scene) {
         return Row{scene.tensor(shape, Device::host()), scene.tensor({7}, Device::host(), DType::int8)};
       }),
       {"reduce_add_coalesced", "inputs[1][0]", "host"}},
      {"MemoryOfAnotherDevice",
       second_row([](Scene& scene) {
         return Row{claimed_for(good(scene, 0), 1, KeepStorage::no), scene.tensor({7}, 1, DType::int8)};
       }),
       {"reduce_add_coalesced", "inputs[1][0]", "device:1", "device:0"}},
      {"MoreBytesThanTheAllocation",
       second_row([](Scene& scene) {
         return Row{oversized(good(scene, 1), KeepStorage::no), scene.tensor({7}, 1, DType::int8)};
       }),
       {"reduce_add_coalesced", "inputs[1][0]", "1073741824 bytes"}},
      {"MoreBytesThanTheStorage",
       second_row([](Scene& scene) {
         return Row{oversized(good(scene, 1), KeepStorage::yes), scene.tensor({7}, 1, DType::int8)};
       }),
       {"reduce_add_coalesced", "inputs[1][0]", "1073741824 bytes"}},
      {"HostDestination",
       coalesced_to([] { return Device::host(); }),
       {"reduce_add_coalesced", "destination", "host", "0 to #last"}},
      {"UnknownDestination",
       coalesced_to([] { return Device(device_count() + 2); }),
       {"reduce_add_coalesced", "destination", "0 to #last"}},
      {"NoOutputs", into_outputs([](Scene&, const auto&) { return Row{}; }), {"reduce_add_coalesced", "out"}},
      {"TooFewOutputs",
       into_outputs([](Scene& scene, const auto&) { return Row{good(scene)}; }),
       {"reduce_add_coalesced", "out", "1", "expected 2"}},
      {"UndefinedOutput",
       into_outputs([](Scene& scene, const auto&) {
         return Row{good(scene), Tensor()};
       }),
       {"reduce_add_coalesced", "out[1]", "undefined"}},
      {"OutputElementType",
       into_outputs([](Scene& scene, const auto&) {
         return Row{good(scene), scene.tensor({7}, 0, DType::int16)};
       }),
       {"reduce_add_coalesced", "out[1]", "int16", "int8"}},
      {"OutputSizes",
       into_outputs([](Scene& scene, const auto&) {
         return Row{good(scene), scene.tensor({8}, 0, DType::int8)};
       }),
       {"reduce_add_coalesced", "out[1]", "[8]", "[7]"}},
      {"OutputsOnSeveralDevices",
       into_outputs([](Scene& scene, const auto&) {
         return Row{good(scene, 0), scene.tensor({7}, 1, DType::int8)};
       }),
       {"reduce_add_coalesced", "out[1]", "device:1", "device:0"}},
      {"OutputsOnTheHost",
       into_outputs([](Scene& scene, const auto&) {
         return Row{scene.tensor(shape, Device::host()), scene.tensor({7}, Device::host(), DType::int8)};
       }),
       {"reduce_add_coalesced", "out[0]", "host"}},
      {"OutputOverlapsItself",
       into_outputs([](Scene& scene, const auto&) {
         return Row{scene.tensor(shape, 0, DType::float32, Placement::expanded),
                    scene.tensor({7}, 0, DType::int8)};
       }),
       {"reduce_add_coalesced", "out[0]", "share memory"}},
      {"OutputInMemoryOfAnotherDevice",
       into_outputs([](Scene& scene, const auto&) {
         return Row{good(scene, 0), claimed_for(scene.tensor({7}, 1, DType::int8), 0, KeepStorage::no)};
       }),
       {"reduce_add_coalesced", "out[1]", "device:0", "device:1"}},
      {"OutputLargerThanItsAllocation",
       [](Scene& scene) -> std::function<void()> {
         const std::vector<Row> inputs{{repeated(good(scene))}};
         const Row out{oversized(good(scene, 1), KeepStorage::no)};
         return [=] { reduce_add_coalesced(inputs, out); };
       },
       {"reduce_add_coalesced", "out[0]", "1073741824 bytes"}},
      {"OutputIsAnInputOfAnotherColumn",
       [](Scene& scene) -> std::function<void()> {
         const std::vector<Row> inputs{{good(scene), good(scene)}};
         const Row out{inputs[0][1], inputs[0][0]};
         return [=] { reduce_add_coalesced(inputs, out); };
       },
       {"reduce_add_coalesced", "out[", "inputs[0][", "overlaps"}},
      {"OutputsOverlap",
       [](Scene& scene) -> std::function<void()> {
         const std::vector<Row> inputs{{good(scene), good(scene)}};
         const Tensor memory = scene.tensor({5, 3}, 0);
         const Row out{memory.narrow(0, 0, 4), memory.narrow(0, 1, 4)};
         return [=] { reduce_add_coalesced(inputs, out); };
       },
       {"reduce_add_coalesced", "out[0]", "out[1]", "overlaps"}},
      {"InputTwiceAmongOutputs",
       [](Scene& scene) -> std::function<void()> {
         const Tensor tensor = good(scene);
         const std::vector<Row> inputs{{tensor, tensor}};
         return [=] { reduce_add_coalesced(inputs, inputs[0]); };
       },
       {"reduce_add_coalesced", "out[", "overlaps"}},
  };
}
TUTTI_BAD_INPUT_SUITE(ReduceAddCoalescedArguments, reduce_add_coalesced_lines);

}  // namespace
}  // namespace tutti::test
