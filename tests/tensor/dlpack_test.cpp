// SPDX-License-Identifier: Apache-2.0
#include "tutti/dlpack.hpp"

#include "support/collectives/stream_order.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/virtual_devices.hpp"

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include <dlpack/dlpack.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::refuses;
using test::Sizes;

constexpr auto invalid = ErrorCode::invalid_argument;

struct Deleter {
  void operator()(DLManagedTensor* managed) const { managed->deleter(managed); }
};
using Managed = std::unique_ptr<DLManagedTensor, Deleter>;

/// What another library hands over. Counts how often it gets the tensor back.
struct Foreign {
  Foreign(void* data, DLDataType dtype, const Sizes& sizes, DLDevice device = {kDLCPU, 0}) : shape(sizes) {
    managed.dl_tensor = {.data = data,
                         .device = device,
                         .ndim = static_cast<int>(shape.size()),
                         .dtype = dtype,
                         .shape = shape.data(),
                         .strides = nullptr,
                         .byte_offset = 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) {
      auto& foreign = *static_cast<Foreign*>(self->manager_ctx);
      ++foreign.deletions;
      if (foreign.on_deletion) foreign.on_deletion();
    };
  }

  Sizes shape;
  Sizes strides;
  DLManagedTensor managed{};
  std::function<void()> on_deletion;
  std::atomic<int> deletions = 0;
};

constexpr DLDataType dl_float32{kDLFloat, 32, 1};
constexpr DLDataType dl_int32{kDLInt, 32, 1};

DLDevice device_type_here() {
  return {test::on_virtual_devices() ? kDLExtDev : kDLCUDA, 0};
}

struct KnownType {
  DType dtype;
  int code;
  int bits;
};
/// The codes of the DLPack specification.
constexpr KnownType known_types[] = {
    {DType::float16, 2, 16},     {DType::bfloat16, 4, 16},    {DType::float32, 2, 32},
    {DType::float64, 2, 64},     {DType::int8, 0, 8},         {DType::uint8, 1, 8},
    {DType::int16, 0, 16},       {DType::int32, 0, 32},       {DType::int64, 0, 64},
    {DType::boolean, 6, 8},      {DType::complex64, 5, 64},   {DType::complex128, 5, 128},
    {DType::float8_e4m3, 10, 8}, {DType::float8_e5m2, 12, 8}, {DType::uint16, 1, 16},
    {DType::uint32, 1, 32},      {DType::uint64, 1, 64},
};

TEST(DLPackExport, NamesEveryElementTypeAsTheSpecificationDoes) {
  for (const KnownType& known : known_types) {
    const Managed managed(to_dlpack(empty({2}, {.dtype = known.dtype})));
    EXPECT_EQ(managed->dl_tensor.dtype.code, known.code) << name_of(known.dtype);
    EXPECT_EQ(managed->dl_tensor.dtype.bits, known.bits) << name_of(known.dtype);
    EXPECT_EQ(managed->dl_tensor.dtype.lanes, 1);
  }
}

