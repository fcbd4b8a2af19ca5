// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti::test {

/// A folder that the object removes, with the files in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "tutti-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for a test");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, error);
    std::filesystem::remove_all(path_, error);
  }

  [[nodiscard]] std::string path(std::string_view name = "") const { return (path_ / name).string(); }
  [[nodiscard]] std::string contents(std::string_view name) const {
    std::ifstream file(path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// Makes a file and returns its path.
  std::string make(std::string_view name, std::string_view text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }
  [[nodiscard]] struct stat status(std::string_view name) const {
    struct stat status {};
    EXPECT_EQ(lstat(path(name).c_str(), &status), 0) << name;
    return status;
  }
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }
  /// Makes a node of the system's device 1:`minor`: 3 accepts all output, 7 is always full. Returns false if
  /// that is not allowed, as for most users. No test writes to the system's own nodes, which could be
  /// replaced.
  [[nodiscard]] bool make_memory_device(std::string_view name, unsigned minor) const {
    if (mknod(path(name).c_str(), S_IFCHR | 0666, makedev(1, minor)) != 0) return false;
    const int file = open(path(name).c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    close(file);
    return true;
  }

 private:
  std::filesystem::path path_;
};

inline constexpr unsigned null_device = 3;
inline constexpr unsigned full_device = 7;

/// Calls `work` in a child process, and returns the child's `waitpid` status. It exits with 1 if an
/// expectation has failed.
inline int status_of_process(const std::function<void()>& work) {
  std::fflush(nullptr);  // or the child writes what its parent has printed once more
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

/// Does the same as an unprivileged user who owns the folder.
inline int status_of_plain_user(const TemporaryFolder& folder, const std::function<void()>& work) {
  constexpr uid_t nobody = 65534;
  const bool is_root = geteuid() == 0;
  if (is_root && chown(folder.path().c_str(), nobody, nobody) != 0)
    ADD_FAILURE() << "cannot give a folder away";
  return status_of_process([&] {
    if (is_root && (setgroups(0, nullptr) != 0 || setgid(nobody) != 0 || setuid(nobody) != 0)) {
      ADD_FAILURE() << "cannot become another user";
      return;
    }
    work();
  });
}

}  // namespace tutti::test
