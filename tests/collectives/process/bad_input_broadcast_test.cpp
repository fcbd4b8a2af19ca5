// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/bad_input.hpp"
#include "support/collectives/collective_test.hpp"

namespace tutti::test {
namespace {

const Sizes shape{4, 3};

/// broadcast(tensor, devices) with these arguments; `make_tensor` gets the scene.
template <class MakeTensor>
auto to_devices(MakeTensor make_source, std::vector<Device> devices) {
  return [=](Scene& scene) -> std::function<void()> {
    return [source = make_source(scene), devices] { static_cast<void>(broadcast(source, devices)); };
  };
}

/// broadcast(tensor, {a good output, make_output(scene, tensor)}).
template <class MakeOutput>
auto into_output(MakeOutput make_output) {
  return [=](Scene& scene) -> std::function<void()> {
    const Tensor source = scene.tensor(shape, 0);
    const std::vector<Tensor> out{scene.tensor(shape, 1), make_output(scene, source)};
    return [=] { broadcast(source, out); };
  };
}

Tensor good(Scene& scene) {
  return scene.tensor(shape, 0);
}

std::vector<BadInput> broadcast_to_devices() {
  return {
      {"NoDevices", to_devices(good, {}), {"broadcast", "devices", "empty", "at least one"}},
      {"HostAmongDevices",
       to_devices(good, {0, Device::host()}),
       {"broadcast", "devices[1]", "host", "0 to #last"}},
      {"UnknownDevice",
       [](Scene& scene) -> std::function<void()> {
         return [source = good(scene)] { static_cast<void>(broadcast(source, {0, device_count()})); };
       },
       {"broadcast", "devices[1]", "#count", "0 to #last"}},
      {"UndefinedTensor",
       to_devices([](Scene&) { return Tensor(); }, {0, 1}),
       {"broadcast", "tensor", "undefined"}},
      {"MemoryOfAnotherDevice",
       to_devices([](Scene& scene) { return claimed_for(good(scene), 1, KeepStorage::no); }, {0, 1}),
       {"broadcast", "tensor", "device:1", "device:0"}},
      {"StorageOfAnotherDevice",
       to_devices([](Scene& scene) { return claimed_for(good(scene), 1, KeepStorage::yes); }, {0, 1}),
       {"broadcast", "tensor", "device:1", "device:0"}},
      {"DeviceMemoryClaimedForTheHost",
       to_devices([](Scene& scene) { return claimed_for(good(scene), Device::host(), KeepStorage::no); },
                  {0, 1}),
       {"broadcast", "tensor", "host", "device:0"}},
      {"HostMemoryClaimedForADevice",
       to_devices(
           [](Scene& scene) { return claimed_for(scene.tensor(shape, Device::host()), 0, KeepStorage::no); },
           {0, 1}),
       {"broadcast", "tensor", "device:0", "host"}},
      {"TensorOnAnUnknownDevice",
       to_devices([](Scene& scene) { return claimed_for(good(scene), 999, KeepStorage::no); }, {0, 1}),
       {"broadcast", "tensor", "999", "0 to #last"}},
      {"MoreBytesThanTheAllocation",
       to_devices([](Scene& scene) { return oversized(good(scene), KeepStorage::no); }, {0, 1}),
       {"broadcast", "tensor", "1073741824 bytes"}},
      {"MoreBytesThanTheStorage",
       to_devices([](Scene& scene) { return oversized(good(scene), KeepStorage::yes); }, {0, 1}),
       {"broadcast", "tensor", "1073741824 bytes"}},
      {"BytesOfTheNextTensor",
       to_devices(
           [](Scene& scene) {
             return Tensor(TensorView(good(scene).data(), DType::float32, {256}, good(scene).device()));
           },
           {0, 1}),
       {"broadcast", "tensor", "1024 bytes", "allocation holds"}},
      {"NullAddress",
       to_devices([](Scene& scene) { return Tensor(TensorView(nullptr, good(scene).layout(), Device(0))); },
                  {1}),
       {"broadcast", "tensor", "null", "48 bytes"}},
  };
}
TUTTI_BAD_INPUT_SUITE(BroadcastToDevices, broadcast_to_devices);

std::vector<BadInput> broadcast_into_outputs() {
  return {
      {"NoOutputs",
       [](Scene& scene) -> std::function<void()> {
         return [source = good(scene)] { broadcast(source, TensorList{}); };
       },
       {"broadcast", "out", "empty", "at least one"}},
      {"UndefinedTensor",
       [](Scene& scene) -> std::function<void()> {
         return [out = good(scene)] { broadcast(Tensor(), {out}); };
       },
       {"broadcast", "tensor", "undefined"}},
      {"UndefinedOutput",
       into_output([](Scene&, const Tensor&) { return Tensor(); }),
       {"broadcast", "out[1]", "undefined"}},
      {"ElementType",
       into_output([](Scene& scene, const Tensor&) { return scene.tensor(shape, 1, DType::float16); }),
       {"broadcast", "out[1]", "float16", "float32"}},
      {"Sizes",
       into_output([](Scene& scene, const Tensor&) {
         return scene.tensor({3, 4}, 1);
       }),
       {"broadcast", "out[1]", "[3, 4]", "[4, 3]"}},
      {"Rank",
       into_output([](Scene& scene, const Tensor&) { return scene.tensor({12}, 1); }),
       {"broadcast", "out[1]", "[12]", "[4, 3]"}},
      {"OutputOnTheHost",
       into_output([](Scene& scene, const Tensor&) { return scene.tensor(shape, Device::host()); }),
       {"broadcast", "out[1]", "host", "device"}},
      {"OutputsOverlap",
       [](Scene& scene) -> std::function<void()> {
         const Tensor source = good(scene);
         const Tensor memory = scene.tensor({5, 3}, 1);
         const std::vector<Tensor> out{memory.narrow(0, 0, 4), memory.narrow(0, 1, 4)};
         return [=] { broadcast(source, out); };
       },
       {"broadcast", "out[0]", "out[1]", "overlaps"}},
      {"OutputNamedTwice",
       [](Scene& scene) -> std::function<void()> {
         const Tensor source = good(scene);
         const Tensor output = scene.tensor(shape, 1);
         return [=] { broadcast(source, {output, output}); };
       },
       {"broadcast", "out[0]", "out[1]", "overlaps"}},
      {"OutputOverlapsTensor",
       [](Scene& scene) -> std::function<void()> {
         const Tensor memory = scene.tensor({5, 3}, 0);
         const std::vector<Tensor> out{scene.tensor(shape, 1), memory.narrow(0, 1, 4)};
         return [=] { broadcast(memory.narrow(0, 0, 4), out); };
       },
       {"broadcast", "out[1]", "tensor", "overlaps"}},
      {"OutputIsTheTensorTransposed",
       [](Scene& scene) -> std::function<void()> {
         const Tensor source = scene.tensor({3, 3}, 0);
         return [=] { broadcast(source, {source.transpose(0, 1)}); };
       },
       {"broadcast", "out[0]", "tensor", "overlaps"}},
      {"OutputOverlapsItself",
       into_output([](Scene& scene, const Tensor&) {
         return scene.tensor(shape, 1, DType::float32, Placement::expanded);
       }),
       {"broadcast", "out[1]", "share memory"}},
      {"OutputInMemoryOfAnotherDevice",
       into_output([](Scene& scene, const Tensor&) {
         return claimed_for(scene.tensor(shape, 0), 1, KeepStorage::no);
       }),
       {"broadcast", "out[1]", "device:1", "device:0"}},
      {"OutputLargerThanItsAllocation",
       [](Scene& scene) -> std::function<void()> {
         const Tensor source = repeated(good(scene));
         const Tensor output = oversized(scene.tensor(shape, 1), KeepStorage::no);
         return [=] { broadcast(source, {output}); };
       },
       {"broadcast", "out[0]", "1073741824 bytes"}},
  };
}
TUTTI_BAD_INPUT_SUITE(BroadcastIntoOutputs, broadcast_into_outputs);

/// broadcast_coalesced({good, make_tensor(scene)}, {0, 1}).
template <class MakeTensor>
auto coalesced_source(MakeTensor make_second) {
  return [=](Scene& scene) -> std::function<void()> {
    const std::vector<Tensor> tensors{good(scene), make_second(scene)};
    return [=] { static_cast<void>(broadcast_coalesced(tensors, {0, 1})); };
  };
}

/// broadcast_coalesced({good, good}, {{good, good}, make_row(scene)}).
template <class MakeRow>
auto coalesced_row(MakeRow make_row) {
  return [=](Scene& scene) -> std::function<void()> {
    const std::vector<Tensor> tensors{good(scene), scene.tensor({7}, 0, DType::int8)};
    const std::vector<std::vector<Tensor>> out{{scene.tensor(shape, 0), scene.tensor({7}, 0, DType::int8)},
                                               make_row(scene, tensors)};
    return [=] { broadcast_coalesced(tensors, out); };
  };
}

using Row = std::vector<Tensor>;

std::vector<BadInput> broadcast_coalesced_lines() {
  return {
      {"NoDevices",
       [](Scene& scene) -> std::function<void()> {
         return [tensor = good(scene)] { static_cast<void>(broadcast_coalesced({tensor}, DeviceList{})); };
       },
       {"broadcast_coalesced", "devices", "empty"}},
      {"UnknownDevice",
       [](Scene& scene) -> std::function<void()> {
         return [tensor = good(scene)] {
           static_cast<void>(broadcast_coalesced({tensor}, DeviceList{1, device_count() + 1}));
         };
       },
       {"broadcast_coalesced", "devices[1]", "0 to #last"}},
      {"UndefinedTensor",
       coalesced_source([](Scene&) { return Tensor(); }),
       {"broadcast_coalesced", "tensors[1]", "undefined"}},
      {"TensorsOnSeveralDevices",
       coalesced_source([](Scene& scene) { return scene.tensor(shape, 1); }),
       {"broadcast_coalesced", "tensors[1]", "device:1", "device:0"}},
      {"TensorsOnHostAndDevice",
       coalesced_source([](Scene& scene) { return scene.tensor(shape, Device::host()); }),
       {"broadcast_coalesced", "tensors[1]", "host", "device:0"}},
      {"MemoryOfAnotherDevice",
       coalesced_source([](Scene& scene) { return claimed_for(scene.tensor(shape, 1), 0, KeepStorage::no); }),
       {"broadcast_coalesced", "tensors[1]", "device:0", "device:1"}},
      {"MoreBytesThanTheAllocation",
       coalesced_source([](Scene& scene) { return oversized(good(scene), KeepStorage::no); }),
       {"broadcast_coalesced", "tensors[1]", "1073741824 bytes"}},
      {"MoreBytesThanTheStorage",
       coalesced_source([](Scene& scene) { return oversized(good(scene), KeepStorage::yes); }),
       {"broadcast_coalesced", "tensors[1]", "1073741824 bytes"}},
      {"NoOutputs",
       [](Scene& scene) -> std::function<void()> {
         return [tensor = good(scene)] { broadcast_coalesced({tensor}, TensorLists{}); };
       },
       {"broadcast_coalesced", "out", "empty"}},
      {"TooFewOutputs",
       coalesced_row([](Scene& scene, const Row&) { return Row{scene.tensor(shape, 1)}; }),
       {"broadcast_coalesced", "out[1]", "1", "expected 2"}},
      {"TooManyOutputs",
       coalesced_row([](Scene& scene, const Row&) {
         return Row{scene.tensor(shape, 1), scene.tensor({7}, 1, DType::int8),
                    scene.tensor({7}, 1, DType::int8)};
       }),
       {"broadcast_coalesced", "out[1]", "3", "expected 2"}},
      {"UndefinedOutput",
       coalesced_row([](Scene& scene, const Row&) {
         return Row{scene.tensor(shape, 1), Tensor()};
       }),
       {"broadcast_coalesced", "out[1][1]", "undefined"}},
      {"OutputElementType",
       coalesced_row([](Scene& scene, const Row&) {
         return Row{scene.tensor(shape, 1), scene.tensor({7}, 1, DType::uint8)};
       }),
       {"broadcast_coalesced", "out[1][1]", "uint8", "int8"}},
      {"OutputSizes",
       coalesced_row([](Scene& scene, const Row&) {
         return Row{scene.tensor({3, 3}, 1), scene.tensor({7}, 1, DType::int8)};
       }),
       {"broadcast_coalesced", "out[1][0]", "[3, 3]", "[4, 3]"}},
      {"RowOnSeveralDevices",
       coalesced_row([](Scene& scene, const Row&) {
         return Row{scene.tensor(shape, 1), scene.tensor({7}, 0, DType::int8)};
       }),
       {"broadcast_coalesced", "out[1][1]", "device:0", "device:1"}},
      {"OutputsOnTheHost",
       coalesced_row([](Scene& scene, const Row&) {
         return Row{scene.tensor(shape, Device::host()), scene.tensor({7}, Device::host(), DType::int8)};
       }),
       {"broadcast_coalesced", "out[1][0]", "host"}},
      {"OutputInMemoryOfAnotherDevice",
       coalesced_row([](Scene& scene, const Row&) {
         return Row{claimed_for(scene.tensor(shape, 0), 1, KeepStorage::no),
                    scene.tensor({7}, 1, DType::int8)};
       }),
       {"broadcast_coalesced", "out[1][0]", "device:1", "device:0"}},
      {"OutputLargerThanItsAllocation",
       [](Scene& scene) -> std::function<void()> {
         const Tensor source = repeated(good(scene));
         const std::vector<Row> out{{oversized(scene.tensor(shape, 1), KeepStorage::no)}};
         return [=] { broadcast_coalesced({source}, out); };
       },
       {"broadcast_coalesced", "out[0][0]", "1073741824 bytes"}},
      {"OutputOverlapsTensor",
       coalesced_row([](Scene& scene, const Row& tensors) {
         const Tensor bytes(TensorView(tensors[0].data(), DType::int8, {7}, Device(0)));
         return Row{scene.tensor(shape, 0), bytes};
       }),
       {"broadcast_coalesced", "out[1][1]", "tensors[0]", "overlaps"}},
      {"OutputsOverlap",
       [](Scene& scene) -> std::function<void()> {
         const Tensor tensor = good(scene);
         const Tensor memory = scene.tensor({5, 3}, 1);
         const std::vector<std::vector<Tensor>> out{{memory.narrow(0, 0, 4)}, {memory.narrow(0, 1, 4)}};
         return [=] { broadcast_coalesced({tensor}, out); };
       },
       {"broadcast_coalesced", "out[0][0]", "out[1][0]", "overlaps"}},
      {"TensorsNamedTwiceAsOutputs",
       [](Scene& scene) -> std::function<void()> {
         const Row tensors{good(scene), scene.tensor({7}, 0, DType::int8)};
         const std::vector<Row> out{tensors, tensors};
         return [=] { broadcast_coalesced(tensors, out); };
       },
       {"broadcast_coalesced", "out[0][", "out[1][", "overlaps"}},
      {"OneTensorTwiceAmongOutputs",
       [](Scene& scene) -> std::function<void()> {
         const Row tensors{good(scene), scene.tensor({7}, 0, DType::int8)};
         const std::vector<Row> out{{scene.tensor(shape, 0), tensors[1]}, tensors};
         return [=] { broadcast_coalesced(tensors, out); };
       },
       {"broadcast_coalesced", "out[0][1]", "out[1][1]", "overlaps"}},
      {"StridedTensorTwiceAmongOutputs",
       [](Scene& scene) -> std::function<void()> {
         const Row tensors{scene.tensor(shape, 0, DType::float32, Placement::gapped)};
         const std::vector<Row> out{tensors, tensors};
         return [=] { broadcast_coalesced(tensors, out); };
       },
       {"broadcast_coalesced", "out[0][0]", "out[1][0]", "overlaps"}},
      {"OutputOverlapsItself",
       coalesced_row([](Scene& scene, const Row&) {
         return Row{scene.tensor(shape, 1, DType::float32, Placement::expanded),
                    scene.tensor({7}, 1, DType::int8)};
       }),
       {"broadcast_coalesced", "out[1][0]", "share memory"}},
      {"OutputOverlapsItselfAsItsTensorDoes",
       [](Scene& scene) -> std::function<void()> {
         const Tensor source = scene.tensor(shape, 0, DType::float32, Placement::expanded);
         const Tensor memory = scene.tensor(shape, 1);
         const Tensor output(memory.storage(), TensorView(memory.data(), source.layout(), Device(1)));
         return [=] { broadcast_coalesced({source}, std::vector<std::vector<Tensor>>{{output}}); };
       },
       {"broadcast_coalesced", "out[0][0]", "share memory"}},
  };
}
TUTTI_BAD_INPUT_SUITE(BroadcastCoalescedArguments, broadcast_coalesced_lines);

}  // namespace
}  // namespace tutti::test
