// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/driver_function.hpp"
#include "device/runtime.hpp"
#include "support/collectives/exercise.hpp"
#include "support/environment.hpp"
#include "tutti/communicator.hpp"
#include "tutti/cuda_interop.hpp"

#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

/// Calls about default streams need their devices to be current, and leave the caller's as it was.
namespace tutti::test {
namespace {

int native_device() {
  int device = -1;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  return device;
}

void make_native_device(int device) {
  EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
}

class NativeDevice : public EveryCollective {
 protected:
  ~NativeDevice() override { make_native_device(0); }
};
TUTTI_FOR_EVERY_COLLECTIVE(NativeDevice);

TEST_P(NativeDevice, IsTheCallersAfterEveryCall) {
  const Exercise run = make_exercise(collective(), first_devices(), 1001);
  const std::vector<HostArray> values = run.values(test_seed());
  const std::vector<Tensor> inputs = make_inputs(run, values);
  const auto call_from = [&](int device) {
    make_native_device(device);
    for (int repetition = 0; repetition < 3; ++repetition) {
      EXPECT_TRUE(all_hold(run, make(run, inputs), run.expect(values)));
      EXPECT_EQ(native_device(), device);
    }
  };
  std::vector<std::thread> threads;
  for (const Device device : first_devices()) threads.emplace_back(call_from, device.index());
  for (std::thread& thread : threads) thread.join();
}

class DeviceScopes : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices, found " << device_count();
    make_native_device(0);
  }
  ~DeviceScopes() override { make_native_device(0); }

  static backend::Backend& backend() { return Runtime::get().backend(); }
  /// Anything that needs `device` to be current.
  static void use(int device) {
    EXPECT_NO_THROW(static_cast<void>(backend().query_stream(backend().default_stream(device))));
  }
};

TEST_F(DeviceScopes, RestoreTheCallersDeviceInTheEnd) {
  {
    const backend::DeviceScope outer(backend());
    {
      const backend::DeviceScope inner(backend());
      use(1);
    }
    use(0);
    use(1);
  }
  EXPECT_EQ(native_device(), 0);
}

TEST_F(DeviceScopes, RestoreItAfterFailures) {
  try {
    const backend::DeviceScope scope(backend());
    use(1);
    throw std::runtime_error("enqueuing fails");
  } catch (const std::runtime_error&) {
    EXPECT_EQ(native_device(), 0);
  }
}

/// Who has set the current device does not matter: it is CUDA's.
class NativelyCurrent : public DeviceScopes {};

TEST_F(NativelyCurrent, IsWhatTheLibraryTakes) {
  make_native_device(1);
  EXPECT_EQ(current_device(), 1);
  EXPECT_EQ(Stream().device(), 1);
  EXPECT_EQ(current_stream().device(), 1);
  EXPECT_EQ(zeros({3}, {.device = -1}).device(), Device(1));
  EXPECT_EQ(reduce_add({zeros({3}, {.device = 0})}).device(), Device(1));
  EXPECT_EQ(native_device(), 1);
  set_device(0);
  EXPECT_EQ(native_device(), 0);
  EXPECT_EQ(current_device(), 0);
}

TEST_F(NativelyCurrent, IsTakenByCommunicators) {
  make_native_device(1);
  const Communicator communicator(CommunicatorOptions{});
  EXPECT_EQ(communicator.devices(), std::vector<Device>{1});
  EXPECT_EQ(native_device(), 1);
}

TEST_F(NativelyCurrent, IsRestoredByGuards) {
  make_native_device(1);
  {
    const DeviceGuard guard(0);
    EXPECT_EQ(guard.original_device(), 1);
    EXPECT_EQ(native_device(), 0);
    EXPECT_EQ(current_device(), 0);
    make_native_device(1);
  }
  EXPECT_EQ(native_device(), 1);
  {
    const DeviceGuard same(1);
    make_native_device(0);
    EXPECT_EQ(current_device(), 0);
    const StreamGuard inner(Stream(1));
    EXPECT_EQ(native_device(), 1);
  }
  EXPECT_EQ(native_device(), 1);
  set_stream(default_stream(0));
  EXPECT_EQ(native_device(), 0);
}

TEST_F(NativelyCurrent, IsSeenAtOnceOnThreadsThatHaveNoContext) {
  using SetCurrent = int (*)(void*);
  const auto set_context = reinterpret_cast<SetCurrent>(backend::cuda::driver_function("cuCtxSetCurrent"));
  use(0);
  use(1);
  std::thread([&] {
    EXPECT_EQ(current_device(), 0);
    for (const int device : {1, 0, 1}) {
      make_native_device(device);
      EXPECT_EQ(current_device(), device);
      EXPECT_EQ(set_context(nullptr), 0);
      const int told = current_device();
      EXPECT_EQ(told, native_device());
      use(1 - told);
      EXPECT_EQ(current_device(), told);
      EXPECT_EQ(native_device(), told);
    }
  }).join();
}

/// Whether the device's context, which takes memory there, has been made in this process.
bool has_context(int device) {
  using GetState = int (*)(int, unsigned*, int*);
  const auto get_state =
      reinterpret_cast<GetState>(backend::cuda::driver_function("cuDevicePrimaryCtxGetState"));
  unsigned flags = 0;
  int is_active = -1;
  EXPECT_EQ(get_state(device, &flags, &is_active), 0);
  return is_active == 1;
}

TEST(NativeContext, IsNotMadeByWorkOnOtherDevices) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices, found " << device_count();
  if (is_under_a_tool()) GTEST_SKIP() << "the tool waits for the process that this one starts";
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process in which nothing has used a device
  EXPECT_EXIT(
      {
        const int before = native_device();
        const Tensor tensor = full({1000}, 3, {.device = 1});
        const bool is_right = tensor.to_vector<float>()[999] == 3;
        {
          const DeviceGuard guard(1);
          synchronize();
        }
        const bool is_as_before = before == 0 && native_device() == 0 && current_device() == 0;
        std::_Exit(is_right && is_as_before && !has_context(0) && has_context(1) ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(DeviceScopes, AreOfOneThread) {
  const backend::DeviceScope scope(backend());
  use(1);
  std::thread([] {
    use(1);
    EXPECT_EQ(native_device(), 0);
  }).join();
}

}  // namespace
}  // namespace tutti::test
