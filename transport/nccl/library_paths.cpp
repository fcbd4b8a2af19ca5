// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl/library_paths.hpp"

#include "os/descriptor.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <system_error>

#include <fmt/format.h>

namespace tutti::transport::nccl {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view file_name = "libnccl.so.2";

/// Adds the folders of packages among loaded libraries, which Python's modules come from.
void add_packages_of_loaded_libraries(std::vector<fs::path>& folders) {
  std::istringstream maps(contents_of("/proc/self/maps").value_or(""));
  for (std::string line; std::getline(maps, line);) {
    const std::size_t begin = line.find('/');
    const std::size_t end = line.find("-packages/");
    if (begin == std::string::npos || end == std::string::npos || line.find(".so") == std::string::npos)
      continue;
    const fs::path folder = line.substr(begin, end - begin) + "-packages";
    if (std::ranges::find(folders, folder) == folders.end()) folders.push_back(folder);
  }
}

/// Adds the folders of packages of a Python that is installed below a prefix.
void add_packages_below(const fs::path& prefix, std::vector<fs::path>& folders) {
  constexpr int latest = 30;
  std::vector<std::string> pythons{"python3"};
  for (int minor = latest; minor > 0; --minor) pythons.push_back(fmt::format("python3.{}", minor));
  for (const std::string& python : pythons) {
    for (const char* const name : {"site-packages", "dist-packages"})
      folders.push_back(prefix / "lib" / python / name);
  }
}

/// Returns the folders where packages of the process's Python may be; empty for other programs.
std::vector<fs::path> package_folders() {
  std::vector<fs::path> folders;
  add_packages_of_loaded_libraries(folders);
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  if (!program.filename().string().starts_with("python")) return folders;
  for (const char* const variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* const prefix = std::getenv(variable); prefix != nullptr && *prefix != '\0')
      add_packages_below(prefix, folders);
  }
  add_packages_below(program.parent_path().parent_path(), folders);
  add_packages_below("/usr/local", folders);
  return folders;
}

}  // namespace

std::vector<std::string> library_paths() {
  std::vector<fs::path> folders;
  if (const char* const home = std::getenv("NCCL_HOME"); home != nullptr && *home != '\0')
    folders.push_back(fs::path(home) / "lib");
  for (const fs::path& packages : package_folders()) folders.push_back(packages / "nvidia/nccl/lib");
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
