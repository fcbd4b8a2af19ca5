// SPDX-License-Identifier: Apache-2.0
#include "tutti/device.hpp"

#include "support/collectives/stream_order.hpp"
#include "support/errors.hpp"
#include "support/stream_gate.hpp"
#include "support/timing.hpp"
#include "tutti/error.hpp"
#include "tutti/memory.hpp"
#include "tutti/rng.hpp"
#include "tutti/stream.hpp"
#include "tutti/telemetry.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_set>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::refuses;

/// Tests that need a second device say so where there is only one.
class SeveralDevices : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices, found " << device_count();
  }
};

TEST(Device, IsAvailableWhereThereIsOne) {
  init();
  EXPECT_TRUE(is_initialized());
  EXPECT_TRUE(is_available());
  EXPECT_GE(device_count(), 1);
}

TEST(Device, PrintsItself) {
  EXPECT_EQ(to_string(Device(3)), "device:3");
  EXPECT_EQ(to_string(Device::host()), "host");
  EXPECT_EQ(to_string(Device::current()), "the current device");
  std::ostringstream text;
  text << Device(1) << ", " << Device::host();
  EXPECT_EQ(text.str(), "device:1, host");
  EXPECT_EQ(name_of(BackendKind::host), "host");
  EXPECT_EQ(name_of(BackendKind::cuda), "cuda");
}

TEST(Device, IsReadFromWhatUsersWrite) {
  for (const int index : {0, 1, 7, 10, 1023}) {
    EXPECT_EQ(Device::parse("cuda:" + std::to_string(index)), Device(index));
    EXPECT_EQ(Device::parse("device:" + std::to_string(index)), Device(index));
    EXPECT_EQ(Device::parse(to_string(Device(index))), Device(index));
  }
  for (const char* const text : {"cpu", "host"}) EXPECT_EQ(Device::parse(text), Device::host());
  for (const char* const text : {"cuda", "device"}) EXPECT_EQ(Device::parse(text), Device::current());
}

TEST(Device, IsNotReadFromAnythingElse) {
  for (const char* const text : {"",        " ",       "1",
                                 "cuda:",   "cuda:-1", "cuda:+1",
                                 "cuda:01", "cuda:00", "cuda:1 ",
                                 " cuda:1", "cuda: 1", "cuda:1:2",
                                 "cuda:x",  "cuda:1x", "cuda:99999999999999999999",
                                 "cuda1",   "CUDA:1",  "cpu:0",
                                 "host:0",  "device:", "devices:1",
                                 "gpu:0",   "cud",     "the current device"}) {
    EXPECT_TRUE(refuses([text] { static_cast<void>(Device::parse(text)); }, ErrorCode::invalid_argument,
                        {"Device::parse", fmt::format("text is \"{}\"", text), "expected host, cpu"}))
        << text;
  }
}

TEST(Device, IsAValueThatComparesAndHashes) {
  EXPECT_TRUE(Device{}.is_host());
  EXPECT_FALSE(Device(0).is_host());
  EXPECT_EQ(Device(2).index(), 2);
  EXPECT_NE(Device(0), Device::host());
  EXPECT_LT(Device(0), Device(1));
  EXPECT_EQ(Device(-1), Device::current());
  EXPECT_EQ(Device(-7), Device::current());
  EXPECT_NE(Device::host(), Device::current());
  EXPECT_FALSE(Device::current().is_host());
  EXPECT_FALSE(Device::host().is_current());
  EXPECT_EQ(Device::host().index(), -1);
  EXPECT_EQ(Device::current().index(), -1);
  EXPECT_EQ(std::unordered_set<Device>({Device(0), Device(1), Device(1), Device::host()}).size(), 3U);
}

TEST(Device, DescribesItself) {
  for (int device = 0; device < device_count(); ++device) {
    const DeviceProperties& properties = get_device_properties(device);
    EXPECT_FALSE(properties.name.empty());
    EXPECT_EQ(get_device_name(device), properties.name);
    EXPECT_EQ(get_device_capability(device), std::pair(properties.major, properties.minor));
    EXPECT_GE(properties.multiprocessor_count, 1);
    EXPECT_EQ(properties.pci_bus_id.empty(), backend_kind() == BackendKind::host);
    const MemoryInfo memory = mem_get_info(device);
    EXPECT_GT(memory.free, 0U);
    EXPECT_LE(memory.free, memory.total);
    EXPECT_LE(memory.total, properties.total_memory);
  }
}

