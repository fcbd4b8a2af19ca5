// SPDX-License-Identifier: Apache-2.0
#include "device/capture_gate.hpp"

#include "device/runtime.hpp"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using namespace std::chrono_literals;

TEST(CaptureGate, LetsWaitsInBetweenCapturesThatOverlap) {
  CaptureGate gate(Runtime::get());
  std::atomic<int> captures = 0;
  std::atomic<bool> is_over = false;
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      while (!is_over) {
        const CaptureGate::Capture capture(gate);
        ++captures;
        std::this_thread::sleep_for(1ms);
        --captures;
      }
    });
  }
  constexpr int waits = 20;
  int undisturbed = 0;
  for (int i = 0; i < waits; ++i) {
    while (captures < 2) std::this_thread::yield();
    const CaptureGate::Wait wait(gate);
    undisturbed += captures == 0 ? 1 : 0;
  }
  is_over = true;
  EXPECT_GE(undisturbed, waits / 2) << "captures were held up longer than a wait lets them be";
}

TEST(CaptureGate, HoldsNobodyUpForLong) {
  CaptureGate gate(Runtime::get());
  const CaptureGate::Wait first(gate);
  const CaptureGate::Capture begins_all_the_same(gate);
  const CaptureGate::Wait waits_no_longer(gate);
}

}  // namespace
}  // namespace tutti
