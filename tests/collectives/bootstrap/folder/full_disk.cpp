// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/folder/full_disk.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

std::atomic<bool> is_full{false};

bool would_grow(int file, std::size_t bytes) {
  struct stat status {};
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  return lseek(file, 0, SEEK_CUR) + static_cast<off_t>(bytes) > status.st_size;
}

}  // namespace

/// Takes the place of the system library's function, in the whole process.
extern "C" ssize_t write(int file, const void* data, std::size_t bytes) {
  if (is_full.load() && would_grow(file, bytes)) {
    errno = ENOSPC;
    return -1;
  }
  return syscall(SYS_write, file, data, bytes);
}

namespace tutti::test {

FullDisk::FullDisk() {
  is_full.store(true);
}
FullDisk::~FullDisk() {
  is_full.store(false);
}

}  // namespace tutti::test
