// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/environment.hpp"

#include <chrono>
#include <functional>

#include <gtest/gtest.h>

/// Measures times, and waits for other threads and processes.
namespace tutti::test {

/// Limit for calls that should not wait, with allowance for a busy machine.
inline const std::chrono::milliseconds at_once = patient(std::chrono::milliseconds(500));

/// Measures the time since its construction.
class Stopwatch {
 public:
  [[nodiscard]] std::chrono::steady_clock::duration elapsed() const {
    return std::chrono::steady_clock::now() - start_;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

[[nodiscard]] std::chrono::steady_clock::duration time_of(const std::function<void()>& call);

/// Polls a condition. Returns false if it takes longer than anything should.
[[nodiscard]] testing::AssertionResult becomes_true(const std::function<bool()>& condition);

}  // namespace tutti::test
