// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace tutti::test {

/// Makes the disk full for its lifetime: no write of the process makes a file longer once files have grown by
/// `left` bytes. What they have may be overwritten. A program that uses it has `full_disk.cpp` among its
/// sources.
class FullDisk {
 public:
  explicit FullDisk(std::size_t left = 0);
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk();
};

}  // namespace tutti::test
