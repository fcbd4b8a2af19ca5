// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/descriptor.hpp"

#include <list>

namespace tutti {

/// Reopens a file so that forked children do not keep it open: its locks (`flock`, open file description
/// locks) are released when this process closes it or ends, even if children live on. In a child the
/// descriptor is closed. Different objects may be used on different threads.
class UnsharedDescriptor {
 public:
  UnsharedDescriptor() noexcept = default;
  /// Opens the file behind `file` anew, for reading and writing. If the system refuses, it is not open, and
  /// `errno` says why.
  explicit UnsharedDescriptor(const Descriptor& file);
  UnsharedDescriptor(UnsharedDescriptor&& other) noexcept { file_.swap(other.file_); }
  UnsharedDescriptor& operator=(UnsharedDescriptor&& other) noexcept {
    file_.swap(other.file_);
    return *this;
  }
  UnsharedDescriptor(const UnsharedDescriptor&) = delete;
  UnsharedDescriptor& operator=(const UnsharedDescriptor&) = delete;
  ~UnsharedDescriptor();

  [[nodiscard]] bool is_open() const noexcept { return number() >= 0; }
  /// Returns the descriptor's number, or -1 if it is not open.
  [[nodiscard]] int number() const noexcept;

 private:
  using Files = std::list<Descriptor>;
  struct OfProcess;

  std::list<Files::iterator> file_;  ///< at most one; splicing moves it with the object
};

}  // namespace tutti
