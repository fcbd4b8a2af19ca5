// SPDX-License-Identifier: Apache-2.0
#include "support/process_resources.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tutti::test {
namespace {

std::size_t entries_of(const char* directory) {
  const std::filesystem::directory_iterator entries(directory);
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

}  // namespace

std::size_t open_descriptors() {
  return entries_of("/proc/self/fd");
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

}  // namespace tutti::test
