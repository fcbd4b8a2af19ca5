// SPDX-License-Identifier: Apache-2.0
#include "tutti/tensor.hpp"

#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/values/random.hpp"
#include "support/values/small_tensors.hpp"
#include "support/values/test_tensor.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::ascending;
using test::places;
using test::refuses;
using test::Sizes;
using test::sizes_of;

constexpr auto invalid = ErrorCode::invalid_argument;

/// 0, 1, 2, … in index order.
Tensor counting(const Sizes& sizes, Device device = Device::host()) {
  return tutti::tensor(ascending(test::element_count(sizes)), sizes, {.device = device});
}

TEST(Tensor, ReadsElementsOfItsOwnTypeOnly) {
  const Tensor tensor = tutti::tensor(std::vector<float>{1, 2}, {2});
  EXPECT_EQ(tensor.data<float>()[1], 2.0F);
  EXPECT_TRUE(refuses([&] { static_cast<void>(tensor.data<double>()); }, invalid,
                      {"Tensor::data", "T is float64", "holds float32"}));
  EXPECT_TRUE(
      refuses([&] { static_cast<void>(tensor.to_vector<std::int32_t>()); }, invalid, {"Tensor::to_vector"}));
  EXPECT_TRUE(refuses([&] { static_cast<void>(tensor.item<float>()); }, invalid,
                      {"Tensor::item", "sizes [2]", "one element"}));
  EXPECT_TRUE(
      refuses([&] { static_cast<void>(tensor.item<double>()); }, invalid, {"Tensor::item", "float64"}));
  EXPECT_TRUE(refuses([] { static_cast<void>(zeros({0}).item<float>()); }, invalid, {"sizes [0]"}));
  EXPECT_EQ(tensor.narrow(0, 1, 1).item<float>(), 2.0F);
  EXPECT_EQ(full({}, 7, {.dtype = DType::int16, .device = Device(0)}).item<std::int16_t>(), 7);
}

TEST(Tensor, UndefinedIsRefusedByEveryFunction) {
  const Tensor undefined;
  EXPECT_FALSE(undefined.defined());
  EXPECT_FALSE(undefined.is_pinned());
  const std::vector<std::function<void()>> calls{
      [&] { static_cast<void>(undefined.to(Device(0))); },
      [&] { static_cast<void>(undefined.to(DType::int8)); },
      [&] { undefined.copy_(zeros({1})); },
      [&] { zeros({1}).copy_(undefined); },
      [&] { static_cast<void>(undefined.contiguous()); },
      [&] { static_cast<void>(undefined.narrow(0, 0, 1)); },
      [&] { static_cast<void>(undefined.view({1})); },
      [&] { static_cast<void>(undefined.transpose(0, 1)); },
      [&] { undefined.fill_(1); },
      [&] { static_cast<void>(undefined.pin_memory()); },
      [&] { static_cast<void>(undefined.to_bytes()); },
      [&] { static_cast<void>(undefined.item<float>()); },
      [&] { static_cast<void>(undefined.data<float>()); },
      [&] { static_cast<void>(undefined.copy_from(std::vector<float>(1))); },
      [&] { undefined.copy_to(std::array<float, 1>{}); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i)
    EXPECT_TRUE(refuses(calls[i], invalid, {"is undefined"})) << i;
}

TEST(Tensor, CopiesShareMemory) {
  const Tensor tensor = zeros({4}, {.dtype = DType::int32});
  const Tensor copy = tensor;  // NOLINT(performance-unnecessary-copy-initialization): the copy is the subject
  copy.fill_(3);
  EXPECT_EQ(tensor.to_vector<std::int32_t>(), (std::vector<std::int32_t>{3, 3, 3, 3}));
  EXPECT_EQ(copy.storage(), tensor.storage());
}

TEST(Tensor, NarrowSharesAPart) {
  for (const Device device : places()) {
    const Tensor tensor = counting({3, 4}, device);
    const Tensor rows = tensor.narrow(0, 1, 2);
    EXPECT_EQ(rows.to_vector<std::int32_t>(), (std::vector<std::int32_t>{4, 5, 6, 7, 8, 9, 10, 11}));
    EXPECT_TRUE(rows.is_contiguous());
    const Tensor columns = tensor.narrow(-1, 1, 2);
    EXPECT_EQ(columns.to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 2, 5, 6, 9, 10}));
    EXPECT_FALSE(columns.is_contiguous());
    columns.fill_(-1);
    EXPECT_EQ(tensor.to_vector<std::int32_t>(),
              (std::vector<std::int32_t>{0, -1, -1, 3, 4, -1, -1, 7, 8, -1, -1, 11}));
    EXPECT_EQ(tensor.narrow(0, 0, 3).to_vector<std::int32_t>(), tensor.to_vector<std::int32_t>());
  }
}

