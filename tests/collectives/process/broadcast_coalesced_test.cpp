// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/collective_test.hpp"
#include "support/values/random.hpp"

#include <algorithm>

namespace tutti::test {
namespace {

using TensorRows = std::vector<std::vector<Tensor>>;

class BroadcastCoalesced : public CollectiveTest {
 protected:
  /// Broadcasts the arrays from `root` both ways and checks everything.
  void check(const std::vector<HostArray>& arrays, Device root, const std::vector<Device>& devices,
             std::size_t buffer_size = default_buffer_size, Placement from = Placement::contiguous,
             Placement to = Placement::contiguous) {
    std::vector<TestTensor> sources;
    for (const HostArray& array : arrays) sources.emplace_back(array, root, from);
    const std::vector<Tensor> tensors = tensors_of(sources);

    TensorRows results;
    carry([&](const CollectiveOptions& options) {
      results = broadcast_coalesced(tensors, devices, buffer_size, options);
    });
    ASSERT_EQ(results.size(), devices.size());
    for (std::size_t d = 0; d < devices.size(); ++d) {
      ASSERT_EQ(results[d].size(), arrays.size());
      for (std::size_t t = 0; t < arrays.size(); ++t) {
        ASSERT_TRUE(holds(results[d][t], devices[d], arrays[t])) << "results[" << d << "][" << t << "]";
      }
    }

    std::vector<std::vector<TestTensor>> outputs(devices.size());
    TensorRows out;
    for (std::size_t d = 0; d < devices.size(); ++d) {
      for (const HostArray& array : arrays) {
        outputs[d].push_back(TestTensor::poisoned(array.dtype, array.sizes, devices[d], to));
      }
      out.push_back(tensors_of(outputs[d]));
    }
    carry([&](const CollectiveOptions& options) { broadcast_coalesced(tensors, out, buffer_size, options); });
    for (std::size_t d = 0; d < devices.size(); ++d) {
      for (std::size_t t = 0; t < arrays.size(); ++t) {
        ASSERT_TRUE(outputs[d][t].holds(arrays[t])) << "out[" << d << "][" << t << "]";
      }
    }
    for (const TestTensor& source : sources) EXPECT_TRUE(source.untouched());
  }

