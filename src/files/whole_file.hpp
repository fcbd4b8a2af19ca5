// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/descriptor.hpp"

#include <chrono>
#include <string>
#include <string_view>

namespace tutti::files {

/// A file that is written as a whole, once, by the rule that `Place` tells. Different ones may be used on
/// different threads.
class WholeFile {
 public:
  /// Finds out that something can be written there, and leaves a file that is there as it is. A stream gets a
  /// line's end to begin with, which readers of most formats pass over. Waits for a pipe's reader for
  /// `patience` at most. Throws std::system_error if nothing can be written.
  WholeFile(std::string path, std::chrono::milliseconds patience);

  /// Writes all of it. Throws std::system_error if that cannot be; then a file that was there stays, unless
  /// it had to be written where it is.
  void write(std::string_view text);

 private:
  /// Throws what `errno` says.
  void check(bool is_right) const;
  void write_to(int file, std::string_view text) const;

  std::string path_;
  std::chrono::milliseconds patience_;
  Descriptor where_it_is_;  ///< not open: a new file takes the place
};

}  // namespace tutti::files
