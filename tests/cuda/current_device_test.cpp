#include "runtime.hpp"
#include "support/exercise.hpp"
#include "tutti/cuda_interop.hpp"

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
