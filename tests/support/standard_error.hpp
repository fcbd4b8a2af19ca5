// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace tutti::test {

/// Captures this process's standard error during its lifetime, up to the capacity of a pipe.
class StandardError {
 public:
  StandardError() : before_(dup(STDERR_FILENO)) {
    if (pipe(ends_) != 0) ADD_FAILURE() << "no pipe";
    dup2(ends_[1], STDERR_FILENO);
  }
  StandardError(const StandardError&) = delete;
  StandardError& operator=(const StandardError&) = delete;
  ~StandardError() { static_cast<void>(end()); }

  [[nodiscard]] std::string end() {
    if (before_ < 0) return {};
    dup2(before_, STDERR_FILENO);
    close(before_);
    before_ = -1;
    close(ends_[1]);
    std::string text;
    char buffer[4096];
    for (ssize_t length = 0; (length = ::read(ends_[0], buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<std::size_t>(length));
    close(ends_[0]);
    return text;
  }

 private:
  int before_;
  int ends_[2] = {-1, -1};
};

}  // namespace tutti::test
