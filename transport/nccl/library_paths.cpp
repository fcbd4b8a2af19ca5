// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl/library_paths.hpp"

#include "os/descriptor.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <system_error>

namespace tutti::transport::nccl {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view file_name = "libnccl.so.2";

/// Returns the folder `site-packages` of the first loaded library that is in one, or nothing.
std::optional<fs::path> loaded_site_packages() {
  std::istringstream maps(contents_of("/proc/self/maps").value_or(""));
  for (std::string line; std::getline(maps, line);) {
    const std::size_t begin = line.find('/');
    const std::size_t end = line.find("/site-packages/");
    if (begin == std::string::npos || end == std::string::npos || line.find(".so") == std::string::npos)
      continue;
    return fs::path(line.substr(begin, end - begin)) / "site-packages";
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> library_paths() {
  std::vector<fs::path> folders;
  if (const char* const home = std::getenv("NCCL_HOME"); home != nullptr && *home != '\0')
    folders.push_back(fs::path(home) / "lib");
  if (const std::optional<fs::path> packages = loaded_site_packages())
    folders.push_back(*packages / "nvidia/nccl/lib");
  for (const char* const folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                                   "/usr/local/lib", "/usr/local/cuda/lib64"})
    folders.emplace_back(folder);
  std::vector<std::string> paths;
  std::error_code ignored;
  for (const fs::path& folder : folders) {
    if (fs::exists(folder / file_name, ignored)) paths.push_back((folder / file_name).string());
  }
  return paths;
}

}  // namespace tutti::transport::nccl
