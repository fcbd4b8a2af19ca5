// SPDX-License-Identifier: Apache-2.0
#include "base/patience.hpp"

#include "tutti/error.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tutti {
namespace {

thread_local constinit std::optional<std::chrono::milliseconds> patience_of_this_thread;

}  // namespace

std::optional<std::chrono::milliseconds> current_patience() noexcept {
  return patience_of_this_thread;
}

PatienceGuard::PatienceGuard(std::chrono::milliseconds patience) : previous_(patience_of_this_thread) {
  if (patience.count() <= 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("PatienceGuard: patience is {} ms, expected more than 0", patience.count()));
  }
  patience_of_this_thread = std::min(patience, longest_limit);
}

PatienceGuard::~PatienceGuard() {
  patience_of_this_thread = previous_;
}

}  // namespace tutti
