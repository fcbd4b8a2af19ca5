// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/collective_test.hpp"

#include <algorithm>

namespace tutti::test {
namespace {

class Gather : public CollectiveTest {
 protected:
  static std::vector<TestTensor> place(const std::vector<HostArray>& parts,
                                       const std::vector<Device>& devices,
                                       Placement placement = Placement::contiguous) {
    std::vector<TestTensor> tensors;
    for (std::size_t i = 0; i < parts.size(); ++i)
      tensors.emplace_back(parts[i], devices[i % devices.size()], placement);
    return tensors;
  }

  /// Gathers both ways and checks everything.
  void check(const std::vector<HostArray>& parts, const std::vector<Device>& devices, int dim, Device root,
             Placement from = Placement::contiguous, Placement to = Placement::contiguous) {
    const HostArray expected = concatenate(parts, dim);
    const std::vector<TestTensor> inputs = place(parts, devices, from);

    Tensor result;
    carry([&](const CollectiveOptions& options) { result = gather(tensors_of(inputs), dim, root, options); });
    ASSERT_TRUE(holds(result, root, expected));

    const TestTensor out = TestTensor::poisoned(expected.dtype, expected.sizes, root, to);
    carry([&](const CollectiveOptions& options) { gather(tensors_of(inputs), out, dim, options); });
    ASSERT_TRUE(out.holds(expected));
    for (const TestTensor& input : inputs) EXPECT_TRUE(input.untouched());
  }

