// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace tutti::perf {

/// Makes a descriptor, for instance the standard output, a terminal of so many columns for its lifetime.
class Terminal {
 public:
  Terminal(int descriptor, unsigned short columns)
      : descriptor_(descriptor), reader_(posix_openpt(O_RDWR | O_NOCTTY)) {
    EXPECT_EQ(grantpt(reader_), 0);
    EXPECT_EQ(unlockpt(reader_), 0);
    const int writer = open(ptsname(reader_), O_RDWR | O_NOCTTY);
    winsize size{};
    size.ws_row = 10;
    size.ws_col = columns;
    EXPECT_EQ(ioctl(writer, TIOCSWINSZ, &size), 0);
    dup2(writer, descriptor_);
    close(writer);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() {
    dup2(before_, descriptor_);
    close(before_);
    close(reader_);
  }
  /// Returns the output since then.
  [[nodiscard]] std::string shown() const {
    std::array<char, 256> text{};
    const ssize_t length = read(reader_, text.data(), text.size());
    return length > 0 ? std::string(text.data(), static_cast<std::size_t>(length)) : "";
  }

 private:
  int descriptor_;
  int before_ = dup(descriptor_);
  int reader_;
};

}  // namespace tutti::perf
