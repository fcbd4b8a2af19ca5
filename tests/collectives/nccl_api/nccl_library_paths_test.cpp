// SPDX-License-Identifier: Apache-2.0
#include "support/temporary_folder.hpp"
#include "support/variable_guard.hpp"
#include "transport/nccl/library_paths.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

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

}  // namespace
}  // namespace tutti::transport::nccl
