// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "files/place.hpp"
#include "os/descriptor.hpp"

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace tutti::files {

/// A new file beside a place, which it takes when it is complete. Its name is the target's with the process's
/// number, a further number if such a file exists already, and "part" appended. It is removed with the
/// object, unless it is delivered or kept. Different objects may be used on different threads.
class PartFile {
 public:
  PartFile() noexcept = default;
  /// Creates the file; if that fails, it is not open, and `errno` says why.
  explicit PartFile(const Place& place);
  PartFile(PartFile&& other) noexcept { swap(other); }
  PartFile& operator=(PartFile&& other) noexcept {
    swap(other);
    return *this;
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile();

  [[nodiscard]] bool is_open() const noexcept { return file_.is_open(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  /// Writes a text at position `start`. Returns false if not all of it can be written, and then `errno` says
  /// why. Raises no signal, not even SIGXFSZ where a file may not grow. Takes a microsecond.
  [[nodiscard]] bool write(std::size_t start, std::string_view text) const noexcept;
  /// Truncates the file to `size` bytes, if that is possible.
  void cut(std::size_t size) const noexcept;
  /// Renames the file to a name beside another place, if that is possible.
  void move_beside(const Place& place);
  /// Closes the file and leaves it where it is.
  void keep() noexcept { file_.close(); }
  /// Flushes the file to the disk and moves it to the place as `Place` says, or copies it there if no new
  /// file may take that place. Returns false if that fails; then `errno` says why, the file is unchanged, and
  /// so is what was at the place, unless it had to be copied there. Waits for a pipe's reader for `patience`
  /// at most.
  [[nodiscard]] bool deliver(const Place& place, std::chrono::milliseconds patience);
  /// Does the same, but never copies: what no new file may replace is a failure, and stays as it was.
  [[nodiscard]] bool replace(const Place& place);

 private:
  void swap(PartFile& other) noexcept;
  [[nodiscard]] bool take(const Place& place);
  [[nodiscard]] bool copy_to(const Place& place, std::chrono::milliseconds patience) const;

  std::string path_;
  Descriptor file_;
};

}  // namespace tutti::files
