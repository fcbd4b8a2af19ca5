// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/collective_test.hpp"
#include "support/values/random.hpp"
#include "support/values/reference_sum.hpp"

namespace tutti::test {
namespace {

using TensorRows = std::vector<std::vector<Tensor>>;
using ArrayRows = std::vector<std::vector<HostArray>>;

class ReduceAddCoalesced : public CollectiveTest {
 protected:
  static constexpr CollectiveOptions bitwise{.determinism = Determinism::bitwise};

  /// rows[d][t], as many rows as devices, of the element types and sizes of `shapes`.
  static ArrayRows random_rows(std::size_t count, const std::vector<std::pair<DType, Sizes>>& shapes) {
    ArrayRows rows(count);
    std::uint64_t seed = test_seed();
    for (auto& row : rows) {
      for (const auto& [dtype, sizes] : shapes) row.push_back(random_numbers(dtype, sizes, seed++));
    }
    return rows;
  }

  static std::vector<HostArray> column_sums(const ArrayRows& rows) {
    std::vector<HostArray> sums;
    for (std::size_t t = 0; t < rows.front().size(); ++t) {
      std::vector<HostArray> column;
      for (const auto& row : rows) column.push_back(row[t]);
      sums.push_back(reference_sum(column));
    }
    return sums;
  }

  void check(const ArrayRows& rows, const std::vector<Device>& devices, Device root,
             std::size_t buffer_size = default_buffer_size, Placement from = Placement::contiguous,
             Placement to = Placement::contiguous) {
    const std::vector<HostArray> expected = column_sums(rows);
    std::vector<std::vector<TestTensor>> inputs(rows.size());
    TensorRows tensors;
    for (std::size_t d = 0; d < rows.size(); ++d) {
      for (const HostArray& array : rows[d]) inputs[d].emplace_back(array, devices[d], from);
      tensors.push_back(tensors_of(inputs[d]));
    }

    std::vector<Tensor> results;
    carry(
        [&](const CollectiveOptions& options) {
          results = reduce_add_coalesced(tensors, root, buffer_size, options);
        },
        bitwise);
    ASSERT_EQ(results.size(), expected.size());
    for (std::size_t t = 0; t < results.size(); ++t) ASSERT_TRUE(holds(results[t], root, expected[t])) << t;

    std::vector<TestTensor> out;
    for (const HostArray& array : expected)
      out.push_back(TestTensor::poisoned(array.dtype, array.sizes, root, to));
    carry(
        [&](const CollectiveOptions& options) {
          reduce_add_coalesced(tensors, tensors_of(out), buffer_size, options);
        },
        bitwise);
    for (std::size_t t = 0; t < out.size(); ++t) ASSERT_TRUE(out[t].holds(expected[t])) << "out[" << t << "]";
    for (const auto& row : inputs) {
      for (const TestTensor& input : row) EXPECT_TRUE(input.untouched());
    }
  }

