// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/environment.hpp"

#include <chrono>
#include <functional>

#include <gtest/gtest.h>

/// How long calls take, and waiting for what other threads and processes do.
namespace tutti::test {

/// For what takes no time but that of a busy machine.
inline const std::chrono::milliseconds at_once = patient(std::chrono::milliseconds(500));

/// Runs from its construction on.
class Stopwatch {
 public:
  [[nodiscard]] std::chrono::steady_clock::duration elapsed() const {
    return std::chrono::steady_clock::now() - start_;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

[[nodiscard]] std::chrono::steady_clock::duration time_of(const std::function<void()>& call);

/// Asks again and again; false if it takes longer than anything should.
[[nodiscard]] testing::AssertionResult becomes_true(const std::function<bool()>& condition);

}  // namespace tutti::test
