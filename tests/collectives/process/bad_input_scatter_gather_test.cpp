// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/bad_input.hpp"
#include "support/collectives/collective_test.hpp"

namespace tutti::test {
namespace {

const Sizes shape{4, 6};

Tensor good(Scene& scene, int device = 0) {
  return scene.tensor(shape, device);
}

/// scatter(good, {0, 1}, chunk_sizes, dim).
auto cut(Sizes chunk_sizes, int dim) {
  return [=](Scene& scene) -> std::function<void()> {
    return [source = good(scene), chunk_sizes, dim] {
      static_cast<void>(scatter(source, {0, 1}, chunk_sizes, dim));
    };
  };
}

template <class MakeTensor>
auto scatter_source(MakeTensor make_source) {
  return [=](Scene& scene) -> std::function<void()> {
    return [source = make_source(scene)] { static_cast<void>(scatter(source, {0, 1})); };
  };
}

/// scatter(good, {a good chunk, make_output(scene, source)}, 0).
template <class MakeOutput>
auto into_chunks(MakeOutput make_output) {
  return [=](Scene& scene) -> std::function<void()> {
    const Tensor source = good(scene);
    const std::vector<Tensor> out{scene.tensor({2, 6}, 1), make_output(scene, source)};
    return [=] { scatter(source, out); };
  };
}

auto with_streams(std::vector<int> stream_devices) {
  return [=](Scene& scene) -> std::function<void()> {
    std::vector<Stream> streams;
    for (const int device : stream_devices) streams.emplace_back(device);
    return [source = good(scene), streams] { static_cast<void>(scatter(source, {0, 1}, {}, 0, streams)); };
  };
}

std::vector<BadInput> scatter_lines() {
  return {
      {"NoDevices",
       [](Scene& scene) -> std::function<void()> {
         return [source = good(scene)] { static_cast<void>(scatter(source, DeviceList{}, {}, 0)); };
       },
       {"scatter", "devices", "empty"}},
      {"UnknownDevice",
       [](Scene& scene) -> std::function<void()> {
         return [source = good(scene)] { static_cast<void>(scatter(source, {device_count(), 0})); };
       },
       {"scatter", "devices[0]", "#count", "0 to #last"}},
      {"UndefinedTensor",
       scatter_source([](Scene&) { return Tensor(); }),
       {"scatter", "tensor", "undefined"}},
      {"MemoryOfAnotherDevice",
       scatter_source([](Scene& scene) { return claimed_for(good(scene), 1, KeepStorage::no); }),
       {"scatter", "tensor", "device:1", "device:0"}},
      {"StorageOfAnotherDevice",
       scatter_source([](Scene& scene) { return claimed_for(good(scene), 1, KeepStorage::yes); }),
       {"scatter", "tensor", "device:1", "device:0"}},
      {"MoreBytesThanTheAllocation",
       scatter_source([](Scene& scene) { return oversized(good(scene), KeepStorage::no); }),
       {"scatter", "tensor", "1073741824 bytes"}},
      {"MoreBytesThanTheStorage",
       scatter_source([](Scene& scene) { return oversized(good(scene), KeepStorage::yes); }),
       {"scatter", "tensor", "1073741824 bytes"}},
      {"DimensionTooLarge", cut({}, 2), {"scatter", "dim is 2", "-2 to 1"}},
      {"DimensionTooSmall", cut({}, -3), {"scatter", "dim is -3", "-2 to 1"}},
      {"ScalarTensor",
       scatter_source([](Scene& scene) { return scene.tensor({}, 0); }),
       {"scatter", "dim is 0", "without dimensions"}},
      {"NegativeChunkSize", cut({-1, 5}, 0), {"scatter", "chunk_sizes[0]", "-1"}},
      {"TooFewChunkSizes", cut({4}, 0), {"scatter", "chunk_sizes", "1", "2"}},
      {"TooManyChunkSizes", cut({1, 1, 2}, 0), {"scatter", "chunk_sizes", "3", "2"}},
      {"ChunkSizesTooSmall", cut({1, 2}, 0), {"scatter", "chunk_sizes", "3", "4"}},
      {"ChunkSizesTooLarge", cut({3, 4}, 1), {"scatter", "chunk_sizes", "7", "6"}},
      {"ChunkSizesOverflow",
       cut({std::int64_t{1} << 62, std::int64_t{1} << 62}, 0),
       {"scatter", "chunk_sizes"}},
      {"StreamOnTheWrongDevice", with_streams({0, 0}), {"scatter", "streams[1]", "device 0", "device:1"}},
      {"TooFewStreams", with_streams({0}), {"scatter", "streams", "1", "2"}},
      {"TooManyStreams", with_streams({0, 1, 1}), {"scatter", "streams has 3 entries", "one per output, 2"}},
  };
}
TUTTI_BAD_INPUT_SUITE(ScatterToDevices, scatter_lines);

std::vector<BadInput> scatter_into_lines() {
  return {
      {"NoOutputs",
       [](Scene& scene) -> std::function<void()> {
         return [source = good(scene)] { scatter(source, TensorList{}, 0); };
       },
       {"scatter", "out", "empty"}},
      {"UndefinedOutput",
       into_chunks([](Scene&, const Tensor&) { return Tensor(); }),
       {"scatter", "out[1]", "undefined"}},
      {"ElementType",
       into_chunks([](Scene& scene, const Tensor&) {
         return scene.tensor({2, 6}, 1, DType::int32);
       }),
       {"scatter", "out[1]", "int32", "float32"}},
      {"Rank",
       into_chunks([](Scene& scene, const Tensor&) { return scene.tensor({12}, 1); }),
       {"scatter", "out[1]", "[12]", "2 dimensions"}},
      {"OtherSizes",
       into_chunks([](Scene& scene, const Tensor&) {
         return scene.tensor({2, 5}, 1);
       }),
       {"scatter", "out[1]", "[2, 5]", "6"}},
      {"SizesDoNotAddUp",
       into_chunks([](Scene& scene, const Tensor&) {
         return scene.tensor({1, 6}, 1);
       }),
       {"scatter", "out", "3", "4"}},
      {"OutputOnTheHost",
       into_chunks([](Scene& scene, const Tensor&) {
         return scene.tensor({2, 6}, Device::host());
       }),
       {"scatter", "out[1]", "host"}},
      {"OutputOverlapsTensor",
       into_chunks([](Scene&, const Tensor& source) { return source.narrow(0, 1, 2); }),
       {"scatter", "out[1]", "tensor", "overlaps"}},
      {"OutputsOverlap",
       [](Scene& scene) -> std::function<void()> {
         const Tensor source = good(scene);
         const Tensor memory = scene.tensor({3, 6}, 1);
         const std::vector<Tensor> out{memory.narrow(0, 0, 2), memory.narrow(0, 1, 2)};
         return [=] { scatter(source, out); };
       },
       {"scatter", "out[0]", "out[1]", "overlaps"}},
      {"OutputOverlapsItself",
       into_chunks([](Scene& scene, const Tensor&) {
         return scene.tensor({2, 6}, 1, DType::float32, Placement::expanded);
       }),
       {"scatter", "out[1]", "share memory"}},
      {"DimensionOutOfRange",
       [](Scene& scene) -> std::function<void()> {
         const Tensor source = good(scene);
         const Tensor output = good(scene, 1);
         return [=] { scatter(source, {output}, 2); };
       },
       {"scatter", "dim is 2", "-2 to 1"}},
      {"StreamOnTheWrongDevice",
       [](Scene& scene) -> std::function<void()> {
         const Tensor source = good(scene);
         const Tensor output = good(scene, 1);
         return [=] { scatter(source, {output}, 0, {Stream(0)}); };
       },
       {"scatter", "streams[0]", "device 0", "device:1"}},
      {"OutputInMemoryOfAnotherDevice",
       into_chunks([](Scene& scene, const Tensor&) {
         return claimed_for(scene.tensor({2, 6}, 0), 1, KeepStorage::no);
       }),
       {"scatter", "out[1]", "device:1", "device:0"}},
      {"OutputLargerThanItsAllocation",
       [](Scene& scene) -> std::function<void()> {
         const Tensor source = repeated(good(scene));
         const Tensor output = oversized(good(scene, 1), KeepStorage::no);
         return [=] { scatter(source, {output}); };
       },
       {"scatter", "out[0]", "1073741824 bytes"}},
  };
}
TUTTI_BAD_INPUT_SUITE(ScatterIntoOutputs, scatter_into_lines);

/// gather({good, make_input(scene)}, dim, 0).
template <class MakeInput>
auto second_tensor(MakeInput make_input, int dim = 0) {
  return [=](Scene& scene) -> std::function<void()> {
    const std::vector<Tensor> tensors{good(scene), make_input(scene)};
    return [=] { static_cast<void>(gather(tensors, dim, Device(0))); };
  };
}

/// gather({good, good}, make_output(scene, tensors), 0).
template <class MakeOutput>
auto gathered_into(MakeOutput make_output) {
  return [=](Scene& scene) -> std::function<void()> {
    const std::vector<Tensor> tensors{good(scene, 0), good(scene, 1)};
    const Tensor output = make_output(scene, tensors);
    return [=] { gather(tensors, output); };
  };
}

std::vector<BadInput> gather_lines() {
  return {
      {"SizesThatAddUpToTooMuch",
       [](Scene&) -> std::function<void()> {
         const auto huge = [](int device) {
           return Tensor(TensorView(nullptr, DType::uint8, {std::int64_t{1} << 62, 0}, Device(device)));
         };
         return [inputs = std::vector{huge(0), huge(1)}] { static_cast<void>(gather(inputs, 0)); };
       },
       {"gather", "sizes of tensors along dimension 0", "more than 2^63 - 1"}},
      {"NoTensors",
       [](Scene&) -> std::function<void()> {
         return [] { static_cast<void>(gather(TensorList{}, 0, Device(0))); };
       },
       {"gather", "tensors", "empty"}},
      {"UnknownDestination",
       [](Scene& scene) -> std::function<void()> {
         return [tensor = good(scene)] { static_cast<void>(gather({tensor}, 0, Device(device_count()))); };
       },
       {"gather", "destination", "#count", "0 to #last"}},
      {"UndefinedTensor",
       second_tensor([](Scene&) { return Tensor(); }),
       {"gather", "tensors[1]", "undefined"}},
      {"ElementType",
       second_tensor([](Scene& scene) { return scene.tensor(shape, 1, DType::bfloat16); }),
       {"gather", "tensors[1]", "bfloat16", "float32"}},
      {"OtherSizes",
       second_tensor([](Scene& scene) {
         return scene.tensor({4, 5}, 1);
       }),
       {"gather", "tensors[1]", "[4, 5]", "[4, 6]"}},
      {"Rank",
       second_tensor([](Scene& scene) { return scene.tensor({24}, 1); }),
       {"gather", "tensors[1]", "[24]", "2 dimensions"}},
      {"TensorOnTheHost",
       second_tensor([](Scene& scene) { return scene.tensor(shape, Device::host()); }),
       {"gather", "tensors[1]", "host"}},
      {"DimensionTooLarge",
       second_tensor([](Scene& scene) { return good(scene, 1); }, 2),
       {"gather", "dim is 2", "-2 to 1"}},
      {"DimensionTooSmall",
       second_tensor([](Scene& scene) { return good(scene, 1); }, -3),
       {"gather", "dim is -3", "-2 to 1"}},
      {"ScalarAmongVectors",
       [](Scene& scene) -> std::function<void()> {
         return [scalar = scene.tensor({}, 0), vector = scene.tensor({1}, 0)] {
           static_cast<void>(gather({scalar, vector}, 0, Device(0)));
         };
       },
       {"gather", "dim is 0", "without dimensions"}},
      {"MemoryOfAnotherDevice",
       second_tensor([](Scene& scene) { return claimed_for(good(scene, 0), 1, KeepStorage::no); }),
       {"gather", "tensors[1]", "device:1", "device:0"}},
      {"StorageOfAnotherDevice",
       second_tensor([](Scene& scene) { return claimed_for(good(scene, 0), 1, KeepStorage::yes); }),
       {"gather", "tensors[1]", "device:1", "device:0"}},
      {"MoreBytesThanTheAllocation",
       [](Scene& scene) -> std::function<void()> {
         return [tensor = oversized(good(scene), KeepStorage::no)] {
           static_cast<void>(gather({tensor}, 0, Device(1)));
         };
       },
       {"gather", "tensors[0]", "1073741824 bytes"}},
      {"MoreBytesThanTheStorage",
       [](Scene& scene) -> std::function<void()> {
         return [tensor = oversized(good(scene), KeepStorage::yes)] {
           static_cast<void>(gather({tensor}, 0, Device(1)));
         };
       },
       {"gather", "tensors[0]", "1073741824 bytes"}},
      {"UndefinedOutput",
       gathered_into([](Scene&, const auto&) { return Tensor(); }),
       {"gather", "out", "undefined"}},
      {"OutputElementType",
       gathered_into([](Scene& scene, const auto&) {
         return scene.tensor({8, 6}, 0, DType::uint8);
       }),
       {"gather", "out", "uint8", "float32"}},
      {"OutputSizes",
       gathered_into([](Scene& scene, const auto&) {
         return scene.tensor({7, 6}, 0);
       }),
       {"gather", "out", "[7, 6]", "[8, 6]"}},
      {"OutputOverlapsItself",
       gathered_into([](Scene& scene, const auto&) {
         return scene.tensor({8, 6}, 0, DType::float32, Placement::expanded);
       }),
       {"gather", "out", "share memory"}},
      {"OutputOverlapsTensor",
       [](Scene& scene) -> std::function<void()> {
         const Tensor memory = scene.tensor({8, 6}, 0);
         return [tensors = std::vector<Tensor>{good(scene, 1), memory.narrow(0, 1, 4)}, memory] {
           gather(tensors, memory);
         };
       },
       {"gather", "out", "tensors[1]", "overlaps"}},
      {"OutputInMemoryOfAnotherDevice",
       gathered_into([](Scene& scene, const auto&) {
         return claimed_for(scene.tensor({8, 6}, 0), 1, KeepStorage::no);
       }),
       {"gather", "out", "device:1", "device:0"}},
      {"OutputLargerThanItsAllocation",
       [](Scene& scene) -> std::function<void()> {
         const Tensor tensor = repeated(good(scene));
         const Tensor output = oversized(good(scene, 1), KeepStorage::no);
         return [=] { gather({tensor}, output); };
       },
       {"gather", "out", "1073741824 bytes"}},
  };
}
TUTTI_BAD_INPUT_SUITE(GatherArguments, gather_lines);

}  // namespace
}  // namespace tutti::test
