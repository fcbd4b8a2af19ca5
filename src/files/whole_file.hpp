// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/descriptor.hpp"

#include <chrono>
#include <string>
#include <string_view>

namespace tutti::files {

/// Writes a whole file once, by the rule of `Place`. Different objects may be used on different threads.
class WholeFile {
 public:
  /// Checks that the path can be written, and leaves an existing file as it is. A stream gets an initial line
  /// end, which readers of most formats skip. Waits for a pipe's reader for `patience` at most. Throws
  /// std::system_error if nothing can be written.
  WholeFile(std::string path, std::chrono::milliseconds patience);

  /// Writes all of the text. Throws std::system_error if that fails; then an existing file stays, unless it
  /// had to be written in place.
  void write(std::string_view text);

 private:
  /// Throws std::system_error with `errno` unless `is_right`.
  void check(bool is_right) const;
  void write_to(int file, std::string_view text) const;

  std::string path_;
  std::chrono::milliseconds patience_;
  Descriptor where_it_is_;  ///< not open: a new file replaces the target
};

}  // namespace tutti::files
