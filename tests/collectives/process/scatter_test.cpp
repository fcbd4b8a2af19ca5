// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/collective_test.hpp"
#include "support/collectives/stream_order.hpp"

#include <algorithm>

namespace tutti::test {
namespace {

class Scatter : public CollectiveTest {
 protected:
  /// Scatters both ways and checks everything. No `chunk_sizes`: equal chunks.
  void check(const HostArray& values, Device root, const std::vector<Device>& devices,
             const Sizes& chunk_sizes, int dim, Placement from = Placement::contiguous,
             Placement to = Placement::contiguous, HostMemory host_memory = HostMemory::pageable) {
    const std::size_t axis =
        static_cast<std::size_t>(dim < 0 ? dim + static_cast<int>(values.sizes.size()) : dim);
    const Sizes lengths =
        chunk_sizes.empty() ? equal_chunks(values.sizes[axis], devices.size()) : chunk_sizes;
    const std::vector<HostArray> expected = split(values, dim, lengths);
    const TestTensor source(values, root, from, host_memory);

    std::vector<Tensor> results;
    carry([&](const CollectiveOptions& options) {
      results = scatter(source, devices, chunk_sizes, dim, {}, options);
    });
    ASSERT_EQ(results.size(), devices.size());
    for (std::size_t i = 0; i < devices.size(); ++i)
      ASSERT_TRUE(holds(results[i], devices[i], expected[i])) << i;

    std::vector<TestTensor> outputs;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      outputs.push_back(TestTensor::poisoned(values.dtype, expected[i].sizes, devices[i], to));
    }
    carry([&](const CollectiveOptions& options) { scatter(source, tensors_of(outputs), dim, {}, options); });
    for (std::size_t i = 0; i < devices.size(); ++i)
      ASSERT_TRUE(outputs[i].holds(expected[i])) << "out[" << i << "]";
    EXPECT_TRUE(source.untouched());
  }
};
TUTTI_FOR_EVERY_TRANSPORT(Scatter);

TEST_P(Scatter, CutsEveryElementTypeAlongEveryDimension) {
  const std::vector<Device> devices = shuffled(first_devices());
  for (const DType dtype : all_dtypes) {
    const HostArray values = random_bits(dtype, {9, 10, 17}, test_seed());
    for (int dim = -3; dim < 3; ++dim) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << " dim " << dim);
      check(values, devices.front(), devices, {}, dim);
      if (HasFatalFailure()) return;
    }
  }
}

/// Calls that follow one another as closely as the host can make them, each on many streams, default ones
/// too.
TEST_P(Scatter, FollowsItselfInBurstsOnManyStreams) {
  constexpr int calls = 300;  // more than can be under way with signals
  constexpr int calls_looked_at = 20;
  constexpr std::int64_t length = 100;
  std::vector<Stream> streams;
  std::vector<Tensor> outputs;
  for (const Device device : first_devices(2)) {
    for (const Stream& stream :
         {default_stream(device.index()), Stream(device.index()), Stream(device.index())}) {
      streams.push_back(stream);
      outputs.push_back(zeros({length}, {.dtype = DType::int32, .device = device.index()}));
    }
  }
  const auto root = first_devices(2).back();
  const Tensor source = zeros({length * static_cast<std::int64_t>(outputs.size())},
                              {.dtype = DType::int32, .device = root.index()});
  synchronize_all();
  std::vector<Tensor> seen;  // of one call after another, the next output each time
  for (int call = 1; call <= calls; ++call) {
    source.fill_(call);
    carry([&](const CollectiveOptions& options) { scatter(source, outputs, 0, streams, options); });
    if (call % (calls / calls_looked_at) != 0) continue;
    const std::size_t looked_at = seen.size() % outputs.size();
    const StreamGuard current(streams[looked_at]);
    seen.push_back(zeros({length}, {.dtype = DType::int32, .device = outputs[looked_at].device()}));
    seen.back().copy_(outputs[looked_at]);
  }
  synchronize_all();
  for (std::size_t i = 0; i < seen.size(); ++i)
    EXPECT_TRUE(holds(seen[i], static_cast<std::int32_t>(i + 1) * (calls / calls_looked_at)));
  for (const Tensor& output : outputs) EXPECT_TRUE(holds(output, calls));
}