  /// `count` parts of `sizes`, except that number i has `lengths[i]` along `dim`.
  static std::vector<HostArray> parts_of(DType dtype, Sizes sizes, int dim, const Sizes& lengths) {
    std::vector<HostArray> parts;
    const std::size_t axis = static_cast<std::size_t>(dim < 0 ? dim + static_cast<int>(sizes.size()) : dim);
    for (const std::int64_t length : lengths) {
      sizes[axis] = length;
      parts.push_back(random_bits(dtype, sizes, test_seed() + parts.size()));
    }
    return parts;
  }
};
TUTTI_FOR_EVERY_TRANSPORT(Gather);

TEST_P(Gather, JoinsEveryElementTypeAlongEveryDimension) {
  const std::vector<Device> devices = shuffled(first_devices());
  for (const DType dtype : all_dtypes) {
    for (int dim = -3; dim < 3; ++dim) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << " dim " << dim);
      const auto parts = parts_of(dtype, {3, 5, 7}, dim, Sizes(devices.size(), 4));
      for (const Device root : {devices.front(), devices.back(), Device::host()})
        check(parts, devices, dim, root);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Gather, JoinsEverySize) {
  const std::vector<Device> devices = first_devices();
  const auto count = static_cast<std::int64_t>(devices.size());
  for (const std::int64_t bytes : telling_sizes()) {
    SCOPED_TRACE(bytes);
    const Sizes lengths(devices.size(), bytes / count);
    check(parts_of(DType::uint8, {0}, 0, lengths), devices, 0, devices.front());
    check(parts_of(DType::uint8, {0}, 0, lengths), devices, 0, Device::host());
    check(parts_of(DType::uint8, {3, 0}, 1, Sizes(devices.size(), bytes / count / 3)), devices, 1,
          devices.back());
    if (HasFatalFailure()) return;
  }
}

TEST_P(Gather, JoinsUnequalAndEmptyParts) {
  const std::vector<Device> devices = first_devices();
  Sizes lengths;
  for (std::size_t i = 0; i < devices.size() + 2; ++i)
    lengths.push_back(static_cast<std::int64_t>(i * i % 7));
  for (const int dim : {0, 1, -1}) {
    for (const Device root : {devices.front(), devices.back(), Device::host()}) {
      SCOPED_TRACE(testing::Message() << "dim " << dim << " to " << to_string(root));
      check(parts_of(DType::float16, {4, 5}, dim, lengths), devices, dim, root);
      check(parts_of(DType::float16, {4, 5}, dim, {0, 0}), devices, dim, root);
    }
  }
}

TEST_P(Gather, JoinsStridedTensors) {
  const std::vector<Device> devices = first_devices(3);
  for (const DType dtype : {DType::uint8, DType::float32, DType::complex128}) {
    for (const Placement from :
         {Placement::misaligned, Placement::gapped, Placement::transposed, Placement::channels_last}) {
      for (const Placement to : {Placement::contiguous, Placement::gapped, Placement::channels_last}) {
        for (int dim = 0; dim < 4; ++dim) {
          SCOPED_TRACE(testing::Message() << name_of(from) << " to " << name_of(to) << " dim " << dim);
          const auto parts = parts_of(dtype, {3, 4, 5, 6}, dim, {2, 3, 1});
          for (const Device root : {devices.back(), Device::host()})
            check(parts, devices, dim, root, from, to);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(Gather, GivesPinnedMemoryOnTheHost) {
  const std::vector<Device> devices = first_devices();
  const auto parts = parts_of(DType::float32, {5, 3}, 0, Sizes(devices.size(), 5));
  const std::vector<TestTensor> inputs = place(parts, devices);
  for (const Blocking blocking : {Blocking::yes, Blocking::no}) {
    Tensor result;
    carry(
        [&](const CollectiveOptions& options) {
          result = gather(tensors_of(inputs), 0, Device::host(), options);
        },
        {.blocking = blocking});
    EXPECT_TRUE(result.device().is_host());
    EXPECT_TRUE(result.is_pinned());
    if (blocking == Blocking::no) synchronize_all();
    EXPECT_TRUE(holds(result, Device::host(), concatenate(parts, 0)));
  }
}

TEST_P(Gather, IsCompleteOnTheHostWhenABlockingCallReturns) {
  const std::vector<Device> devices = first_devices();
  const auto parts = parts_of(DType::uint8, {0}, 0, Sizes(devices.size(), scaled(1 << 20)));
  const HostArray expected = concatenate(parts, 0);
  for (const HostMemory memory : {HostMemory::pinned, HostMemory::pageable}) {
    const Tensor out =
        make_tensor({DType::uint8, expected.sizes, std::vector<std::byte>(expected.bytes.size())},
                    Device::host(), memory);
    carry([&](const CollectiveOptions& options) {
      gather(tensors_of(place(parts, devices)), out, 0, options);
    });
    // Looks at the memory itself: reading through the library could wait where the call did not.
    EXPECT_TRUE(std::ranges::equal(
        expected.bytes, std::span(static_cast<const std::byte*>(out.data()), expected.bytes.size())));
  }
}

TEST_P(Gather, GoesToTheCurrentDeviceUnlessToldOtherwise) {
  const std::vector<Device> devices = first_devices();
  const DeviceGuard guard(devices.back());
  const auto parts = parts_of(DType::int32, {1, 2}, 0, Sizes(devices.size(), 3));
  Tensor result;
  carry([&](const CollectiveOptions& options) {
    result = gather(tensors_of(place(parts, devices)), 0, std::nullopt, options);
  });
  EXPECT_TRUE(holds(result, devices.back(), concatenate(parts, 0)));
}

TEST_P(Gather, GoesToADeviceOutsideTheList) {
  const std::vector<Device> devices = first_devices();
  if (devices.size() < 2) GTEST_SKIP() << "needs two devices";
  const std::vector<Device> sources(devices.begin(), devices.end() - 1);
  check(parts_of(DType::float64, {7, 3}, 1, Sizes(sources.size(), 3)), sources, 1, devices.back());
}

TEST_P(Gather, JoinsSeveralTensorsOfOneDevice) {
  const std::vector<Device> devices = first_devices(2);
  check(parts_of(DType::int16, {3, 3}, 0, {1, 2, 3, 4, 5}), devices, 0, devices.front());
  check(parts_of(DType::int16, {3, 3}, 1, {1, 2, 3}), {devices.back()}, 1, devices.front());
}

TEST_P(Gather, IsChannelsLastWhenAllInputsAre) {
  const std::vector<Device> devices = first_devices(3);
  const auto parts = parts_of(DType::float32, {2, 3, 4, 5}, 0, Sizes(devices.size(), 2));
  for (const Device root : {devices.front(), Device::host()}) {
    Tensor result;
    carry([&](const CollectiveOptions& options) {
      result = gather(tensors_of(place(parts, devices, Placement::channels_last)), 0, root, options);
    });
    EXPECT_TRUE(result.is_channels_last());
    EXPECT_FALSE(result.is_contiguous());
  }
  if (devices.size() < 2) return;
  std::vector<TestTensor> mixed = place(parts, devices, Placement::channels_last);
  mixed.back() = TestTensor(parts.back(), devices.back(), Placement::contiguous);
  Tensor result;
  carry([&](const CollectiveOptions& options) {
    result = gather(tensors_of(mixed), 0, devices.front(), options);
  });
  EXPECT_TRUE(result.is_contiguous());
  EXPECT_TRUE(holds(result, devices.front(), concatenate(parts, 0)));
}

/// One channel lies the same in both formats.
TEST_P(Gather, KeepsChannelsLastBesideInputsOfOneChannel) {
  const std::vector<Device> devices = first_devices(2);
  const auto parts = parts_of(DType::float32, {2, 4, 4, 4}, 1, {3, 1});
  std::vector<TestTensor> inputs;
  for (std::size_t i = 0; i < parts.size(); ++i)
    inputs.emplace_back(parts[i], devices[i % devices.size()], Placement::channels_last);
  Tensor result;
  carry([&](const CollectiveOptions& options) {
    result = gather(tensors_of(inputs), 1, devices.front(), options);
  });
  EXPECT_TRUE(result.is_channels_last());
  EXPECT_FALSE(result.is_contiguous());
  EXPECT_TRUE(holds(result, devices.front(), concatenate(parts, 1)));
}

TEST_P(Gather, WorksWithOneTensor) {
  const std::vector<Device> devices = first_devices(2);
  const auto parts = parts_of(DType::float32, {2, 3}, 0, {4});
  for (const Device root : {devices.front(), devices.back(), Device::host()})
    check(parts, {devices.front()}, 0, root);
}

TEST_P(Gather, UndoesScatter) {
  const std::vector<Device> devices = shuffled(first_devices());
  const HostArray values = random_bits(DType::complex64, {13, 9, 11}, test_seed());
  for (int dim = 0; dim < 3; ++dim) {
    const Tensor source = make_tensor(values, devices.front());
    Tensor back;
    carry([&](const CollectiveOptions& options) {
      back = gather(scatter(source, devices, {}, dim, {}, options), dim, devices.back(), options);
    });
    EXPECT_TRUE(holds(back, devices.back(), values)) << "dim " << dim;
  }
}

}  // namespace
}  // namespace tutti::test
