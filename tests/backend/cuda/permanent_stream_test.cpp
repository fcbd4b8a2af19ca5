// SPDX-License-Identifier: Apache-2.0
#include "support/errors.hpp"
#include "tutti/collectives.hpp"
#include "tutti/cuda_interop.hpp"
#include "tutti/device.hpp"
#include "tutti/tensor.hpp"

#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Streams of CUDA's runtime that the program lends to the library.
namespace tutti {
namespace {

cudaStream_t make_stream(int device, unsigned flags) {
  const DeviceGuard current(device);
  cudaStream_t stream = nullptr;
  if (cudaStreamCreateWithFlags(&stream, flags) != cudaSuccess)
    throw std::runtime_error("no stream was made");
  return stream;
}

TEST(PermanentStream, IsNoneThatWaitsForTheDefaultStream) {
  cudaStream_t const waits = make_stream(0, cudaStreamDefault);
  EXPECT_TRUE(test::refuses([&] { PermanentStream stream(waits, 0); }, ErrorCode::invalid_argument,
                            {"PermanentStream", "cudaStreamNonBlocking"}));
  EXPECT_EQ(cudaStreamDestroy(waits), cudaSuccess);
  EXPECT_TRUE(test::refuses([] { PermanentStream stream(cudaStreamPerThread, 0); },
                            ErrorCode::invalid_argument, {"PermanentStream", "in each thread"}));
  EXPECT_EQ(PermanentStream(nullptr, 0), default_stream(0));
}

TEST(PermanentStream, CarriesRoundsOfOneProcess) {
  if (device_count() < 2) GTEST_SKIP() << "needs two GPUs";
  cudaStream_t const first = make_stream(0, cudaStreamNonBlocking);
  cudaStream_t const second = make_stream(1, cudaStreamNonBlocking);
  for (int call = 0; call < 100; ++call) {
    const bool is_permanent = call >= 10;
    const StreamGuard first_guard(is_permanent ? Stream(PermanentStream(first, 0))
                                               : Stream(from_cuda(first, 0)));
    const StreamGuard second_guard(is_permanent ? Stream(PermanentStream(second, 1))
                                                : Stream(from_cuda(second, 1)));
    const Tensor source = full({1000}, call, {.device = 0});
    const std::vector<Tensor> results = broadcast(source, {0, 1});
    EXPECT_EQ(last_plan().algorithm.find("round") != std::string::npos, is_permanent)
        << last_plan().algorithm;
    for (const Tensor& result : results)
      ASSERT_EQ(result.to_vector<float>(), std::vector<float>(1000, static_cast<float>(call)));
    if (call == 9) {
      synchronize(Device(0));
      synchronize(Device(1));
    }
  }
}

}  // namespace
}  // namespace tutti