TEST_P(Scatter, CutsEverySize) {
  const std::vector<Device> devices = first_devices();
  for (const std::int64_t bytes : telling_sizes()) {
    SCOPED_TRACE(bytes);
    check(random_bits(DType::uint8, {bytes}, test_seed()), devices.front(), devices, {}, 0);
    check(random_bits(DType::uint8, {3, bytes / 3}, test_seed()), devices.back(), devices, {}, 1);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Scatter, CutsStridedTensors) {
  const std::vector<Device> devices = first_devices(3);
  for (const DType dtype : {DType::uint8, DType::float16, DType::float32, DType::complex128}) {
    const HostArray values = random_bits(dtype, {4, 5, 3, 7}, test_seed());
    for (const Placement from :
         {Placement::misaligned, Placement::gapped, Placement::transposed, Placement::channels_last}) {
      for (const Placement to : {Placement::contiguous, Placement::gapped, Placement::channels_last}) {
        for (int dim = 0; dim < 4; ++dim) {
          SCOPED_TRACE(testing::Message() << name_of(from) << " to " << name_of(to) << " dim " << dim);
          check(values, devices.front(), devices, {}, dim, from, to);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(Scatter, FollowsTheGivenChunkSizes) {
  const std::vector<Device> devices = first_devices(3);
  const HostArray values = random_bits(DType::int32, {12, 12}, test_seed());
  const std::vector<Sizes> three{{1, 2, 9}, {0, 12, 0}, {12, 0, 0}, {0, 0, 12}, {5, 0, 7}};
  const std::vector<Sizes> two{{1, 11}, {0, 12}, {12, 0}};
  for (const Sizes& chunk_sizes : devices.size() == 3 ? three : two) {
    if (chunk_sizes.size() != devices.size()) continue;
    for (const int dim : {0, 1, -1}) {
      SCOPED_TRACE(testing::Message() << testing::PrintToString(chunk_sizes) << " dim " << dim);
      check(values, devices.front(), devices, chunk_sizes, dim);
      check(values, devices.back(), devices, chunk_sizes, dim);
      check(values, Device::host(), devices, chunk_sizes, dim);
    }
  }
}

TEST_P(Scatter, AlwaysGivesOneResultPerDevice) {
  const std::vector<Device> devices = first_devices();
  for (std::int64_t rows = 0; rows <= static_cast<std::int64_t>(devices.size()) + 1; ++rows) {
    SCOPED_TRACE(rows);
    check(random_bits(DType::float32, {rows, 3}, test_seed()), devices.front(), devices, {}, 0);
    check(random_bits(DType::float32, {2, rows}, test_seed()), Device::host(), devices, {}, 1);
  }
}

TEST_P(Scatter, TakesSourcesFromTheHost) {
  const std::vector<Device> devices = shuffled(first_devices());
  for (const HostMemory memory : {HostMemory::pageable, HostMemory::pinned}) {
    for (const Placement from : {Placement::contiguous, Placement::misaligned, Placement::transposed}) {
      for (const int dim : {0, 1}) {
        SCOPED_TRACE(testing::Message() << name_of(from) << " dim " << dim);
        check(random_bits(DType::int16, {11, 19}, test_seed()), Device::host(), devices, {}, dim, from,
              Placement::contiguous, memory);
        check(random_bits(DType::int16, {scaled(400), 1001}, test_seed()), Device::host(), devices, {}, dim,
              from, Placement::contiguous, memory);
      }
    }
  }
}

TEST_P(Scatter, HasReadPageableSourcesWhenItReturns) {
  const std::vector<Device> devices = first_devices();
  const HostArray values = random_bits(DType::uint8, {scaled(3 << 20), 2}, test_seed());
  Tensor source = make_tensor(values, Device::host());
  std::vector<Tensor> results;
  carry([&](const CollectiveOptions& options) { results = scatter(source, devices, {}, 1, {}, options); });
  std::fill_n(source.data<std::uint8_t>(), source.numel(), std::uint8_t{0});
  source = {};
  const std::vector<HostArray> expected = split(values, 1, equal_chunks(2, devices.size()));
  for (std::size_t i = 0; i < devices.size(); ++i) EXPECT_TRUE(holds(results.at(i), devices[i], expected[i]));
}

TEST_P(Scatter, ReturnsViewsOnTheSourcesOwnDevice) {
  const std::vector<Device> devices = first_devices();
  const auto count = static_cast<std::int64_t>(devices.size());
  const Tensor source = make_tensor(random_bits(DType::float32, {3, 2 * count}, 1), devices.back());
  for (const int dim : {1, -1}) {
    std::vector<Tensor> results;
    carry(
        [&](const CollectiveOptions& options) { results = scatter(source, devices, {}, dim, {}, options); });
    EXPECT_EQ(results.back().storage(), source.storage());
    EXPECT_EQ(results.back().data(), source.narrow(1, 2 * (count - 1), 2).data());
  }
}

TEST_P(Scatter, GivesTheSameDeviceSeveralChunks) {
  const std::vector<Device> devices = first_devices(2);
  const HostArray values = random_bits(DType::float64, {100, 3}, test_seed());
  check(values, devices.front(), {devices.back(), devices.front(), devices.back(), devices.front()}, {}, 0);
  check(values, devices.back(), {devices.front(), devices.front()}, {}, 0);
}

TEST_P(Scatter, KeepsChannelsLast) {
  const std::vector<Device> devices = first_devices();
  const auto count = static_cast<std::int64_t>(devices.size());
  const HostArray values = random_bits(DType::float16, {2 * count, 3 * count, 4 * count, 5}, test_seed());
  for (const Device root : {devices.front(), Device::host()}) {
    const TestTensor source(values, root, Placement::channels_last);
    for (const int dim : {0, 1, 2}) {
      std::vector<Tensor> results;
      carry([&](const CollectiveOptions& options) {
        results = scatter(source, devices, {}, dim, {}, options);
      });
      for (const Tensor& result : results) {
        // The source's own chunk is a view, and a part of each pixel's channels has gaps.
        EXPECT_TRUE(result.device() == root || result.is_channels_last()) << "dim " << dim;
      }
    }
  }
}

TEST_P(Scatter, UsesTheGivenStreams) {
  const std::vector<Device> devices = shuffled(first_devices());
  const HostArray values = random_bits(DType::float32, {scaled(50'000), 4}, test_seed());
  const std::vector<HostArray> expected = split(values, 0, equal_chunks(values.sizes[0], devices.size()));
  const TestTensor source(values, devices.front());
  std::vector<Stream> streams;
  for (const Device device : devices) streams.emplace_back(device.index());

  std::vector<Tensor> results;
  carry(
      [&](const CollectiveOptions& options) { results = scatter(source, devices, {}, 0, streams, options); });
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const StreamGuard guard(streams[i]);  // reading is then ordered with that stream, and with no other
    EXPECT_TRUE(holds(results.at(i), devices[i], expected[i])) << i;
  }

  std::vector<TestTensor> outputs;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    outputs.push_back(TestTensor::poisoned(values.dtype, expected[i].sizes, devices[i]));
  }
  carry([&](const CollectiveOptions& options) { scatter(source, tensors_of(outputs), 0, streams, options); });
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const StreamGuard guard(streams[i]);
    EXPECT_TRUE(outputs[i].holds(expected[i])) << i;
  }
}

/// Of the chunk that stays where it is, too, which nothing is queued for.
TEST_P(Scatter, CompletesEveryChunkForItsGivenStream) {
  const std::vector<Device> devices = first_devices();
  constexpr std::int64_t rows = 1000;
  for_each_interleaving(10, [&](std::uint64_t) {
    const PooledStreams current;
    std::vector<Stream> streams;
    for (const Device device : devices) streams.emplace_back(device.index());
    const Tensor source = zeros({rows * std::ssize(devices)}, {.device = devices.front()});
    synchronize(devices.front().index());
    keep_busy(current_stream(devices.front().index()));
    source.fill_(7);
    std::vector<Tensor> chunks;
    carry([&](const CollectiveOptions& options) {
      chunks = scatter(source, devices, {}, 0, streams, options);
    });
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const StreamGuard guard(streams[i]);
      ASSERT_EQ(chunks.at(i).to_vector<float>(), std::vector<float>(rows, 7)) << i;
    }
  });
}

TEST_P(Scatter, ChunksOfOneStorageMayBeFreedWhileEitherOfTheirStreamsUsesThem) {
  const Device root = first_devices().front();
  const Device other = first_devices(2).back();
  const HostArray values = random_bits(DType::uint8, {scaled(1 << 20) * 2}, test_seed());
  const Tensor source = make_tensor(values, root);
  const std::int64_t half = values.sizes[0] / 2;
  for (const std::size_t late : {0U, 1U}) {
    for_each_interleaving(4, [&](std::uint64_t) {
      Tensor memory = zeros({2 * half}, {.dtype = DType::uint8, .device = other});
      synchronize_all();
      const std::vector<Stream> streams{Stream(other.index()), Stream(other.index())};
      keep_busy(streams[late]);
      {
        const std::vector<Tensor> out{memory.narrow(0, 0, half), memory.narrow(0, half, half)};
        carry([&](const CollectiveOptions& options) { scatter(source, out, 0, streams, options); });
        memory = {};
      }
      streams[1 - late].synchronize();
      const Tensor reuser = full({2 * half}, 3, {.dtype = DType::uint8, .device = other});
      synchronize_all();
      EXPECT_EQ(std::ranges::count(reuser.to_vector<std::uint8_t>(), 3), reuser.numel())
          << "written late by the call";
    });
  }
}

TEST_P(Scatter, WorksWithOneDevice) {
  const HostArray values = random_bits(DType::float32, {5, 3}, test_seed());
  check(values, 0, {0}, {}, 0);
  check(values, first_devices().back(), {0}, {3}, 1);
  check(values, Device::host(), {0}, {}, -1);
}

}  // namespace
}  // namespace tutti::test