TEST(Tensor, NarrowRefusesWhatLeavesTheTensor) {
  const Tensor tensor = counting({3, 4});
  const auto narrow = [&](int dimension, std::int64_t start, std::int64_t length) {
    return
        [&tensor, dimension, start, length] { static_cast<void>(tensor.narrow(dimension, start, length)); };
  };
  EXPECT_TRUE(refuses(narrow(0, 2, 2), invalid,
                      {"Tensor::narrow", "start is 2", "length is 2", "3 indices", "dimension 0"}));
  EXPECT_TRUE(refuses(narrow(1, -1, 2), invalid, {"start is -1"}));
  EXPECT_TRUE(refuses(narrow(1, 0, -1), invalid, {"length is -1"}));
  EXPECT_TRUE(refuses(narrow(1, 1, std::numeric_limits<std::int64_t>::max()), invalid, {"start is 1"}));
  EXPECT_TRUE(refuses(narrow(2, 0, 1), invalid, {"dimension is 2", "-2 to 1"}));
}

TEST(Tensor, TransposeExchangesDimensions) {
  const Tensor tensor = counting({2, 3});
  const Tensor transposed = tensor.transpose(0, -1);
  EXPECT_EQ(sizes_of(transposed), (Sizes{3, 2}));
  EXPECT_EQ(transposed.to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(transposed.transpose(1, 0).to_vector<std::int32_t>(), ascending(6));
  EXPECT_EQ(tensor.transpose(1, 1).to_vector<std::int32_t>(), ascending(6));
  EXPECT_TRUE(
      refuses([&] { static_cast<void>(tensor.transpose(0, 2)); }, invalid, {"Tensor::transpose", "b is 2"}));
  EXPECT_TRUE(refuses([&] { static_cast<void>(tensor.transpose(-3, 0)); }, invalid, {"a is -3"}));
}

TEST(Tensor, ViewKeepsElementsInOrder) {
  for (const Device device : places()) {
    const Tensor tensor = counting({2, 3, 4}, device);
    EXPECT_EQ(tensor.view({4, 6}).to_vector<std::int32_t>(), ascending(24));
    EXPECT_EQ(sizes_of(tensor.view({-1})), (Sizes{24}));
    EXPECT_EQ(sizes_of(tensor.view({2, -1, 2})), (Sizes{2, 6, 2}));
    EXPECT_EQ(sizes_of(tensor.view({1, 24, 1})), (Sizes{1, 24, 1}));
    EXPECT_EQ(tensor.view({24}).data(), tensor.data());
  }
  EXPECT_EQ(sizes_of(counting({1}).view({})), Sizes{});
  EXPECT_EQ(sizes_of(counting({0, 3}).view({5, 0})), (Sizes{5, 0}));
  EXPECT_EQ(sizes_of(counting({0, 3}).view({-1, 3})), (Sizes{0, 3}));
}

TEST(Tensor, ViewRefusesOtherCounts) {
  const Tensor tensor = counting({2, 3});
  const auto view = [](const Tensor& source, const Sizes& sizes) {
    return [source, sizes] { static_cast<void>(source.view(sizes)); };
  };
  EXPECT_TRUE(
      refuses(view(tensor, {7}), invalid, {"Tensor::view", "[7]", "[2, 3]", "numbers of elements differ"}));
  EXPECT_TRUE(refuses(view(tensor, {4, -1}), invalid, {"in place of -1"}));
  EXPECT_TRUE(refuses(view(tensor, {-1, -1}), invalid, {"only one size may be -1"}));
  EXPECT_TRUE(refuses(view(tensor, {-2, 3}), invalid, {"negative"}));
  EXPECT_TRUE(refuses(view(counting({0}), {0, -1}), invalid, {"-1 is ambiguous"}));
  EXPECT_TRUE(refuses(view(tensor, {1, 1, 1, 1, 1, 1, 1, 1, 6}), invalid, {"more dimensions"}));
  EXPECT_TRUE(refuses(view(tensor, {std::int64_t{1} << 40, std::int64_t{1} << 40}), invalid, {"differ"}));
  EXPECT_TRUE(refuses(view(tensor.transpose(0, 1), {6}), invalid, {"strides [1, 3]", "contiguous first"}));
}

/// The strides under which `offsets` are the elements of `sizes` in index order, if there are any.
bool has_strides(const std::vector<std::int64_t>& offsets, const Sizes& sizes) {
  Sizes strides(sizes.size(), 0);
  std::int64_t step = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] > 1) strides[d] = offsets[static_cast<std::size_t>(step)] - offsets[0];
    step *= sizes[d];
  }
  for (std::size_t e = 0; e < offsets.size(); ++e) {
    std::int64_t offset = offsets[0];
    auto rest = static_cast<std::int64_t>(e);
    for (std::size_t d = sizes.size(); d-- > 0;) {
      offset += rest % sizes[d] * strides[d];
      rest /= sizes[d];
    }
    if (offset != offsets[e]) return false;
  }
  return true;
}