TEST(DLPackExport, DescribesTheMemoryItShares) {
  const Tensor tensor = tutti::tensor(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Managed managed(to_dlpack(tensor.transpose(0, 1)));
  const DLTensor& exported = managed->dl_tensor;
  EXPECT_EQ(exported.data, tensor.data());
  EXPECT_EQ(exported.byte_offset, 0U);
  EXPECT_EQ(exported.device.device_type, kDLCPU);
  EXPECT_EQ(exported.device.device_id, 0);
  ASSERT_EQ(exported.ndim, 2);
  EXPECT_EQ((Sizes{exported.shape, exported.shape + 2}), (Sizes{3, 2}));
  ASSERT_NE(exported.strides, nullptr);
  EXPECT_EQ((Sizes{exported.strides, exported.strides + 2}), (Sizes{1, 3}));
}

TEST(DLPackExport, NamesThePlace) {
  const int last = device_count() - 1;
  const Managed on_device(to_dlpack(empty({2}, {.device = Device(last)})));
  EXPECT_EQ(on_device->dl_tensor.device.device_type, device_type_here().device_type);
  EXPECT_EQ(on_device->dl_tensor.device.device_id, last);
  const Managed pinned(to_dlpack(empty({2}, {.host_memory = HostMemory::pinned})));
  EXPECT_EQ(pinned->dl_tensor.device.device_type, test::on_virtual_devices() ? kDLCPU : kDLCUDAHost);
}

TEST(DLPackExport, KeepsTheMemoryUntilDeleted) {
  int releases = 0;
  std::vector<float> memory{1, 2};
  std::optional<Tensor> tensor = from_blob(memory.data(), {2}, {}, [&](void*) { ++releases; });
  std::optional<Managed> managed(to_dlpack(*tensor));
  tensor.reset();
  EXPECT_EQ(releases, 0);
  managed.reset();
  EXPECT_EQ(releases, 1);
}

TEST(DLPackExport, RefusesUndefinedTensors) {
  EXPECT_TRUE(refuses([] { static_cast<void>(to_dlpack({})); }, invalid, {"to_dlpack", "undefined"}));
}

TEST(DLPackExport, TheConsumerWaitsForTheTensorAndTheMemoryForTheConsumer) {
  constexpr std::int64_t count = 4000;
  test::for_each_interleaving(20, [&](std::uint64_t) {
    const test::PooledStreams streams;
    const Stream consumer(0);
    const Tensor seen = empty({count}, {.dtype = DType::int32, .device = Device(0)});
    {
      const Tensor tensor = zeros({count}, {.dtype = DType::int32, .device = Device(0)});
      test::keep_busy(current_stream(0));
      tensor.fill_(5);
      const Managed managed(to_dlpack(tensor, &consumer));
      const StreamGuard guard(consumer);
      seen.copy_(Tensor(TensorView(managed->dl_tensor.data, DType::int32, {count}, Device(0))));
    }
    // The tensor is gone while the consumer may not have read yet.
    const Tensor next = full({count}, -1, {.dtype = DType::int32, .device = Device(0)});
    synchronize(0);
    ASSERT_EQ(seen.to_vector<std::int32_t>(), std::vector<std::int32_t>(count, 5));
  });
}

TEST(DLPackExport, OfPinnedMemoryIsNotReusedBeforeTheConsumerHasReadIt) {
  constexpr std::int64_t count = 4000;
  test::for_each_interleaving(20, [&](std::uint64_t) {
    const Stream consumer(0);
    const Tensor seen = empty({count}, {.dtype = DType::int32, .device = Device(0)});
    synchronize(0);
    {
      const Managed managed(
          to_dlpack(full({count}, 5, {.dtype = DType::int32, .host_memory = HostMemory::pinned}), &consumer));
      const StreamGuard guard(consumer);
      test::keep_busy(consumer);
      const auto* const bytes = static_cast<const std::byte*>(managed->dl_tensor.data);
      seen.copy_(Tensor(TensorView(const_cast<std::byte*>(bytes), DType::int32, {count}, Device::host())),
                 Blocking::no);
    }
    const Tensor next = full({count}, -1, {.dtype = DType::int32, .host_memory = HostMemory::pinned});
    consumer.synchronize();
    ASSERT_EQ(seen.to_vector<std::int32_t>(), std::vector<std::int32_t>(count, 5));
  });
}

TEST(DLPackExport, RefusesDevicesThatAreNotThere) {
  const Stream consumer(0);
  const Tensor nowhere(TensorView(nullptr, DType::int32, {0}, Device(device_count())));
  EXPECT_TRUE(refuses([&] { static_cast<void>(to_dlpack(nowhere, &consumer)); }, invalid,
                      {"to_dlpack", std::to_string(device_count())}));
}

TEST(DLPackImport, SharesTheMemoryAndReturnsItOnce) {
  std::vector<float> memory{1, 2, 3, 4, 5, 6};
  Foreign foreign(memory.data(), dl_float32, {2, 3});
  {
    std::optional<Tensor> tensor = from_dlpack(&foreign.managed);
    EXPECT_EQ(tensor->data(), memory.data());
    EXPECT_EQ(tensor->dtype(), DType::float32);
    EXPECT_TRUE(tensor->device().is_host());
    EXPECT_TRUE(tensor->is_contiguous());
    const Tensor row = tensor->narrow(0, 1, 1);
    tensor.reset();
    EXPECT_EQ(foreign.deletions, 0);
    EXPECT_EQ(row.to_vector<float>(), (std::vector<float>{4, 5, 6}));
  }
  EXPECT_EQ(foreign.deletions, 1);
}

TEST(DLPackImport, HonoursStridesAndByteOffset) {
  std::vector<std::int32_t> memory(20);
  std::iota(memory.begin(), memory.end(), 0);
  Foreign foreign(memory.data(), dl_int32, {3, 2});
  foreign.strides = {1, 5};
  foreign.managed.dl_tensor.strides = foreign.strides.data();
  foreign.managed.dl_tensor.byte_offset = 8;
  const Tensor tensor = from_dlpack(&foreign.managed);
  EXPECT_EQ(tensor.data(), memory.data() + 2);
  EXPECT_EQ(tensor.to_vector<std::int32_t>(), (std::vector<std::int32_t>{2, 7, 3, 8, 4, 9}));
}

TEST(DLPackImport, AcceptsADeleterThatIsMissing) {
  std::vector<float> memory{1};
  Foreign foreign(memory.data(), dl_float32, {});
  foreign.managed.deleter = nullptr;
  EXPECT_EQ(from_dlpack(&foreign.managed).item<float>(), 1.0F);
}

TEST(DLPackImport, AcceptsTensorsWithoutElements) {
  Foreign foreign(nullptr, dl_float32, {3, 0});
  { EXPECT_EQ(from_dlpack(&foreign.managed).numel(), 0); }
  Foreign on_device(nullptr, dl_float32, {0}, device_type_here());
  { EXPECT_EQ(from_dlpack(&on_device.managed).device(), Device(0)); }
  EXPECT_EQ(foreign.deletions + on_device.deletions, 2);
}

TEST(DLPackImport, TakesBackEveryElementTypeItExports) {
  for (const Device device : {Device::host(), Device(0)}) {
    for (const DType dtype : all_dtypes) {
      const test::HostArray values = test::random_bits(dtype, {2, 3, 4, 5}, 3);
      const test::TestTensor tensor(values, device, test::Placement::channels_last);
      const Tensor imported = from_dlpack(to_dlpack(tensor));
      EXPECT_EQ(imported.data(), tensor.tensor().data());
      EXPECT_TRUE(test::holds(imported, device, values)) << name_of(dtype);
    }
  }
}

TEST(DLPackImport, RefusesWhatItDoesNotHaveAndTakesNothingOver) {
  alignas(16) std::array<float, 16> memory{};
  const auto expect_refused = [](Foreign& foreign, const std::vector<std::string>& fragments) {
    EXPECT_TRUE(refuses([&] { static_cast<void>(from_dlpack(&foreign.managed)); }, invalid, fragments));
    EXPECT_EQ(foreign.deletions, 0);
  };
  for (const DLDataType dtype :
       {DLDataType{kDLUInt, 128, 1}, DLDataType{kDLFloat, 32, 4}, DLDataType{kDLFloat, 128, 1},
        DLDataType{kDLOpaqueHandle, 64, 1}, DLDataType{99, 8, 1}}) {
    Foreign foreign(memory.data(), dtype, {2});
    expect_refused(foreign, {"from_dlpack: dtype has code " + std::to_string(dtype.code),
                             std::to_string(dtype.bits) + " bits", std::to_string(dtype.lanes) + " lanes"});
  }
  Foreign opencl(memory.data(), dl_float32, {2}, {kDLOpenCL, 0});
  expect_refused(opencl, {"from_dlpack: device type is 4", "kDLCUDA (2)"});
  Foreign wrong_backend(memory.data(), dl_float32, {2},
                        {test::on_virtual_devices() ? kDLCUDA : kDLExtDev, 0});
  expect_refused(wrong_backend, {"from_dlpack: device type is", "backend"});
  Foreign beyond(memory.data(), dl_float32, {2}, {device_type_here().device_type, 999});
  expect_refused(beyond, {"from_dlpack", "999"});
  Foreign negative_device(memory.data(), dl_float32, {2}, {device_type_here().device_type, -1});
  expect_refused(negative_device, {"device id is -1"});
  Foreign rank(memory.data(), dl_float32, {1, 1, 1, 1, 1, 1, 1, 1, 1});
  expect_refused(rank, {"from_dlpack: ndim is 9", "0 to 8"});
  Foreign negative_size(memory.data(), dl_float32, {-2});
  expect_refused(negative_size, {"sizes[0] is -2"});
  Foreign reversed(memory.data(), dl_float32, {2});
  reversed.strides = {-1};
  reversed.managed.dl_tensor.strides = reversed.strides.data();
  expect_refused(reversed, {"strides[0] is -1"});
  Foreign misaligned(memory.data(), dl_float32, {2});
  misaligned.managed.dl_tensor.byte_offset = 2;
  expect_refused(misaligned, {"multiple of the 4 bytes of float32"});
  EXPECT_TRUE(refuses([] { static_cast<void>(from_dlpack(nullptr)); }, invalid, {"managed is nullptr"}));
}

TEST(DLPackImport, RefusesAddressesThatAreNotTheVirtualDevices) {
  if (!test::on_virtual_devices()) GTEST_SKIP() << "only kDLExtDev memory is checked by its address";
  std::vector<float> memory(4);
  Foreign host(memory.data(), dl_float32, {4}, {kDLExtDev, 0});
  EXPECT_TRUE(refuses([&] { static_cast<void>(from_dlpack(&host.managed)); }, invalid,
                      {"not memory of virtual device 0"}));
  const Tensor other = empty({4}, {.device = Device(device_count() - 1)});
  Foreign elsewhere(other.data(), dl_float32, {4}, {kDLExtDev, 0});
  if (device_count() > 1) {
    EXPECT_TRUE(
        refuses([&] { static_cast<void>(from_dlpack(&elsewhere.managed)); }, invalid, {"virtual device 0"}));
  }
}

TEST(DLPackImport, WaitsForTheProducer) {
  constexpr std::int64_t count = 4000;
  test::for_each_interleaving(20, [&](std::uint64_t) {
    const test::PooledStreams streams;
    const Stream producer(0);
    const Tensor made = zeros({count}, {.dtype = DType::int32, .device = Device(0)});
    synchronize(0);
    {
      const StreamGuard guard(producer);
      test::keep_busy(producer);
      made.fill_(5);
    }
    Foreign foreign(made.data(), dl_int32, {count}, device_type_here());
    ASSERT_EQ(from_dlpack(&foreign.managed, &producer).to_vector<std::int32_t>(),
              std::vector<std::int32_t>(count, 5));
  });
}

TEST(DLPackImport, WaitsForTheProducerOfHostMemory) {
  const Tensor made = zeros({1000}, {.dtype = DType::int32, .device = Device(0)});
  const Tensor pinned = zeros({1000}, {.dtype = DType::int32, .host_memory = HostMemory::pinned});
  const Stream producer(0);
  synchronize(0);
  {
    const StreamGuard guard(producer);
    test::keep_busy(producer);
    made.fill_(5);
    pinned.copy_(made, Blocking::no);
  }
  Foreign foreign(pinned.data(), dl_int32, {1000});
  EXPECT_EQ(from_dlpack(&foreign.managed, &producer).to_vector<std::int32_t>(),
            std::vector<std::int32_t>(1000, 5));
}

TEST(DLPackImport, IsReturnedOnlyAfterTheWorkQueuedOnItsStreams) {
  constexpr std::int64_t count = 4000;
  test::for_each_interleaving(20, [&](std::uint64_t) {
    const test::PooledStreams streams;
    const Stream other(0);
    const Tensor memory = zeros({count}, {.dtype = DType::int32, .device = Device(0)});
    synchronize(0);
    Foreign foreign(memory.data(), dl_int32, {count}, device_type_here());
    // What the deleter sees is what the owner may do from then on: both streams are through.
    bool home_done = false;
    bool other_done = false;
    const Stream home = current_stream(0);
    foreign.on_deletion = [&] {
      home_done = home.query();
      other_done = other.query();
    };
    {
      const Tensor tensor = from_dlpack(&foreign.managed);
      test::keep_busy(home);
      tensor.narrow(0, 0, count / 2).fill_(1);
      const StreamGuard guard(other);
      test::keep_busy(other);
      tensor.record_stream(other);
      tensor.narrow(0, count / 2, count / 2).fill_(2);
    }
    ASSERT_EQ(foreign.deletions, 1);
    ASSERT_TRUE(home_done);
    ASSERT_TRUE(other_done);
  });
}

TEST(DLPackImport, IsReturnedByAVirtualKernelThatOwnsItLast) {
  if (!test::on_virtual_devices()) GTEST_SKIP() << "GPUs have no virtual kernels";
  const Tensor memory = zeros({100}, {.dtype = DType::int32, .device = Device(0)});
  synchronize(0);
  Foreign foreign(memory.data(), dl_int32, {100}, device_type_here());
  auto tensor = std::make_shared<Tensor>(from_dlpack(&foreign.managed));
  virtual_devices::launch(current_stream(0), "owner", {}, [owner = std::move(tensor)](auto) mutable {
    EXPECT_EQ(owner.use_count(), 1);
    owner.reset();
  });
  synchronize(0);
  EXPECT_EQ(foreign.deletions, 1);
}

TEST(DLPackImport, IsReturnedByAVirtualKernelThatOwnsItLastAfterTheStreamsThatWaitForIt) {
  if (!test::on_virtual_devices()) GTEST_SKIP() << "GPUs have no virtual kernels";
  test::for_each_interleaving(20, [&](std::uint64_t) {
    const test::PooledStreams streams;
    const Stream home = current_stream(0);
    const Stream other(0);
    const Tensor memory = zeros({100}, {.dtype = DType::int32, .device = Device(0)});
    synchronize(0);
    std::atomic<bool> is_other_done = false;
    bool was_other_done = false;
    Foreign foreign(memory.data(), dl_int32, {100}, device_type_here());
    foreign.on_deletion = [&] { was_other_done = is_other_done; };
    auto tensor = std::make_shared<Tensor>(from_dlpack(&foreign.managed));
    tensor->record_stream(other);
    std::promise<void> all_is_queued;
    virtual_devices::launch(home, "owner", {}, [owner = std::move(tensor), &all_is_queued](auto) mutable {
      all_is_queued.get_future().wait();
      owner.reset();
    });
    other.wait_stream(home);
    test::keep_busy(other);
    virtual_devices::launch(other, "last", {}, [&](auto) { is_other_done = true; });
    all_is_queued.set_value();
    synchronize(0);
    EXPECT_EQ(foreign.deletions, 1);
    EXPECT_TRUE(was_other_done);
  });
}

TEST(DLPackImport, PinnedMemoryIsReturnedAfterCopiesThatDidNotBlock) {
  const Tensor pinned = full({4000}, 7, {.dtype = DType::int32, .host_memory = HostMemory::pinned});
  const Tensor target = zeros({4000}, {.dtype = DType::int32, .device = Device(0)});
  synchronize(0);
  Foreign foreign(pinned.data(), dl_int32, {4000});
  foreign.on_deletion = [&] { pinned.fill_(-1); };  // the owner uses its memory again
  test::keep_busy(current_stream(0));
  target.copy_(from_dlpack(&foreign.managed), Blocking::no);
  EXPECT_EQ(foreign.deletions, 1);
  EXPECT_EQ(target.to_vector<std::int32_t>(), std::vector<std::int32_t>(4000, 7));
}

TEST(DLPackImport, IsReturnedEvenIfItsWorkFailed) {
  if (!test::on_virtual_devices())
    GTEST_SKIP() << "work on a GPU cannot be made to fail without losing the process's GPU";
  const Tensor memory = zeros({4}, {.dtype = DType::int32, .device = Device(0)});
  synchronize(0);
  Foreign foreign(memory.data(), dl_int32, {4}, device_type_here());
  {
    const Tensor tensor = from_dlpack(&foreign.managed);
    virtual_devices::inject({.operation = virtual_devices::Operation::kernel,
                             .kind = virtual_devices::FaultKind::fail_asynchronously});
    tensor.fill_(1);
  }
  virtual_devices::clear_faults();
  EXPECT_EQ(foreign.deletions, 1);
  EXPECT_NO_THROW(synchronize(0));
}

}  // namespace
}  // namespace tutti
