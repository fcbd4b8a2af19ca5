// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/descriptor.hpp"

#include <chrono>
#include <optional>
#include <string>

#include <sys/stat.h>

/// Files that are written at paths which a user has named: by the library, and by tutti-perf, too.
namespace tutti::files {

/// A path that is to be written to, as it was found.
///
/// The rule for all files: a regular file that has one name, which the path may lead to by links, gives its
/// place to a new file when that is whole, and until then stays as it was. The new file has its owner, group
/// and permissions. Everything else is written where it is, and never replaced: what is no regular file, such
/// as a device or a pipe; what standard output or standard error go to; a file that has several names or an
/// access control list; and one whose folder or owner does not allow that it is replaced. What may not be
/// written is not replaced either.
class Place {
 public:
  explicit Place(std::string path);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// The path, or the file that it leads to by links: what a new file takes the place of.
  [[nodiscard]] const std::string& target() const noexcept { return target_; }
  /// Nothing if there is none, as behind a link to nothing.
  [[nodiscard]] const std::optional<struct stat>& status() const noexcept { return status_; }
  /// What is there is no regular file, or is what standard output or standard error go to: it takes what is
  /// written as it comes.
  [[nodiscard]] bool is_stream() const noexcept { return is_stream_; }
  /// Permissions do not speak against it.
  [[nodiscard]] bool may_be_written() const noexcept { return may_be_written_; }
  /// A new file may take the place; else what is there has to be written where it is.
  [[nodiscard]] bool may_be_replaced() const noexcept { return may_be_replaced_; }

  /// Opens what is there for writing, or makes a file; waits for a pipe's reader for `patience` at most. A
  /// file keeps what is in it. Not open if that fails; then `errno` says why.
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

/// Empties a file that is to be written where it is; what is a stream (see `Place`) stays as it is. False if
/// that fails; then `errno` says why.
[[nodiscard]] bool empty(const Descriptor& file);

}  // namespace tutti::files