/// Random factors of `count`, some of them 1.
Sizes random_factors(test::Random& random, std::int64_t count) {
  Sizes sizes;
  while (count > 1 && sizes.size() < 5) {
    const std::int64_t factor = random.between(1, std::min<std::int64_t>(count, 6));
    if (count % factor != 0) continue;
    sizes.push_back(factor);
    count /= factor;
  }
  if (count > 1 || sizes.empty()) sizes.push_back(count);
  return sizes;
}

TEST(Tensor, ViewWorksExactlyWhereStridesAllowIt) {
  const std::vector<std::int32_t> memory = ascending(4096);
  test::Random random(test::test_seed());
  int viewed = 0;
  int refused = 0;
  for (std::int64_t round = 0; round < test::scaled(10'000); ++round) {
    // Random strides rarely allow a view of other sizes; strides that continue one another often do.
    Sizes sizes;
    Sizes strides;
    std::int64_t stride = random.between(0, 2);
    for (std::int64_t d = random.between(0, 4); d > 0; --d) {
      sizes.insert(sizes.begin(), random.between(1, 4));
      strides.insert(strides.begin(), stride);
      stride = random.one_in(3) ? random.between(0, 20) : stride * sizes.front();
    }
    auto* const data = const_cast<std::int32_t*>(memory.data());  // only read
    const Tensor tensor(TensorView(data, DType::int32, sizes, strides, Device::host()));
    const std::vector<std::int32_t> elements = tensor.to_vector<std::int32_t>();
    const Sizes wanted = random_factors(random, tensor.numel());
    SCOPED_TRACE(to_string(sizes) + " with strides " + to_string(strides) + " as " + to_string(wanted));
    if (has_strides({elements.begin(), elements.end()}, wanted)) {
      ASSERT_EQ(tensor.view(wanted).to_vector<std::int32_t>(), elements);
      ++viewed;
    } else {
      ASSERT_THROW(static_cast<void>(tensor.view(wanted)), Error);
      ++refused;
    }
  }
  EXPECT_GT(viewed, 100);
  EXPECT_GT(refused, 100);
}

TEST(Tensor, ContiguousCopiesOnlyWhatIsNot) {
  for (const Device device : places()) {
    const Tensor tensor = counting({2, 3, 2, 2}, device);
    EXPECT_EQ(tensor.contiguous().data(), tensor.data());
    const Tensor images = tensor.contiguous(MemoryFormat::channels_last);
    EXPECT_NE(images.data(), tensor.data());
    EXPECT_TRUE(images.is_channels_last());
    EXPECT_EQ(images.to_vector<std::int32_t>(), ascending(24));
    EXPECT_EQ(images.contiguous(MemoryFormat::channels_last).data(), images.data());
    EXPECT_EQ(images.contiguous().to_vector<std::int32_t>(), ascending(24));
    const Tensor transposed = tensor.view({4, 6}).transpose(0, 1);
    EXPECT_TRUE(transposed.contiguous().is_contiguous());
    EXPECT_EQ(transposed.contiguous().to_vector<std::int32_t>(), transposed.to_vector<std::int32_t>());
  }
  EXPECT_TRUE(refuses(
      [] {
        static_cast<void>(counting({2, 3}).contiguous(MemoryFormat::channels_last));
      },
      invalid, {"channels_last"}));
}

TEST(Tensor, FillsOnlyItsOwnElements) {
  using test::Placement;
  for (const Device device : places()) {
    for (const DType dtype : all_dtypes) {
      for (const Placement placement : {Placement::contiguous, Placement::misaligned, Placement::gapped,
                                        Placement::transposed, Placement::channels_last}) {
        const auto target = test::TestTensor::poisoned(dtype, {2, 3, 4, 5}, device, placement);
        target.tensor().fill_(1);
        EXPECT_TRUE(target.holds(test::read(ones({2, 3, 4, 5}, {.dtype = dtype}))))
            << name_of(dtype) << ", " << name_of(placement) << " on " << to_string(device);
      }
    }
  }
}

TEST(Tensor, FillRefusesAnUnknownDevice) {
  const Tensor nowhere(TensorView(reinterpret_cast<void*>(64), DType::float32, {1}, Device(99)));
  EXPECT_TRUE(refuses([&] { nowhere.fill_(0); }, invalid, {"Tensor::fill_", "99"}));
}

TEST(Tensor, BlobIsReleasedOnceWithItsLastOwner) {
  std::vector<float> memory{1, 2, 3, 4};
  int releases = 0;
  {
    std::optional<Tensor> tensor = from_blob(memory.data(), {2, 2}, {}, [&](void* data) {
      EXPECT_EQ(data, memory.data());
      ++releases;
    });
    EXPECT_EQ(tensor->data(), memory.data());
    EXPECT_EQ(tensor->storage()->bytes(), 16U);
    const Tensor row = tensor->narrow(0, 1, 1);
    tensor.reset();
    EXPECT_EQ(releases, 0);
    EXPECT_EQ(row.to_vector<float>(), (std::vector<float>{3, 4}));
  }
  EXPECT_EQ(releases, 1);
  EXPECT_NO_THROW(static_cast<void>(from_blob(memory.data(), {4}, {}, nullptr)));
}

TEST(Tensor, BlobOnAnUnknownDeviceIsRefusedAndNotReleased) {
  int releases = 0;
  void* const data = reinterpret_cast<void*>(64);
  EXPECT_TRUE(refuses(
      [&] { static_cast<void>(from_blob(data, {1}, {.device = Device(99)}, [&](void*) { ++releases; })); },
      invalid, {"from_blob", "99"}));
  EXPECT_EQ(releases, 0);
}

TEST(Tensor, BlobsAreTheCallersMemory) {
  std::vector<std::int32_t> memory = ascending(6);
  const Tensor tensor = from_blob(memory.data(), {2, 3}, {.dtype = DType::int32});
  EXPECT_EQ(tensor.data(), memory.data());
  EXPECT_TRUE(tensor.device().is_host());
  const Tensor turned = from_blob(memory.data(), {3, 2}, {.dtype = DType::int32}, {1, 3});
  EXPECT_EQ(turned.to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 3, 1, 4, 2, 5}));
  turned.fill_(7);
  EXPECT_EQ(memory, std::vector<std::int32_t>(6, 7));
  EXPECT_TRUE(
      from_blob(memory.data(), {1, 2, 1, 3}, {.format = MemoryFormat::channels_last}).is_channels_last());
  const Tensor spread = from_blob(memory.data(), {5}, {.dtype = DType::int32}, {0});
  EXPECT_EQ(spread.to_vector<std::int32_t>(), std::vector<std::int32_t>(5, memory[0]));
  EXPECT_EQ(from_blob(memory.data(), {}, {}, {}).dim(), 0);
  EXPECT_EQ(tutti::tensor(std::vector{7}, {}).dim(), 0);
  EXPECT_EQ(from_blob(nullptr, {0}).numel(), 0);

  const Tensor owned = counting({4}, Device(0));
  const Tensor there = from_blob(owned.data(), {2, 2}, {.dtype = DType::int32, .device = Device(0)});
  EXPECT_EQ(there.to_vector<std::int32_t>(), ascending(4));
}

