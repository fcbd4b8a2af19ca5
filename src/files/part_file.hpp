// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "files/place.hpp"
#include "os/descriptor.hpp"

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace tutti::files {

/// A new file beside a place, which it takes when it is whole. Its name is the target's with the number of
/// the process, a further number if there is such a file already, and "part" behind it. Gone with the object,
/// unless it is delivered or kept. Different ones may be used on different threads.
class PartFile {
 public:
  PartFile() noexcept = default;
  /// Not open if there can be none; then `errno` says why.
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

  /// Writes a text, from a place in the file on; false if not all of it can be written, and then `errno` says
  /// why. No signal comes of it, as SIGXFSZ does where a file may not become longer. Takes a microsecond.
  [[nodiscard]] bool write(std::size_t start, std::string_view text) const noexcept;
  /// Leaves so many bytes in it, if that is possible.
  void cut(std::size_t size) const noexcept;
  /// Gives it a name beside another place, if that is possible.
  void move_beside(const Place& place);
  /// Closes it and leaves it where it is.
  void keep() noexcept { file_.close(); }
  /// Has it on the disk, then take a place as `Place` says, or copies it there where no new file may take
  /// that. False if that fails; then `errno` says why, the file is as it was, and what was at the place is,
  /// too, unless it had to be copied there. Waits for a pipe's reader for `patience` at most.
  [[nodiscard]] bool deliver(const Place& place, std::chrono::milliseconds patience);

 private:
  void swap(PartFile& other) noexcept;
  [[nodiscard]] bool take(const Place& place);
  [[nodiscard]] bool copy_to(const Place& place, std::chrono::milliseconds patience) const;

  std::string path_;
  Descriptor file_;
};

}  // namespace tutti::files
