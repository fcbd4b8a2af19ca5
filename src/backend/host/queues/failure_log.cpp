// SPDX-License-Identifier: Apache-2.0
#include "backend/host/queues/failure_log.hpp"

#include <string>

#include <fmt/format.h>

namespace tutti::backend::host {

void FailureLog::add(std::string_view message, ErrorCode code) noexcept {
  const std::lock_guard lock(mutex_);
  if (pending_.load(std::memory_order_relaxed)) {
    ++later_;
    return;
  }
  length_ = message.copy(first_.data(), first_.size());
  code_ = code;
  pending_.store(true);
}

void FailureLog::report() {
  if (!pending_.load()) return;
  std::string message;
  ErrorCode code{};
  {
    const std::lock_guard lock(mutex_);
    if (!pending_.load(std::memory_order_relaxed)) return;  // another thread was first
    message.assign(first_.data(), length_);
    if (later_ != 0) message += fmt::format(" (and {} later failure{})", later_, later_ == 1 ? "" : "s");
    later_ = 0;
    code = code_;
    pending_.store(false);
  }
  throw Error(code, message);
}

}  // namespace tutti::backend::host