  /// One array of every element type, of different shapes, some without elements.
  static std::vector<HostArray> mixed_arrays() {
    std::vector<HostArray> arrays;
    for (const DType dtype : all_dtypes) {
      const auto index = static_cast<std::int64_t>(arrays.size());
      arrays.push_back(random_bits(dtype, {index % 4 == 3 ? 0 : index + 1, 3}, test_seed() + arrays.size()));
    }
    arrays.push_back(random_bits(DType::float32, {}, test_seed()));
    arrays.push_back({DType::int8, {0}, {}});
    return arrays;
  }
};
TUTTI_FOR_EVERY_TRANSPORT(BroadcastCoalesced);

TEST_P(BroadcastCoalesced, DeliversMixedElementTypesAndSizesInOrder) {
  const std::vector<Device> devices = shuffled(first_devices());
  for (const Device root : devices) check(mixed_arrays(), root, devices);
}

TEST_P(BroadcastCoalesced, DeliversStridedTensors) {
  std::vector<HostArray> arrays;
  for (const DType dtype : {DType::float16, DType::float32, DType::complex128, DType::uint8}) {
    arrays.push_back(random_bits(dtype, {2, 3, 5, 4}, test_seed() + arrays.size()));
  }
  const std::vector<Device> devices = first_devices(3);
  for (const Placement from : {Placement::misaligned, Placement::gapped, Placement::transposed}) {
    for (const Placement to : {Placement::contiguous, Placement::misaligned, Placement::channels_last}) {
      SCOPED_TRACE(testing::Message() << "from " << name_of(from) << " to " << name_of(to));
      check(arrays, devices.front(), devices, default_buffer_size, from, to);
    }
  }
}

TEST_P(BroadcastCoalesced, DeliversThousandsOfTinyTensors) {
  const std::vector<Device> devices = first_devices();
  std::vector<HostArray> arrays;
  Random random(test_seed());
  for (std::int64_t t = 0; t < scaled(3000); ++t) {
    arrays.push_back(random_bits(random.pick(all_dtypes), {random.between(0, 40)}, random.next()));
  }
  check(arrays, devices.front(), devices);
}

TEST_P(BroadcastCoalesced, DeliversFewLargeAmongManySmall) {
  const std::vector<Device> devices = first_devices();
  std::vector<HostArray> arrays;
  for (const std::int64_t bytes : telling_sizes()) arrays.push_back(random_bits(DType::uint8, {bytes}, 3));
  check(arrays, devices.back(), devices);
}

TEST_P(BroadcastCoalesced, StaysRightWithTinyStagingBuffers) {
  const std::vector<Device> devices = first_devices(3);
  for (const std::size_t buffer_size :
       {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{4096}}) {
    SCOPED_TRACE(buffer_size);
    std::vector<HostArray> arrays = mixed_arrays();
    arrays.push_back(random_bits(DType::int16, {5001}, test_seed()));
    check(arrays, devices.front(), devices, buffer_size);
  }
}

TEST_P(BroadcastCoalesced, TakesSourcesFromTheHost) {
  const std::vector<Device> devices = first_devices();
  check(mixed_arrays(), Device::host(), devices);
  check({random_bits(DType::float32, {scaled(500'000)}, 5), random_bits(DType::int8, {3}, 6)}, Device::host(),
        devices);

  std::vector<Tensor> pinned;
  for (const HostArray& array : mixed_arrays())
    pinned.push_back(make_tensor(array, Device::host(), HostMemory::pinned));
  TensorRows results;
  carry([&](const CollectiveOptions& options) {
    results = broadcast_coalesced(pinned, devices, default_buffer_size, options);
  });
  for (std::size_t d = 0; d < devices.size(); ++d) {
    for (std::size_t t = 0; t < pinned.size(); ++t)
      EXPECT_TRUE(holds(results[d][t], devices[d], mixed_arrays()[t]));
  }
}

TEST_P(BroadcastCoalesced, HandlesDuplicatesAndSourcesOutsideTheList) {
  const std::vector<Device> devices = first_devices(3);
  check(mixed_arrays(), devices.front(), {devices.back(), devices.back()});
}

TEST_P(BroadcastCoalesced, ReturnsTheSourcesThemselvesForTheirOwnDevice) {
  const std::vector<Device> devices = first_devices();
  std::vector<Tensor> tensors;
  for (const HostArray& array : mixed_arrays()) tensors.push_back(make_tensor(array, devices.front()));
  TensorRows results;
  carry([&](const CollectiveOptions& options) {
    results = broadcast_coalesced(tensors, devices, default_buffer_size, options);
  });
  for (std::size_t t = 0; t < tensors.size(); ++t)
    EXPECT_EQ(results.at(0).at(t).data(), tensors[t].data()) << t;
}

TEST_P(BroadcastCoalesced, SkipsOutputsThatAreTheSources) {
  const std::vector<Device> devices = first_devices(3);
  std::vector<TestTensor> sources;
  std::vector<TestTensor> copies;
  for (const HostArray& array : mixed_arrays()) {
    sources.emplace_back(array, devices.front());
    copies.push_back(TestTensor::poisoned(array.dtype, array.sizes, devices.back()));
  }
  const TensorRows out{tensors_of(sources), tensors_of(copies)};
  carry([&](const CollectiveOptions& options) {
    broadcast_coalesced(tensors_of(sources), out, default_buffer_size, options);
  });
  for (std::size_t t = 0; t < sources.size(); ++t) {
    EXPECT_TRUE(sources[t].untouched());
    EXPECT_TRUE(copies[t].holds(mixed_arrays()[t]));
  }
}

/// Numbers of buffers in place, and of bytes, are both what plans are told apart by.
TEST_P(BroadcastCoalesced, TellsListsInPlaceFromLongerLists) {
  const std::vector<Device> devices = first_devices();
  for (std::size_t root = 0; root < devices.size(); ++root) {
    const auto one = [&](float value) { return full({1}, value, {.device = devices[root]}); };
    for (const std::size_t count : {1U, 2U, 3U, 2U, 1U}) {
      for (const bool in_place : {true, false}) {
        std::vector<Tensor> tensors;
        for (std::size_t t = 0; t < count; ++t) tensors.push_back(one(1.0F + static_cast<float>(t)));
        std::vector<std::vector<Tensor>> out(devices.size());
        for (std::size_t d = 0; d < devices.size(); ++d) {
          for (std::size_t t = 0; t < count; ++t)
            out[d].push_back(in_place && d == root ? tensors[t] : full({1}, -1, {.device = devices[d]}));
        }
        carry([&](const CollectiveOptions& options) {
          broadcast_coalesced(tensors, out, default_buffer_size, options);
        });
        for (const auto& list : out) {
          for (std::size_t t = 0; t < count; ++t)
            ASSERT_EQ(list[t].item<float>(), 1.0F + static_cast<float>(t)) << count << " tensors";
        }
        for (std::size_t t = 0; t < count; ++t)
          ASSERT_EQ(tensors[t].item<float>(), 1.0F + static_cast<float>(t)) << count << " tensors";
      }
    }
  }
}

TEST_P(BroadcastCoalesced, LeavesSourcesAloneThatAreOutputsHoweverAnyoneIsLaidOut) {
  const Device root = first_devices().front();
  const Device other = first_devices(2).back();
  const std::vector<HostArray> arrays{random_bits(DType::float32, {5, 7}, test_seed()),
                                      random_bits(DType::float16, {4, 3}, test_seed() + 1),
                                      random_bits(DType::uint8, {6, 6}, test_seed() + 2)};
  const Placement placements[] = {Placement::contiguous, Placement::gapped, Placement::transposed};
  for (const Placement from : placements) {
    for (const Placement to : placements) {
      // All outputs of a row in place, or every other one, or every other one in each of two rows.
      for (const std::size_t rows_in_place : {0U, 1U, 2U}) {
        SCOPED_TRACE(testing::Message() << "from " << name_of(from) << " to " << name_of(to) << ", "
                                        << rows_in_place << " mixed rows");
        std::vector<TestTensor> sources;
        for (const HostArray& array : arrays) sources.emplace_back(array, root, from);
        std::vector<std::vector<TestTensor>> copies(1 + rows_in_place);
        TensorRows out(copies.size());
        for (std::size_t t = 0; t < arrays.size(); ++t) {
          const auto add = [&](std::size_t row, Device device) {
            copies[row].push_back(TestTensor::poisoned(arrays[t].dtype, arrays[t].sizes, device, to));
            out[row].push_back(copies[row].back());
          };
          add(0, other);
          for (std::size_t row = 1; row <= rows_in_place; ++row) {
            if (t % 2 == row % 2) {
              out[row].push_back(sources[t]);
            } else {
              add(row, root);
            }
          }
        }
        if (rows_in_place == 0) out.push_back(tensors_of(sources));
        poison_cached_memory(root, 1024);
        carry([&](const CollectiveOptions& options) {
          broadcast_coalesced(tensors_of(sources), out, default_buffer_size, options);
        });
        for (const TestTensor& source : sources) EXPECT_TRUE(source.untouched());
        for (const std::vector<TestTensor>& row : copies) {
          for (const TestTensor& copy : row) {
            const auto array = std::ranges::find(arrays, copy.tensor().dtype(), &HostArray::dtype);
            EXPECT_TRUE(copy.holds(*array));
          }
        }
      }
    }
  }
}

TEST_P(BroadcastCoalesced, KeepsTheStridesOfDenseSources) {
  const std::vector<Device> devices = first_devices(2);
  if (devices.size() < 2) GTEST_SKIP() << "needs two devices";
  const Sizes sizes{2, 3, 4, 5};
  const TestTensor source(random_bits(DType::float32, sizes, 1), devices.front(), Placement::channels_last);
  TensorRows results;
  carry([&](const CollectiveOptions& options) {
    results = broadcast_coalesced({source.tensor()}, {devices.back()}, default_buffer_size, options);
  });
  EXPECT_TRUE(std::ranges::equal(results.at(0).at(0).strides(), strides_of(sizes, Placement::channels_last)));
}

TEST_P(BroadcastCoalesced, ResultsOfOneDeviceOutliveOneAnother) {
  const std::vector<Device> devices = first_devices(2);
  std::vector<Tensor> tensors;
  for (const HostArray& array : mixed_arrays()) tensors.push_back(make_tensor(array, devices.front()));
  TensorRows results;
  carry([&](const CollectiveOptions& options) {
    results = broadcast_coalesced(tensors, {devices.back()}, default_buffer_size, options);
  });
  const Tensor kept = results.at(0).at(2);
  results.clear();
  poison_cached_memory(devices.back(), 4096);
  EXPECT_TRUE(holds(kept, devices.back(), mixed_arrays()[2]));
}

}  // namespace
}  // namespace tutti::test