TEST(Device, TellsWhatKernelsCanUse) {
  for (int device = 0; device < device_count(); ++device) {
    const DeviceProperties& properties = get_device_properties(device);
    if (backend_kind() == BackendKind::host) {
      EXPECT_EQ(properties.warp_size, 1);
      EXPECT_TRUE(properties.uuid.empty());
      EXPECT_EQ(properties.clock_rate, 0);
      continue;
    }
    EXPECT_EQ(properties.warp_size, 32);
    EXPECT_GE(properties.max_threads_per_multiprocessor, properties.max_threads_per_block);
    EXPECT_GE(properties.registers_per_multiprocessor, properties.registers_per_block);
    EXPECT_GT(properties.registers_per_block, 0);
    EXPECT_GE(properties.shared_memory_per_block_optin, properties.shared_memory_per_block);
    EXPECT_GE(properties.shared_memory_per_multiprocessor, properties.shared_memory_per_block_optin);
    EXPECT_GT(properties.constant_memory, 0U);
    EXPECT_GT(properties.clock_rate, 100'000) << "kHz";
    EXPECT_GT(properties.memory_clock_rate, 100'000) << "kHz";
    EXPECT_GE(properties.memory_bus_width, 64);
    EXPECT_EQ(properties.uuid.size(), 40U) << properties.uuid;
    EXPECT_TRUE(properties.uuid.starts_with("GPU-")) << properties.uuid;
    for (int other = 0; other < device; ++other)
      EXPECT_NE(properties.uuid, get_device_properties(other).uuid);
  }
}

TEST(Telemetry, ReadsGaugesOfGpus) {
  if (backend_kind() == BackendKind::host) GTEST_SKIP() << "virtual devices have no gauges";
  try {
    static_cast<void>(temperature());
  } catch (const Error& error) {
    if (std::string(error.what()).find("libnvidia-ml.so.1") == std::string::npos) throw;
    GTEST_SKIP() << error.what();
  }
  for (int device = 0; device < device_count(); ++device) {
    EXPECT_GE(utilization(device), 0);
    EXPECT_LE(utilization(device), 100);
    EXPECT_GE(memory_usage(device), 0);
    EXPECT_LE(memory_usage(device), 100);
    EXPECT_GT(temperature(device), 0);
    EXPECT_LT(temperature(device), 120);
    EXPECT_GT(power_draw(device), 1'000) << "milliwatts";
    EXPECT_LT(power_draw(device), 2'000'000) << "milliwatts";
    EXPECT_GE(clock_rate(device), 100) << "MHz";
    EXPECT_LT(clock_rate(device), 10'000) << "MHz";
    EXPECT_GE(memory_clock_rate(device), 100) << "MHz";
    EXPECT_LT(memory_clock_rate(device), 20'000) << "MHz";
    EXPECT_NO_THROW(static_cast<void>(throttle_reasons(device)));
    const Tensor memory = ones({1000}, {.device = device});
    const std::vector<GpuProcess> processes = get_gpu_processes(device);
    const std::string text = list_gpu_processes(device);
    EXPECT_TRUE(text.starts_with(to_string(Device(device)))) << text;
    for (const GpuProcess& process : processes) EXPECT_GT(process.id, 0);
  }
  EXPECT_EQ(get_gpu_processes().empty(), list_gpu_processes().find("no processes") != std::string::npos);
}

TEST(Telemetry, SaysThatVirtualDevicesHaveNone) {
  if (backend_kind() == BackendKind::cuda) GTEST_SKIP() << "these are GPUs";
  const auto refused = [](const std::string& function, const std::function<void()>& call) {
    return refuses(call, ErrorCode::unsupported,
                   {function, "device 0 is a virtual device", "expected a GPU"});
  };
  EXPECT_TRUE(refused("utilization", [] { static_cast<void>(utilization()); }));
  EXPECT_TRUE(refused("memory_usage", [] { static_cast<void>(memory_usage()); }));
  EXPECT_TRUE(refused("temperature", [] { static_cast<void>(temperature()); }));
  EXPECT_TRUE(refused("power_draw", [] { static_cast<void>(power_draw()); }));
  EXPECT_TRUE(refused("clock_rate", [] { static_cast<void>(clock_rate()); }));
  EXPECT_TRUE(refused("memory_clock_rate", [] { static_cast<void>(memory_clock_rate()); }));
  EXPECT_TRUE(refused("throttle_reasons", [] { static_cast<void>(throttle_reasons()); }));
  EXPECT_TRUE(refused("list_gpu_processes", [] { static_cast<void>(list_gpu_processes()); }));
  EXPECT_TRUE(refused("list_gpu_processes", [] { static_cast<void>(get_gpu_processes()); }));
}

TEST(Telemetry, NamesTheFunctionOfAWrongIndex) {
  const int count = device_count();
  const auto refused = [&](const std::string& function, const std::function<void()>& call) {
    return refuses(call, ErrorCode::invalid_argument, {function, "device is " + std::to_string(count)});
  };
  EXPECT_TRUE(refused("utilization", [&] { static_cast<void>(utilization(count)); }));
  EXPECT_TRUE(refused("memory_usage", [&] { static_cast<void>(memory_usage(count)); }));
  EXPECT_TRUE(refused("temperature", [&] { static_cast<void>(temperature(count)); }));
  EXPECT_TRUE(refused("power_draw", [&] { static_cast<void>(power_draw(count)); }));
  EXPECT_TRUE(refused("clock_rate", [&] { static_cast<void>(clock_rate(count)); }));
  EXPECT_TRUE(refused("memory_clock_rate", [&] { static_cast<void>(memory_clock_rate(count)); }));
  EXPECT_TRUE(refused("throttle_reasons", [&] { static_cast<void>(throttle_reasons(count)); }));
  EXPECT_TRUE(refused("list_gpu_processes", [&] { static_cast<void>(list_gpu_processes(count)); }));
  EXPECT_TRUE(refused("get_gpu_processes", [&] { static_cast<void>(get_gpu_processes(count)); }));
}

TEST(Device, ListsTheArchitecturesItWasBuiltFor) {
  const std::vector<std::string> architectures = get_arch_list();
  if (backend_kind() == BackendKind::cuda) {
    EXPECT_FALSE(architectures.empty());
  }
  const std::string flags = get_gencode_flags();
  EXPECT_EQ(std::count(flags.begin(), flags.end(), ' '),
            architectures.empty() ? 0 : static_cast<std::ptrdiff_t>(2 * architectures.size() - 1));
  for (const std::string& architecture : architectures) {
    const std::string version = architecture.substr(architecture.find('_') + 1);
    EXPECT_NE(flags.find(fmt::format("-gencode arch=compute_{},code={}", version, architecture)),
              std::string::npos)
        << flags;
  }
}

TEST(Device, IsNotItsOwnPeer) {
  for (int device = 0; device < device_count(); ++device)
    EXPECT_FALSE(can_device_access_peer(device, device));
}

TEST(Device, NamesTheFunctionAndTheRangeOfAWrongIndex) {
  const int count = device_count();
  const std::string given = "device is " + std::to_string(count);
  const std::string expected = "expected 0 to " + std::to_string(count - 1);
  const auto refused = [&](const std::string& function, const std::function<void()>& call) {
    return refuses(call, ErrorCode::invalid_argument, {function, given, expected});
  };
  EXPECT_TRUE(refused("set_device", [&] { set_device(count); }));
  EXPECT_TRUE(refused("get_device_name", [&] { static_cast<void>(get_device_name(count)); }));
  EXPECT_TRUE(refused("get_device_properties", [&] { static_cast<void>(get_device_properties(count)); }));
  EXPECT_TRUE(refused("get_device_capability", [&] { static_cast<void>(get_device_capability(count)); }));
  EXPECT_TRUE(
      refused("can_device_access_peer", [&] { static_cast<void>(can_device_access_peer(count, 0)); }));
  EXPECT_TRUE(
      refused("can_device_access_peer", [&] { static_cast<void>(can_device_access_peer(0, count)); }));
  EXPECT_TRUE(refused("synchronize", [&] { synchronize(count); }));
  EXPECT_TRUE(refused("mem_get_info", [&] { static_cast<void>(mem_get_info(count)); }));
  EXPECT_TRUE(refuses([] { synchronize(Device::host()); }, ErrorCode::invalid_argument,
                      {"synchronize", "device is the host", expected}));
  EXPECT_TRUE(refused("DeviceGuard", [&] { DeviceGuard guard(count); }));
  EXPECT_EQ(current_device(), 0);
}

TEST(Device, SynchronizesAllItsStreams) {
  for (int device = 0; device < device_count(); ++device) {
    const DeviceGuard current(device);
    for (const auto& wait :
         {std::function([device] { synchronize(device); }), std::function([] { synchronize(); })}) {
      const Stream pooled(device);
      for (const Stream& stream : {default_stream(device), pooled}) test::keep_busy(stream);
      const test::StreamFlag default_is_over(default_stream(device));
      const test::StreamFlag pooled_is_over(pooled);
      wait();
      EXPECT_TRUE(default_is_over.is_set());
      EXPECT_TRUE(pooled_is_over.is_set());
      EXPECT_LT(test::time_of(wait), test::at_once) << "though the device is idle";
    }
  }
}

TEST_F(SeveralDevices, AreMeantByNegativeIndicesWhenCurrent) {
  const DeviceGuard guard(1);
  for (const int index : {-1, -2, -1000}) {
    EXPECT_EQ(&get_device_properties(index), &get_device_properties(1));
    EXPECT_EQ(get_device_name(index), get_device_name(1));
    EXPECT_EQ(get_device_capability(index), get_device_capability(1));
    EXPECT_EQ(mem_get_info(index).total, mem_get_info(1).total);
    EXPECT_EQ(can_device_access_peer(index, 0), can_device_access_peer(1, 0));
    EXPECT_FALSE(can_device_access_peer(index, 1));
    EXPECT_NO_THROW(synchronize(index));
    EXPECT_EQ(Stream(index).device(), 1);
    EXPECT_EQ(default_stream(index), default_stream(1));
    EXPECT_EQ(current_stream(index), current_stream(1));
    EXPECT_EQ(ExternalStream(Stream(1).native_handle(), index).device(), 1);
    EXPECT_EQ(get_rng_state(index), get_rng_state(1));
    const Tensor tensor = ones({3}, {.device = index});
    EXPECT_EQ(tensor.device(), Device(1));
    EXPECT_EQ(tensor.to(Device::host()).to(index).device(), Device(1));
    EXPECT_EQ(tutti::tensor(std::vector<float>{1, 2}, {2}, {.device = index}).device(), Device(1));
    EXPECT_EQ(TensorView(tensor.data(), DType::float32, {3}, index).device(), Device(1));
    EXPECT_EQ(TensorView(tensor.data(), tensor.layout(), index).device(), Device(1));
    const std::size_t before = memory_allocated(0);
    EXPECT_EQ(memory_allocated(index), memory_allocated(1));
    EXPECT_EQ(memory_allocated(0), before);
    set_device(index);
    const DeviceGuard nothing(index);
    EXPECT_EQ(current_device(), 1);
  }
}

TEST(Device, IsTheCurrentOneUnlessToldOtherwise) {
  EXPECT_EQ(get_device_name(), get_device_name(current_device()));
  EXPECT_EQ(get_device_capability(), get_device_capability(current_device()));
  EXPECT_EQ(&get_device_properties(), &get_device_properties(current_device()));
  EXPECT_EQ(mem_get_info().total, mem_get_info(current_device()).total);
  EXPECT_NO_THROW(synchronize());
  EXPECT_NO_THROW(synchronize(Device(0)));
}

TEST(DeviceGuard, IgnoresNegativeIndicesAndTheHost) {
  set_device(-1);
  set_device(Device::host());
  EXPECT_EQ(current_device(), 0);
  const DeviceGuard negative(-3);
  EXPECT_EQ(current_device(), 0);
  const DeviceGuard host(Device::host());
  EXPECT_EQ(current_device(), 0);
  EXPECT_EQ(host.original_device(), 0);
}

TEST_F(SeveralDevices, AreCurrentPerThread) {
  set_device(1);
  int seen_at_start = -1;
  std::thread other([&] {
    seen_at_start = current_device();
    set_device(0);
  });
  other.join();
  EXPECT_EQ(seen_at_start, 0);
  EXPECT_EQ(current_device(), 1);
  set_device(0);
}

TEST_F(SeveralDevices, AreRestoredByNestedGuards) {
  set_device(0);
  {
    const DeviceGuard outer(1);
    EXPECT_EQ(outer.original_device(), 0);
    EXPECT_EQ(current_device(), 1);
    {
      const DeviceGuard inner(Device(0));
      EXPECT_EQ(inner.original_device(), 1);
      EXPECT_EQ(current_device(), 0);
    }
    EXPECT_EQ(current_device(), 1);
    {
      const DeviceGuard nothing(-1);
      EXPECT_EQ(current_device(), 1);
    }
    {
      const DeviceGuard same(1);
      set_device(0);
    }
    EXPECT_EQ(current_device(), 1) << "a guard restores what it found, switched or not";
  }
  EXPECT_EQ(current_device(), 0);
}

TEST_F(SeveralDevices, AreRestoredWhenAScopeThrows) {
  try {
    const DeviceGuard guard(1);
    throw Error(ErrorCode::aborted, "leave the scope");
  } catch (const Error&) {
  }
  EXPECT_EQ(current_device(), 0);
}

}  // namespace
}  // namespace tutti
