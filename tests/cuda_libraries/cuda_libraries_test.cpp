// SPDX-License-Identifier: Apache-2.0
#include "tutti/cuda_libraries.hpp"

#include "support/errors.hpp"
#include "tutti/cuda_interop.hpp"
#include "tutti/tutti.hpp"

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// cuBLAS and cuFFT on the library's devices and streams.
namespace tutti::test {
namespace {

class CudaLibraries : public testing::Test {
 protected:
  void SetUp() override {
    if (backend_kind() == BackendKind::host) GTEST_SKIP() << "needs GPUs";
  }
};

TEST(CudaLibrariesOfVirtualDevices, AreRefused) {
  if (backend_kind() == BackendKind::cuda) GTEST_SKIP() << "these are GPUs";
  const auto refused = [](const char* function, const std::function<void()>& call) {
    return refuses(call, ErrorCode::unsupported, {function, "virtual devices", "expected GPUs"});
  };
  EXPECT_TRUE(refused("current_blas_handle", [] { static_cast<void>(current_blas_handle()); }));
  EXPECT_TRUE(refused("cufft_plan_cache", [] { static_cast<void>(cufft_plan_cache()); }));
  EXPECT_TRUE(refused("FftPlanCache", [] { FftPlanCache(0); }));
}

TEST_F(CudaLibraries, HaveOneBlasHandleForEachDeviceAndThread) {
  for (int device = 0; device < device_count(); ++device) {
    const cublasHandle_t handle = current_blas_handle(device);
    EXPECT_EQ(current_blas_handle(device), handle);
    for (int other = 0; other < device; ++other) EXPECT_NE(current_blas_handle(other), handle);
    std::thread([&] {
      EXPECT_NE(current_blas_handle(device), handle);
      EXPECT_EQ(current_device(), 0);
    }).join();
  }
  EXPECT_EQ(current_blas_handle(), current_blas_handle(current_device()));
  EXPECT_TRUE(refuses([] { static_cast<void>(current_blas_handle(device_count())); },
                      ErrorCode::invalid_argument, {"device is"}));
}

TEST_F(CudaLibraries, BindTheBlasHandleToTheCurrentStream) {
  const auto stream_of = [](cublasHandle_t handle) {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cublasGetStream(handle, &stream), CUBLAS_STATUS_SUCCESS);
    return stream;
  };
  const Stream stream(0);
  {
    const StreamGuard guard(stream);
    EXPECT_EQ(stream_of(current_blas_handle(0)), to_cuda(stream));
  }
  EXPECT_EQ(stream_of(current_blas_handle(0)), to_cuda(default_stream(0)));
}

TEST_F(CudaLibraries, CalculateWithTheBlasHandle) {
  for (int device = 0; device < device_count(); ++device) {
    const Stream stream(device);
    const StreamGuard guard(stream);
    const Tensor x = full({1000}, 2, {.device = device});
    const Tensor y = full({1000}, 1, {.device = device});
    const float factor = 3;
    ASSERT_EQ(cublasSaxpy(current_blas_handle(device), 1000, &factor, static_cast<const float*>(x.data()), 1,
                          static_cast<float*>(y.data()), 1),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>(1000, 7.0F));
  }
}

FftDescription of_size(long long size) {
  return {.sizes = {size}};
}

/// There and back, scaled by the size.
void expect_right_transform(long long size) {
  const auto floats = static_cast<std::size_t>(2 * size);
  std::vector<float> values(floats);
  for (std::size_t i = 0; i < floats; ++i) values[i] = static_cast<float>(i % 7);
  const Tensor signal = tutti::tensor(values, {2 * size}, {.device = 0});
  {
    const FftPlan plan = cufft_plan_cache(0).plan(of_size(size));
    auto* const data = static_cast<cufftComplex*>(signal.data());
    ASSERT_EQ(cufftExecC2C(plan.handle(), data, data, CUFFT_FORWARD), CUFFT_SUCCESS);
    ASSERT_EQ(cufftExecC2C(plan.handle(), data, data, CUFFT_INVERSE), CUFFT_SUCCESS);
  }
  const std::vector<float> back = signal.to_vector<float>();
  for (std::size_t i = 0; i < floats; ++i)
    EXPECT_NEAR(back[i], values[i] * static_cast<float>(size), 0.01F * static_cast<float>(size)) << i;
}

TEST_F(CudaLibraries, TellOfCallsThatBlock) {
  const auto refused = [](const char* function, const std::function<void()>& call) {
    set_sync_debug_mode(SyncDebugMode::error);
    const testing::AssertionResult result =
        refuses(call, ErrorCode::unsupported, {function, "would block the calling thread"});
    set_sync_debug_mode(SyncDebugMode::none);
    return result;
  };
  std::thread([&] {  // of which there is no handle yet
    EXPECT_TRUE(refused("current_blas_handle", [] { static_cast<void>(current_blas_handle(0)); }));
  })
      .join();
  FftPlanCache cache(Device(0));
  const FftDescription description{.sizes = {64}};
  EXPECT_TRUE(refused("FftPlanCache::plan", [&] { static_cast<void>(cache.plan(description)); }));
  static_cast<void>(cache.plan(description));
  EXPECT_TRUE(refused("FftPlanCache::set_max_size", [&] { cache.set_max_size(0); }));
  EXPECT_TRUE(refused("FftPlanCache::clear", [&] { cache.clear(); }));
  EXPECT_EQ(cache.size(), 1U);
  cache.clear();
  set_sync_debug_mode(SyncDebugMode::error);
  EXPECT_NO_THROW(cache.clear()) << "nothing goes";
  set_sync_debug_mode(SyncDebugMode::none);

  const auto told = [](const std::function<void()>& call) {
    testing::internal::CaptureStderr();
    set_sync_debug_mode(SyncDebugMode::warn);
    call();
    set_sync_debug_mode(SyncDebugMode::none);
    return testing::internal::GetCapturedStderr();
  };
  std::optional<FftPlan> in_use = cache.plan(description);
  cache.clear();
  EXPECT_NE(told([&] { in_use.reset(); }).find("a plan that its FftPlanCache has dropped"),
            std::string::npos);
  std::optional<FftPlanCache> other(std::in_place, Device(0));
  in_use = other->plan(description);
  EXPECT_EQ(told([&] { in_use.reset(); }), "") << "the plan goes back to its cache";
  EXPECT_NE(told([&] { other.reset(); }).find("~FftPlanCache"), std::string::npos);
}

TEST_F(CudaLibraries, TransformOnWhicheverStreamIsCurrent) {
  cufft_plan_cache(0).clear();
  for (int round = 0; round < 4; ++round) {
    const Stream stream(0);
    const StreamGuard guard(stream);
    expect_right_transform(256);
  }
  EXPECT_EQ(cufft_plan_cache(0).size(), 1U) << "one plan for all";
}

TEST_F(CudaLibraries, ForgetThePlansThatWereUsedTheLongestAgo) {
  FftPlanCache cache(0);
  EXPECT_EQ(cache.max_size(), 4096U);
  cache.set_max_size(2);
  EXPECT_EQ(cache.max_size(), 2U);
  for (const long long size : {16, 32, 16, 64}) static_cast<void>(cache.plan(of_size(size)));
  EXPECT_EQ(cache.size(), 2U);
  EXPECT_TRUE(cache.contains(of_size(16)));
  EXPECT_FALSE(cache.contains(of_size(32)));
  EXPECT_TRUE(cache.contains(of_size(64)));
  cache.set_max_size(1);
  EXPECT_FALSE(cache.contains(of_size(16)));
  cache.clear();
  EXPECT_EQ(cache.size(), 0U);
  cache.set_max_size(0);
  static_cast<void>(cache.plan(of_size(16)));
  EXPECT_EQ(cache.size(), 0U);
}

TEST_F(CudaLibraries, GiveAPlanToOneUserAtATime) {
  FftPlanCache cache(0);
  std::optional<FftPlan> first = cache.plan(of_size(16));
  std::optional<FftPlan> second = cache.plan(of_size(16));
  EXPECT_NE(first->handle(), second->handle());
  EXPECT_EQ(cache.size(), 2U);
  cache.clear();
  EXPECT_EQ(cache.size(), 0U) << "those in use go when they come back";
  const Tensor signal = zeros({32}, {.device = 0});
  auto* const data = static_cast<cufftComplex*>(signal.data());
  EXPECT_EQ(cufftExecC2C(first->handle(), data, data, CUFFT_FORWARD), CUFFT_SUCCESS);
  first.reset();
  second.reset();
  EXPECT_EQ(cache.size(), 0U);
  const FftPlan third = cache.plan(of_size(16));
  EXPECT_EQ(cache.size(), 1U);
}

TEST_F(CudaLibraries, RefuseTransformsThatThereAreNot) {
  FftPlanCache cache(0);
  EXPECT_TRUE(refuses([&] { static_cast<void>(cache.plan({})); }, ErrorCode::invalid_argument,
                      {"FftPlanCache::plan", "description.sizes has 0 entries", "expected 1 to 3"}));
  EXPECT_TRUE(refuses(
      [&] {
        static_cast<void>(cache.plan({.sizes = {2, 2, 2, 2}}));
      },
      ErrorCode::invalid_argument, {"has 4 entries"}));
  EXPECT_TRUE(refuses([&] { static_cast<void>(cache.plan(of_size(-1))); }, ErrorCode::device_failure,
                      {"cufftMakePlanMany64"}));
  EXPECT_EQ(cache.size(), 0U);
}

}  // namespace
}  // namespace tutti::test
