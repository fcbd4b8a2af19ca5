// SPDX-License-Identifier: Apache-2.0
#include "support/full_disk.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();
std::atomic<std::int64_t> space_left{unlimited};

/// Takes the space that a write needs which ends at `end`. Returns false if there is not as much.
bool takes_space(int file, off_t end) {
  struct stat status {};
  const bool is_file = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  if (!is_file || end <= status.st_size) return true;
  const std::int64_t growth = end - status.st_size;
  return space_left.fetch_sub(growth) >= growth;
}

bool has_space(int file, off_t begin, std::size_t bytes) {
  if (space_left.load() == unlimited || takes_space(file, begin + static_cast<off_t>(bytes))) return true;
  errno = ENOSPC;
  return false;
}

}  // namespace

// They take the place of the system library's functions, or the sanitizer's, in the whole process, and call
// them.
extern "C" ssize_t write(int file, const void* data, std::size_t bytes) {
  static const auto next = reinterpret_cast<decltype(&write)>(dlsym(RTLD_NEXT, "write"));
  if (space_left.load() != unlimited && !has_space(file, lseek(file, 0, SEEK_CUR), bytes)) return -1;
  return next(file, data, bytes);
}
extern "C" ssize_t pwrite(int file, const void* data, std::size_t bytes, off_t place) {
  static const auto next = reinterpret_cast<decltype(&pwrite)>(dlsym(RTLD_NEXT, "pwrite"));
  return has_space(file, place, bytes) ? next(file, data, bytes, place) : -1;
}
extern "C" ssize_t pwrite64(int file, const void* data, std::size_t bytes, off64_t place) {
  return pwrite(file, data, bytes, place);
}

namespace tutti::test {

FullDisk::FullDisk(std::size_t left) {
  space_left.store(static_cast<std::int64_t>(left));
}
FullDisk::~FullDisk() {
  space_left.store(unlimited);
}

}  // namespace tutti::test
