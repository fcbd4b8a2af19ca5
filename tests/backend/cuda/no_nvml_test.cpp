// SPDX-License-Identifier: Apache-2.0
// A machine with GPUs on which NVML is not installed: the loader does not find it.

#include "support/errors.hpp"
#include "tutti/device.hpp"
#include "tutti/telemetry.hpp"

#include <functional>
#include <string_view>
#include <utility>

#include <dlfcn.h>
#include <gtest/gtest.h>

/// Takes the place of the C library's for the whole program.
extern "C" void* dlopen(const char* name, int flags) noexcept {
  if (name != nullptr && std::string_view(name) == "libnvidia-ml.so.1") return nullptr;
  using Dlopen = void* (*)(const char*, int);
  static const auto next = reinterpret_cast<Dlopen>(dlsym(RTLD_NEXT, "dlopen"));
  return next(name, flags);
}

namespace tutti {
namespace {

TEST(Telemetry, SaysThatNvmlIsNotThere) {
  ASSERT_EQ(backend_kind(), BackendKind::cuda);
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"utilization", [] { static_cast<void>(utilization(0)); }},
      {"memory_usage", [] { static_cast<void>(memory_usage(0)); }},
      {"temperature", [] { static_cast<void>(temperature(0)); }},
      {"power_draw", [] { static_cast<void>(power_draw(0)); }},
      {"clock_rate", [] { static_cast<void>(clock_rate(0)); }},
      {"memory_clock_rate", [] { static_cast<void>(memory_clock_rate(0)); }},
      {"throttle_reasons", [] { static_cast<void>(throttle_reasons(0)); }},
      {"list_gpu_processes", [] { static_cast<void>(list_gpu_processes(0)); }},
  };
  for (const auto& [name, call] : calls) {
    EXPECT_TRUE(test::refuses(call, ErrorCode::unsupported,
                              {name, "device 0 cannot be queried", "NVML (libnvidia-ml.so.1)",
                               "NVIDIA's driver", "cannot be loaded"}));
  }
}

}  // namespace
}  // namespace tutti
