// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tutti::test {

/// Makes the disk full for its lifetime: no write of the process may make a file longer, and what files have
/// may be overwritten.
class FullDisk {
 public:
  FullDisk();
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk();
};

}  // namespace tutti::test
