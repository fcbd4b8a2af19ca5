// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/descriptor.hpp"

#include <chrono>
#include <optional>
#include <string>

#include <sys/stat.h>

/// Writes files at paths which a user has named, for the library and for tutti-perf.
namespace tutti::files {

/// Describes a path to be written to, as it was found.
///
/// One rule holds for all files: a regular file with one name, which the path may lead to by links, is
/// replaced by a new file when that is complete, and until then stays as it was. The new file has its owner,
/// group and permissions. These are written in place instead: devices, pipes and whatever else is no regular
/// file; the targets of standard output and standard error; a file with several names or an access control
/// list; and a file whose folder or owner does not allow its replacement. A file that may not be written is
/// not replaced either.
class Place {
 public:
  explicit Place(std::string path);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Returns the path, or the file that it leads to by links, which a new file replaces.
  [[nodiscard]] const std::string& target() const noexcept { return target_; }
  /// Returns nothing if no file exists, as at the end of a dangling link.
  [[nodiscard]] const std::optional<struct stat>& status() const noexcept { return status_; }
  /// Returns true if it is no regular file, or the target of standard output or standard error: what is
  /// written there goes out at once.
  [[nodiscard]] bool is_stream() const noexcept { return is_stream_; }
  /// Returns true if the permissions allow writing.
  [[nodiscard]] bool may_be_written() const noexcept { return may_be_written_; }
  /// Returns true if a new file may replace it; otherwise it has to be written in place.
  [[nodiscard]] bool may_be_replaced() const noexcept { return may_be_replaced_; }

  /// Opens what exists for writing, or creates a file; waits for a pipe's reader for `patience` at most. A
  /// file keeps its contents. If that fails, the result is not open and `errno` says why.
  [[nodiscard]] Descriptor open_where_it_is(std::chrono::milliseconds patience) const;

 private:
  void follow_links();

  std::string path_;
  std::string target_;
  std::optional<struct stat> status_;
  bool is_stream_ = false;
  bool may_be_written_ = true;
  bool may_be_replaced_ = false;
};

/// Truncates a file that is to be written in place; a stream (see `Place`) stays as it is. Returns false if
/// that fails; then `errno` says why.
[[nodiscard]] bool empty(const Descriptor& file);

}  // namespace tutti::files
