// SPDX-License-Identifier: Apache-2.0
#include "os/floating_point_environment.hpp"
#include "support/environment.hpp"
#include "tutti/collectives.hpp"
#include "tutti/rng.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"
#include "tutti/virtual_devices.hpp"

#include <cfenv>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/// Results are those of the default floating-point environment, whatever the program's is.
namespace tutti::test {
namespace {

/// An environment of a program's.
struct Disturbance {
  std::string name;
  void (*disturb)();
};

std::vector<Disturbance> disturbances() {
  std::vector<Disturbance> all{{"upward", [] { std::fesetround(FE_UPWARD); }},
                               {"toward_zero", [] { std::fesetround(FE_TOWARDZERO); }}};
#if defined(__x86_64__)
  all.push_back({"flush_to_zero", [] { _mm_setcsr(_mm_getcsr() | 0x8040U); }});
#elif defined(__aarch64__)
  all.push_back({"flush_to_zero", [] { asm volatile("msr fpcr, %0" ::"r"(std::uint64_t{1} << 24U)); }});
#endif
  return all;
}

class FloatingPoint : public testing::TestWithParam<Disturbance> {
 protected:
  void TearDown() override { default_.use(); }
  const backend::FloatingPointEnvironment default_ = backend::FloatingPointEnvironment::current();
};

using Bytes = std::vector<std::byte>;

const std::vector<float>& awkward() {
  static const std::vector<float> values{1e-40F, 1e-45F, 1.1754944e-38F, 1.0F,     0.1F, 1e8F,
                                         3e-8F,  7e-6F,  1.0009766F,     65519.0F, 0.3F, -0.7F};
  return values;
}

/// On streams that nobody has used: their threads start now.
std::vector<Bytes> results() {
  std::vector<Bytes> all;
  const std::vector<Device> devices = first_devices(2);
  const auto count = static_cast<std::int64_t>(awkward().size());
  const Tensor on_host = tutti::tensor(awkward(), {count});
  constexpr DType narrow[]{DType::float16, DType::bfloat16, DType::float8_e4m3, DType::float8_e5m2};
  for (const DType dtype : narrow) {
    all.push_back(on_host.to(dtype).to_bytes());
    for (const double value : {0.1, 1e-7, 3.3e-5, 1.0 / 3.0}) {
      all.push_back(full({3}, value, {.dtype = dtype}).to_bytes());
      all.push_back(full({3}, value, {.dtype = dtype, .device = 0}).to_bytes());
    }
  }
  all.push_back(full({3}, 1e-40, {.device = 0}).to_bytes());
  all.push_back(tutti::tensor(std::vector<double>{1e-40, 0.1, 1e-310}, {3}).to(DType::float32).to_bytes());
  std::deque<StreamGuard> guards;
  for (const Device device : devices) guards.emplace_back(Stream(device.index()));
  std::vector<Tensor> inputs;
  for (const Device device : devices) inputs.push_back(on_host.to(device));
  inputs.push_back(full({count}, 0.2, {.device = devices.back()}));
  all.push_back(reduce_add(inputs, devices.front()).to_bytes());
  const Tensor random = empty({1000}, {.device = 0});
  manual_seed_all(5);
  normal_(random, 0.1, 0.3);
  all.push_back(random.to_bytes());
  uniform_(random, -0.1, 0.7);
  all.push_back(random.to_bytes());
  for (const DType dtype : narrow) all.push_back(random.to(dtype).to_bytes());
  return all;
}

TEST_P(FloatingPoint, OfTheProgramChangesNoResult) {
  const std::vector<Bytes> expected = results();
  GetParam().disturb();
  const std::vector<Bytes> found = results();
  default_.use();
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(found[i], expected[i]) << "result " << i;
}

TEST_P(FloatingPoint, OfTheProgramIsLeftAsItIs) {
  GetParam().disturb();
  const int rounding = std::fegetround();
  const bool is_default = backend::FloatingPointEnvironment::current().is_default();
  static_cast<void>(results());
  const int rounding_afterwards = std::fegetround();
  const bool is_default_afterwards = backend::FloatingPointEnvironment::current().is_default();
  default_.use();
  EXPECT_FALSE(is_default);
  EXPECT_FALSE(is_default_afterwards);
  EXPECT_EQ(rounding_afterwards, rounding);
}

TEST_P(FloatingPoint, OfAVirtualKernelEndsWithIt) {
  if (!on_virtual_devices()) GTEST_SKIP() << "kernels of GPUs have none";
  const Stream stream(0);
  const auto nothing = std::span<const virtual_devices::Access>();
  virtual_devices::launch(stream, "disturbing", nothing, [](auto) { GetParam().disturb(); });
  bool is_default = false;
  virtual_devices::launch(stream, "asking", nothing, [&](auto) {
    is_default = backend::FloatingPointEnvironment::current().is_default();
  });
  stream.synchronize();
  EXPECT_TRUE(is_default);
}

INSTANTIATE_TEST_SUITE_P(All, FloatingPoint, testing::ValuesIn(disturbances()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tutti::test
