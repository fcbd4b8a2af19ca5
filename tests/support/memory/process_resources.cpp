// SPDX-License-Identifier: Apache-2.0
#include "support/memory/process_resources.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <system_error>
#include <thread>

#include <malloc.h>

/// Returns how many bytes the heap of a sanitizer has allocated; absent where there is none.
// NOLINTNEXTLINE(readability-identifier-naming): the sanitizers have named it
extern "C" [[gnu::weak]] std::size_t __sanitizer_get_current_allocated_bytes();

namespace tutti::test {
namespace {

std::size_t entries_of(const char* directory) {
  const std::filesystem::directory_iterator entries(directory);
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

/// What each descriptor stands for. The one that the directory is read by is gone by then.
std::map<std::string, std::string> descriptors() {
  std::map<std::string, std::string> result;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code is_closed;
    const std::string target = read_symlink(entry.path(), is_closed).string();
    if (!is_closed && !target.ends_with("/fd")) result.emplace(entry.path().filename().string(), target);
  }
  return result;
}

bool is_pipe(const std::string& target) {
  return target.starts_with("pipe:");
}

}  // namespace

std::size_t open_descriptors() {
  static std::map<std::string, std::string> known_pipes;
  auto found = descriptors();
  const auto is_new_pipe = [](const auto& descriptor) {
    const auto known = known_pipes.find(descriptor.first);
    return is_pipe(descriptor.second) && (known == known_pipes.end() || known->second != descriptor.second);
  };
  // Threads under sanitizers have pipes for a moment each, to see whether memory may be read.
  if (std::ranges::any_of(found, is_new_pipe)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto later = descriptors();
    std::erase_if(found, [&](const auto& descriptor) {
      const auto still = later.find(descriptor.first);
      return is_new_pipe(descriptor) && (still == later.end() || still->second != descriptor.second);
    });
    for (const auto& descriptor : found) {
      if (is_pipe(descriptor.second)) known_pipes.insert_or_assign(descriptor.first, descriptor.second);
    }
  }
  return found.size();
}

std::size_t threads() {
  return entries_of("/proc/self/task");
}

std::size_t shared_mappings() {
  std::ifstream map("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(map, line);) {
    if (line.find("memfd:tutti") != std::string::npos) ++count;
  }
  return count;
}

std::size_t heap_bytes() {
  if (__sanitizer_get_current_allocated_bytes != nullptr) return __sanitizer_get_current_allocated_bytes();
  const struct mallinfo2 heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

}  // namespace tutti::test
