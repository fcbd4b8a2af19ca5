// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/descriptor.hpp"

#include <list>

namespace tutti {

/// A file opened anew, which children forked off do not inherit: what is locked by it (`flock`, locks of open
/// files) is free when this process closes it or ends, whoever lives on. In a child it is closed already.
/// Different ones may be used on different threads.
class UnsharedDescriptor {
 public:
  UnsharedDescriptor() noexcept = default;
  /// The file that `file` is, for reading and writing. Not open if the system refuses; then `errno` says why.
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
  /// -1 if it is not open.
  [[nodiscard]] int number() const noexcept;

 private:
  using Files = std::list<Descriptor>;
  struct OfProcess;

  std::list<Files::iterator> file_;  ///< one at most, which moves with the object
};

}  // namespace tutti
