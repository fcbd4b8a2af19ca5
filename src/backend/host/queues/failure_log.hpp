// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/error.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <string_view>

namespace tutti::backend::host {

/// Keeps failures of one device's asynchronous work until a synchronising call reports them. Thread-safe.
class FailureLog {
 public:
  /// Adds a failure. Allocates no memory, as a lack of it may be the failure; a long message is cut.
  void add(std::string_view message, ErrorCode code = ErrorCode::device_failure) noexcept;
  /// Throws the first failure with the number of later ones, and forgets them; returns if there are none.
  void report();

 private:
  std::atomic<bool> pending_{false};
  std::mutex mutex_;
  std::array<char, 4096> first_{};
  std::size_t length_ = 0;
  ErrorCode code_ = ErrorCode::device_failure;  ///< of the first
  std::size_t later_ = 0;
};

}  // namespace tutti::backend::host