TEST(Tensor, BlobsThatCannotBeAreRefused) {
  std::vector<float> memory(4);
  const auto refuse = [](auto make, const std::vector<std::string>& fragments) {
    EXPECT_TRUE(refuses([&] { static_cast<void>(make()); }, invalid, fragments));
  };
  refuse([] { return from_blob(nullptr, {4}); }, {"from_blob: data is nullptr", "4 elements"});
  refuse([&] { return from_blob(reinterpret_cast<std::byte*>(memory.data()) + 1, {1}); },
         {"from_blob: data is 0x", "multiple of the 4 bytes"});
  refuse([&] { return from_blob(memory.data(), {-1}); }, {"from_blob: sizes[0] is -1"});
  refuse([&] { return from_blob(memory.data(), {2, 2}, {}, {1}); }, {"from_blob: "});
  const Tensor owned = counting({4}, Device(0));
  refuse([&] { return from_blob(owned.data(), {4}); }, {"options.device is", "memory of device:0"});
  if (device_count() > 1) {
    refuse([&] { return from_blob(owned.data(), {4}, {.device = Device(1)}); },
           {"from_blob: options.device is device:1", "memory of device:0"});
  }
}

TEST(Tensor, CopiesToAndFromMemoryOfTheCallers) {
  for (const Device device : {Device::host(), Device(0)}) {
    const Tensor tensor = zeros({2, 3}, {.dtype = DType::int32, .device = device});
    EXPECT_EQ(&tensor.copy_from(ascending(6)), &tensor);
    std::array<std::int32_t, 6> values{};
    tensor.transpose(0, 1).copy_to(values);
    EXPECT_EQ(values, (std::array<std::int32_t, 6>{0, 3, 1, 4, 2, 5}));
    tensor.transpose(0, 1).copy_from(std::span<const std::int32_t>(values));
    tensor.copy_to(std::span(values));
    EXPECT_EQ(values, (std::array<std::int32_t, 6>{0, 1, 2, 3, 4, 5}));

    std::vector<float> others(6);
    EXPECT_TRUE(refuses([&] { tensor.copy_to(others); }, invalid, {"Tensor::copy_to", "float32", "int32"}));
    EXPECT_TRUE(refuses([&] { tensor.copy_from(others); }, invalid, {"Tensor::copy_from", "float32"}));
    EXPECT_TRUE(refuses([&] { tensor.copy_from(ascending(5)); }, invalid,
                        {"Tensor::copy_from: values has 5 elements, expected the tensor's 6"}));
    EXPECT_TRUE(refuses([&] { tensor.copy_to(std::span(values).first(5)); }, invalid,
                        {"Tensor::copy_to: values has 5 elements, expected the tensor's 6"}));
  }
}

