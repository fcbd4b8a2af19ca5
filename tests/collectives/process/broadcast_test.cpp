// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/collective_test.hpp"

#include <algorithm>

namespace tutti::test {
namespace {

class Broadcast : public CollectiveTest {
 protected:
  /// Broadcasts `values` from `source` into poisoned outputs on `devices` and checks everything.
  void check_into(const HostArray& values, const TestTensor& source, const std::vector<Device>& devices,
                  Placement placement) {
    std::vector<TestTensor> outputs;
    for (const Device device : devices) {
      outputs.push_back(TestTensor::poisoned(values.dtype, values.sizes, device, placement));
    }
    carry([&](const CollectiveOptions& options) { broadcast(source, tensors_of(outputs), options); });
    for (std::size_t i = 0; i < outputs.size(); ++i) EXPECT_TRUE(outputs[i].holds(values)) << "output " << i;
    EXPECT_TRUE(source.untouched());
  }

  std::vector<Tensor> broadcast_carried(const Tensor& source, const std::vector<Device>& devices) {
    std::vector<Tensor> results;
    carry([&](const CollectiveOptions& options) { results = broadcast(source, devices, options); });
    return results;
  }
};
TUTTI_FOR_EVERY_TRANSPORT(Broadcast);

TEST_P(Broadcast, DeliversRootBytesToEveryDevice) {
  const std::vector<Device> devices = first_devices();
  for (const DType dtype : all_dtypes) {
    const HostArray values = random_bits(dtype, {5, 7, 3}, test_seed());
    for (const Device root : devices) {
      const Tensor source = make_tensor(values, root);
      const std::vector<Tensor> results = broadcast_carried(source, devices);
      ASSERT_EQ(results.size(), devices.size());
      for (std::size_t i = 0; i < devices.size(); ++i) {
        EXPECT_TRUE(holds(results[i], devices[i], values))
            << name_of(dtype) << " to " << to_string(devices[i]);
      }
    }
  }
}

TEST_P(Broadcast, DeliversEverySizeIntoGivenOutputs) {
  const std::vector<Device> devices = shuffled(first_devices());
  for (const std::int64_t bytes : telling_sizes()) {
    SCOPED_TRACE(bytes);
    const HostArray values =
        random_bits(DType::uint8, {bytes}, test_seed() + static_cast<std::uint64_t>(bytes));
    check_into(values, TestTensor(values, devices.front()), devices, Placement::contiguous);
    if (HasFailure()) return;
  }
}

TEST_P(Broadcast, DeliversEveryElementTypeBetweenAllPlacements) {
  const std::vector<Device> devices = first_devices(3);
  for (const DType dtype : all_dtypes) {
    const HostArray values = random_bits(dtype, {2, 3, 5, 4}, test_seed());
    for (const Placement from : {Placement::contiguous, Placement::misaligned, Placement::gapped,
                                 Placement::transposed, Placement::channels_last}) {
      const TestTensor source(values, devices.front(), from);
      for (const Placement to : {Placement::contiguous, Placement::misaligned, Placement::gapped,
                                 Placement::transposed, Placement::channels_last}) {
        SCOPED_TRACE(testing::Message()
                     << name_of(dtype) << " from " << name_of(from) << " to " << name_of(to));
        check_into(values, source, devices, to);
      }
    }
    if (HasFailure()) return;
  }
}

TEST_P(Broadcast, DeliversLargeStridedTensors) {
  const HostArray values = random_bits(DType::int16, {scaled(300), 7, 129}, test_seed());
  const std::vector<Device> devices = first_devices(3);
  for (const Placement placement : {Placement::gapped, Placement::transposed}) {
    SCOPED_TRACE(name_of(placement));
    check_into(values, TestTensor(values, devices.front(), placement), devices, Placement::contiguous);
    check_into(values, TestTensor(values, devices.front()), devices, placement);
  }
}

TEST_P(Broadcast, RepeatsTheSharedElementsOfAnExpandedSource) {
  const HostArray row = random_bits(DType::float32, {1, 9}, test_seed());
  const HostArray values = concatenate(std::vector<HostArray>(4, row), 0);
  const std::vector<Device> devices = first_devices(3);
  check_into(values, TestTensor(values, devices.front(), Placement::expanded), devices,
             Placement::contiguous);
}

TEST_P(Broadcast, TakesSourcesFromTheHost) {
  const std::vector<Device> devices = shuffled(first_devices());
  for (const HostMemory memory : {HostMemory::pageable, HostMemory::pinned}) {
    for (const Placement placement : {Placement::contiguous, Placement::misaligned, Placement::transposed}) {
      for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{1}, std::int64_t{33}, scaled(70'001)}) {
        SCOPED_TRACE(testing::Message() << name_of(placement) << " rows " << rows);
        const HostArray values = random_bits(DType::int64, {rows, 3}, test_seed());
        const TestTensor source(values, Device::host(), placement, memory);
        check_into(values, source, devices, Placement::contiguous);
        const std::vector<Tensor> results = broadcast_carried(source, devices);
        for (std::size_t i = 0; i < devices.size(); ++i)
          EXPECT_TRUE(holds(results.at(i), devices[i], values));
      }
    }
  }
}

TEST_P(Broadcast, HasReadPageableSourcesWhenItReturns) {
  const HostArray values = random_bits(DType::uint8, {scaled(3 << 20)}, test_seed());
  const std::vector<Device> devices = first_devices();
  Tensor source = make_tensor(values, Device::host());
  const std::vector<Tensor> results = broadcast_carried(source, devices);
  std::fill_n(source.data<std::uint8_t>(), source.numel(), std::uint8_t{0});
  source = {};
  for (std::size_t i = 0; i < devices.size(); ++i) EXPECT_TRUE(holds(results.at(i), devices[i], values));
}

TEST_P(Broadcast, TakesSourcesFromDevicesOutsideTheList) {
  const std::vector<Device> devices = first_devices();
  if (devices.size() < 2) GTEST_SKIP() << "needs two devices";
  const HostArray values = random_bits(DType::float64, {129, 5}, test_seed());
  const std::vector<Device> targets(devices.begin(), devices.end() - 1);
  const std::vector<Tensor> results = broadcast_carried(make_tensor(values, devices.back()), targets);
  ASSERT_EQ(results.size(), targets.size());
  for (std::size_t i = 0; i < targets.size(); ++i) EXPECT_TRUE(holds(results[i], targets[i], values));
}

TEST_P(Broadcast, ReturnsTheSourceItselfForItsOwnDevice) {
  const std::vector<Device> devices = first_devices();
  const Tensor source = make_tensor(random_bits(DType::float32, {4, 4}, 1), devices.back());
  const Tensor strided = source.transpose(0, 1);
  for (const Tensor& tensor : {source, strided}) {
    const Tensor own = broadcast_carried(tensor, devices).at(devices.size() - 1);
    EXPECT_EQ(own.data(), tensor.data());
    EXPECT_EQ(own.storage(), tensor.storage());
    EXPECT_TRUE(std::ranges::equal(own.strides(), tensor.strides()));
  }
}

TEST_P(Broadcast, MakesSeparateCopiesForDuplicates) {
  const std::vector<Device> devices = first_devices(3);
  const Device root = devices.front();
  const Device other = devices.back();
  const HostArray values = random_bits(DType::int32, {1000}, test_seed());
  const std::vector<Device> targets{other, root, other, other};
  const std::vector<Tensor> results = broadcast_carried(make_tensor(values, root), targets);
  ASSERT_EQ(results.size(), targets.size());
  for (std::size_t i = 0; i < targets.size(); ++i) EXPECT_TRUE(holds(results[i], targets[i], values)) << i;
  if (other == root) return;
  results[0].fill_(1);
  EXPECT_TRUE(holds(results[2], other, values));
  EXPECT_TRUE(holds(results[3], other, values));
  EXPECT_NE(results[2].data(), results[3].data());
}

TEST_P(Broadcast, KeepsTheStridesOfDenseSources) {
  const std::vector<Device> devices = first_devices(2);
  const Sizes sizes{2, 3, 4, 5};
  const HostArray values = random_bits(DType::bfloat16, sizes, test_seed());
  for (const Placement placement : {Placement::channels_last, Placement::transposed, Placement::gapped}) {
    const TestTensor source(values, devices.front(), placement);
    const Tensor result = broadcast_carried(source, {devices.back()}).front();
    if (devices.back() == devices.front()) continue;
    const Sizes expected =
        strides_of(sizes, placement == Placement::gapped ? Placement::contiguous : placement);
    EXPECT_TRUE(std::ranges::equal(result.strides(), expected)) << name_of(placement);
    EXPECT_TRUE(holds(result, devices.back(), values));
  }
}

TEST_P(Broadcast, SkipsTheOutputThatIsTheSource) {
  const std::vector<Device> devices = first_devices();
  const HostArray values = random_bits(DType::float16, {scaled(100'003)}, test_seed());
  const TestTensor source(values, devices.front());
  std::vector<TestTensor> outputs;
  std::vector<Tensor> out{source};
  for (std::size_t i = 1; i < devices.size(); ++i) {
    outputs.push_back(TestTensor::poisoned(values.dtype, values.sizes, devices[i]));
    out.push_back(outputs.back());
  }
  carry([&](const CollectiveOptions& options) { broadcast(source, out, options); });
  EXPECT_TRUE(source.untouched());
  for (const TestTensor& output : outputs) EXPECT_TRUE(output.holds(values));
}

TEST_P(Broadcast, WritesSeveralOutputsOnOneDevice) {
  const HostArray values = random_bits(DType::uint8, {scaled(1 << 20) + 1}, test_seed());
  for (const int count : {2, 3}) {
    const std::vector<Device> devices = first_devices(count);
    std::vector<Device> twice = devices;
    twice.insert(twice.end(), devices.rbegin(), devices.rend());
    check_into(values, TestTensor(values, devices.front()), twice, Placement::misaligned);
    check_into(values, TestTensor(values, Device::host()), twice, Placement::misaligned);
  }
}

TEST_P(Broadcast, KeepsShapesWithoutElements) {
  const std::vector<Device> devices = first_devices();
  const HostArray values{DType::float32, {3, 0, 2}, {}};
  for (const Device root : {devices.front(), Device::host()}) {
    for (const Tensor& result : broadcast_carried(make_tensor(values, root), devices)) {
      EXPECT_EQ(read(result), values);
    }
  }
}

TEST_P(Broadcast, CarriesScalars) {
  const std::vector<Device> devices = first_devices();
  const HostArray values = random_bits(DType::complex128, {}, test_seed());
  for (const Tensor& result : broadcast_carried(make_tensor(values, devices.front()), devices)) {
    EXPECT_EQ(read(result), values);
  }
}

TEST_P(Broadcast, WorksWithOneDevice) {
  const HostArray values = random_bits(DType::float32, {17}, test_seed());
  const Tensor source = make_tensor(values, 0);
  const std::vector<Tensor> results = broadcast_carried(source, {0});
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results.front().data(), source.data());
  check_into(values, TestTensor(values, 0), {0}, Placement::contiguous);
}

TEST_P(Broadcast, LeavesTheCurrentDeviceAndStreamsAlone) {
  const std::vector<Device> devices = first_devices();
  const DeviceGuard guard(devices.back());
  const Stream before = current_stream(devices.front().index());
  static_cast<void>(
      broadcast_carried(make_tensor(random_bits(DType::int8, {100}, 1), devices.front()), devices));
  EXPECT_EQ(current_device(), devices.back().index());
  EXPECT_EQ(current_stream(devices.front().index()), before);
}

}  // namespace
}  // namespace tutti::test
