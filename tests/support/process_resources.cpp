#include "support/process_resources.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tutti::test {

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(open), end(open)));
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