TEST(Tensor, ViewsOwnNothing) {
  std::vector<std::int32_t> memory = ascending(6);
  const Tensor tensor(TensorView(memory.data(), DType::int32, {2, 3}, Device::host()));
  EXPECT_FALSE(static_cast<bool>(tensor.storage()));
  tensor.record_stream(current_stream(0));  // has nothing to record, and must not fail
  tensor.narrow(0, 0, 1).fill_(9);
  EXPECT_EQ(memory, (std::vector<std::int32_t>{9, 9, 9, 3, 4, 5}));
}

TEST(Tensor, PinsHostMemory) {
  const Tensor tensor = counting({2, 3, 2, 2}).contiguous(MemoryFormat::channels_last);
  EXPECT_FALSE(tensor.is_pinned());
  const Tensor pinned = tensor.pin_memory();
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_TRUE(pinned.is_channels_last());
  EXPECT_TRUE(pinned.device().is_host());
  EXPECT_EQ(pinned.to_vector<std::int32_t>(), ascending(24));
  EXPECT_EQ(pinned.pin_memory().data(), pinned.data());
  EXPECT_TRUE(pinned.narrow(0, 1, 1).is_pinned());
  // Also where the memory came without its storage.
  EXPECT_TRUE(Tensor(pinned.view()).is_pinned());
  EXPECT_TRUE(empty({8}, {.host_memory = HostMemory::pinned}).is_pinned());
  const Tensor on_device = empty({8}, {.device = Device(0)});
  EXPECT_FALSE(on_device.is_pinned());
  EXPECT_TRUE(refuses([&] { static_cast<void>(on_device.pin_memory()); }, invalid,
                      {"Tensor::pin_memory", "device:0", "expected host"}));
}

TEST(Tensor, GivesDeviceMemoryBack) {
  const std::size_t bytes = 1 << 20;
  void* first = nullptr;
  for (int round = 0; round < 50; ++round) {
    const Tensor tensor =
        empty({static_cast<std::int64_t>(bytes)}, {.dtype = DType::uint8, .device = Device(0)});
    if (round == 0) first = tensor.data();
    EXPECT_EQ(tensor.data(), first);  // the cache hands the same block out again
  }
}

}  // namespace
}  // namespace tutti