  static std::vector<std::pair<DType, Sizes>> mixed_shapes() {
    std::vector<std::pair<DType, Sizes>> shapes;
    for (const DType dtype : all_dtypes) {
      const auto index = static_cast<std::int64_t>(shapes.size());
      shapes.push_back({dtype, {index % 5 == 4 ? 0 : 2 * index + 1, 3}});
    }
    shapes.push_back({DType::float32, {}});
    return shapes;
  }
};
TUTTI_FOR_EVERY_TRANSPORT(ReduceAddCoalesced);

TEST_P(ReduceAddCoalesced, SumsEachColumnOfMixedElementTypesAndSizes) {
  const std::vector<Device> devices = shuffled(first_devices());
  for (const Device root : devices) check(random_rows(devices.size(), mixed_shapes()), devices, root);
}

TEST_P(ReduceAddCoalesced, SumsThousandsOfTinyTensors) {
  const std::vector<Device> devices = first_devices();
  std::vector<std::pair<DType, Sizes>> shapes;
  Random random(test_seed());
  for (std::int64_t t = 0; t < scaled(1500); ++t)
    shapes.push_back({random.pick(all_dtypes), {random.between(0, 33)}});
  check(random_rows(devices.size(), shapes), devices, devices.back());
}

TEST_P(ReduceAddCoalesced, SumsFewLargeAmongManySmall) {
  const std::vector<Device> devices = first_devices(4);
  std::vector<std::pair<DType, Sizes>> shapes;
  for (const std::int64_t bytes : telling_sizes()) {
    if (bytes < 5 << 20) shapes.push_back({DType::float32, {bytes / 4}});
  }
  check(random_rows(devices.size(), shapes), devices, devices.front());
}

TEST_P(ReduceAddCoalesced, SumsStridedTensors) {
  const std::vector<Device> devices = first_devices(3);
  const ArrayRows rows =
      random_rows(devices.size(), {{DType::float32, {2, 3, 4, 5}}, {DType::float16, {1, 2, 3, 1}}});
  for (const Placement from : {Placement::misaligned, Placement::gapped, Placement::transposed}) {
    for (const Placement to : {Placement::contiguous, Placement::gapped, Placement::channels_last}) {
      SCOPED_TRACE(testing::Message() << "from " << name_of(from) << " to " << name_of(to));
      check(rows, devices, devices.front(), default_buffer_size, from, to);
    }
  }
}

TEST_P(ReduceAddCoalesced, StaysRightWithTinyStagingBuffers) {
  const std::vector<Device> devices = first_devices(3);
  const ArrayRows rows =
      random_rows(devices.size(), {{DType::float64, {3001}}, {DType::int8, {17}}, {DType::int8, {0}}});
  for (const std::size_t buffer_size :
       {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{4096}}) {
    SCOPED_TRACE(buffer_size);
    check(rows, devices, devices.back(), buffer_size);
  }
}

TEST_P(ReduceAddCoalesced, SumsIntoADeviceWithoutInputs) {
  const std::vector<Device> devices = first_devices();
  if (devices.size() < 2) GTEST_SKIP() << "needs two devices";
  check(random_rows(devices.size() - 1, mixed_shapes()), devices, devices.back());
}

TEST_P(ReduceAddCoalesced, SumsOneRowAndOneColumn) {
  const std::vector<Device> devices = first_devices();
  check(random_rows(1, mixed_shapes()), {devices.back()}, devices.front());
  check(random_rows(devices.size(), {{DType::float32, {100}}}), devices, devices.front());
}

TEST_P(ReduceAddCoalesced, SumsInPlace) {
  const std::vector<Device> devices = first_devices();
  const ArrayRows rows = random_rows(devices.size(), mixed_shapes());
  const std::vector<HostArray> expected = column_sums(rows);
  std::vector<std::vector<TestTensor>> inputs(rows.size());
  TensorRows tensors;
  for (std::size_t d = 0; d < rows.size(); ++d) {
    for (const HostArray& array : rows[d]) inputs[d].emplace_back(array, devices[d]);
    tensors.push_back(tensors_of(inputs[d]));
  }
  carry(
      [&](const CollectiveOptions& options) {
        reduce_add_coalesced(tensors, tensors.back(), default_buffer_size, options);
      },
      bitwise);
  for (std::size_t t = 0; t < expected.size(); ++t) EXPECT_TRUE(inputs.back()[t].holds(expected[t])) << t;
}

TEST_P(ReduceAddCoalesced, HasTheBitsOfReduceAddOfEachColumn) {
  const std::vector<Device> devices = first_devices();
  const ArrayRows rows = random_rows(devices.size(), mixed_shapes());
  TensorRows tensors(rows.size());
  for (std::size_t d = 0; d < rows.size(); ++d) {
    for (const HostArray& array : rows[d]) tensors[d].push_back(make_tensor(array, devices[d]));
  }
  carry(
      [&](const CollectiveOptions& options) {
        const std::vector<Tensor> together = reduce_add_coalesced(tensors, 0, default_buffer_size, options);
        for (std::size_t t = 0; t < together.size(); ++t) {
          std::vector<Tensor> column;
          for (const auto& row : tensors) column.push_back(row[t]);
          EXPECT_EQ(read(together[t]), read(reduce_add(column, 0, options))) << t;
        }
      },
      bitwise);
}

}  // namespace
}  // namespace tutti::test
