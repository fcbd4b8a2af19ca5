// SPDX-License-Identifier: Apache-2.0
#include "tutti/device.hpp"
#include "tutti/event.hpp"
#include "tutti/rng.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iostream>
#include <string>

#include <gtest/gtest.h>

/// Copies between pinned memory and a GPU run beside what the GPU computes on another stream. By the device's
/// own clock: what the host is busy with does not count.
namespace tutti {
namespace {

enum class Way : std::uint8_t { to_device, from_device };

constexpr std::int64_t elements = std::int64_t{16} << 20;  // 64 MiB in each copy
constexpr float wanted_ms = 20;                            // of kernels alone, and of copies alone
constexpr int attempts = 5;                                // others may use the links

class CopyOverlap : public testing::TestWithParam<Way> {
 protected:
  void compute(int rounds) const {
    const StreamGuard guard(computing_);
    for (int round = 0; round < rounds; ++round) normal_(numbers_);
  }
  void copy(int rounds) const {
    const StreamGuard guard(copying_);
    for (int round = 0; round < rounds; ++round) {
      if (GetParam() == Way::to_device) {
        on_device_.copy_(pinned_, Blocking::no);
      } else {
        pinned_.copy_(on_device_, Blocking::no);
      }
    }
  }

  /// Milliseconds until both streams have done what `queue` has queued on them.
  [[nodiscard]] float time_of(const std::function<void()>& queue) const {
    Event start({.enable_timing = true});
    Event end({.enable_timing = true});
    start.record(computing_);
    start.wait(copying_);
    queue();
    computing_.wait_stream(copying_);
    end.record(computing_);
    end.synchronize();
    return start.elapsed_time(end);
  }
  /// How many rounds of some work take as long as is wanted.
  [[nodiscard]] int rounds_of(const std::function<void(int)>& work) const {
    static_cast<void>(time_of([&] { work(2); }));  // kernels are loaded
    const float each = time_of([&] { work(4); }) / 4;
    return std::max(1, static_cast<int>(std::ceil(wanted_ms / each)));
  }

 private:
  Stream computing_{Device(0)};
  Stream copying_{Device(0)};
  Tensor numbers_ = empty({std::int64_t{1} << 26}, {.device = Device(0)});
  Tensor on_device_ = full({elements}, 3, {.device = Device(0)});
  Tensor pinned_ = full({elements}, 5, {.host_memory = HostMemory::pinned});
};

INSTANTIATE_TEST_SUITE_P(BothWays, CopyOverlap, testing::Values(Way::to_device, Way::from_device),
                         [](const auto& parameters) {
                           return std::string(parameters.param == Way::to_device ? "ToDevice" : "FromDevice");
                         });

TEST_P(CopyOverlap, TakesLessThanComputingAndCopyingInTurn) {
  synchronize(0);  // the tensors are filled on another stream
  const int computations = rounds_of([this](int rounds) { compute(rounds); });
  const int copies = rounds_of([this](int rounds) { copy(rounds); });
  bool is_overlapped = false;
  for (int attempt = 0; attempt < attempts && !is_overlapped; ++attempt) {
    const float computing = time_of([&] { compute(computations); });
    const float copying = time_of([&] { copy(copies); });
    const float both = time_of([&] {
      compute(computations);
      copy(copies);
    });
    std::cout << computing << " ms of kernels, " << copying << " ms of copies, both at once " << both
              << " ms\n";
    is_overlapped = both < 0.75F * (computing + copying);
  }
  EXPECT_TRUE(is_overlapped);
}

}  // namespace
}  // namespace tutti
