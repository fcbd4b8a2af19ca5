// SPDX-License-Identifier: Apache-2.0
#include "support/temporary_folder.hpp"
#include "support/variable_guard.hpp"
#include "transport/nccl/library_paths.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace tutti::transport::nccl {
namespace {

TEST(NcclLibraryPaths, BeginWithTheFolderThatIsNamedAndHaveFilesOnly) {
  const test::TemporaryFolder folder;
  const std::filesystem::path home = folder.path();
  const test::VariableGuard variable("NCCL_HOME", home.string());
  const std::string file = (home / "lib" / "libnccl.so.2").string();
  EXPECT_EQ(std::ranges::count(library_paths(), file), 0);
  std::filesystem::create_directory(home / "lib");
  std::ofstream(file) << "something";
  ASSERT_FALSE(library_paths().empty());
  EXPECT_EQ(library_paths().front(), file);
  for (const std::string& path : library_paths()) EXPECT_TRUE(std::filesystem::exists(path)) << path;
}

/// Returns what a program of the name finds, which is a copy of this one.
std::string found_by(const std::filesystem::path& program) {
  std::filesystem::copy_file("/proc/self/exe", program);
  const std::string command =
      program.string() + " --gtest_also_run_disabled_tests --gtest_filter='*DISABLED_Prints*' | grep '^/'";
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  for (int letter = std::fgetc(pipe); letter != EOF; letter = std::fgetc(pipe))
    text += static_cast<char>(letter);
  static_cast<void>(pclose(pipe));
  return text;
}

TEST(NcclLibraryPaths, DISABLED_Prints) {
  for (const std::string& path : library_paths()) std::printf("\n%s\n", path.c_str());
}

TEST(NcclLibraryPaths, HaveThePackageOfPythonAlone) {
  const test::TemporaryFolder folder;
  const std::filesystem::path root = folder.path();
  for (const char* const place : {"venv/lib/python3.12/site-packages", "lib/python3.11/dist-packages"}) {
    std::filesystem::create_directories(root / place / "nvidia/nccl/lib");
    std::ofstream(root / place / "nvidia/nccl/lib/libnccl.so.2") << "something";
  }
  std::filesystem::create_directory(root / "bin");
  const test::VariableGuard variable("VIRTUAL_ENV", (root / "venv").string());
  const std::string of_venv =
      (root / "venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2").string();
  const std::string of_python = (root / "lib/python3.11/dist-packages/nvidia/nccl/lib/libnccl.so.2").string();
  const std::string found = found_by(root / "bin/python3.11");
  EXPECT_LT(found.find(of_venv), found.find(of_python)) << found;
  EXPECT_NE(found.find(of_python), std::string::npos) << found;
  EXPECT_EQ(found_by(root / "bin/trainer").find(root.string()), std::string::npos);
}

}  // namespace
}  // namespace tutti::transport::nccl
