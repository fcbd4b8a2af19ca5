// SPDX-License-Identifier: Apache-2.0
// The rule for files that are written at paths which a user has named: with stand-ins for everything that can
// be at a path.

#include "files/part_file.hpp"
#include "files/place.hpp"
#include "files/whole_file.hpp"
#include "support/environment.hpp"
#include "support/temporary_folder.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace tutti::files {
namespace {

using namespace std::chrono_literals;
using Names = std::vector<std::string>;

class Files : public testing::Test {
 protected:
  /// Writes a text at a path, and returns the error number that this ends with, or 0.
  static int write(const std::string& path, std::string_view text = "new",
                   std::chrono::milliseconds patience = 20ms) {
    try {
      WholeFile(path, patience).write(text);
      return 0;
    } catch (const std::system_error& error) {
      return error.code().value();
    }
  }
  [[nodiscard]] std::string path(std::string_view name) const { return folder_.path(name); }

  test::TemporaryFolder folder_;
};

TEST_F(Files, AFileIsReplacedAsAWhole) {
  const ino_t before = (folder_.make("file", "old"), folder_.status("file").st_ino);
  std::ifstream reader(path("file"));
  WholeFile file(path("file"), 20ms);
  EXPECT_EQ(folder_.contents("file"), "old");
  file.write("new");
  EXPECT_EQ(folder_.contents("file"), "new");
  EXPECT_NE(folder_.status("file").st_ino, before);
  std::string read_by_who_had_it_open;
  reader >> read_by_who_had_it_open;
  EXPECT_EQ(read_by_who_had_it_open, "old");
  EXPECT_EQ(folder_.files(), Names{"file"});
}

TEST_F(Files, ANewOneHasThePermissionsThatFilesGet) {
  const mode_t mask = umask(027);
  EXPECT_EQ(write(path("file")), 0);
  umask(mask);
  EXPECT_EQ(folder_.status("file").st_mode & 07777U, 0640U);
  EXPECT_EQ(folder_.files(), Names{"file"});
}

TEST_F(Files, OwnerAndPermissionsStay) {
  const std::string file = folder_.make("file", "old");
  ASSERT_TRUE(geteuid() != 0 || chown(file.c_str(), 1234, 2345) == 0);
  ASSERT_EQ(chmod(file.c_str(), 0464), 0);
  const struct stat before = folder_.status("file");
  EXPECT_EQ(write(file), geteuid() == 0 ? 0 : EACCES);
  const struct stat after = folder_.status("file");
  EXPECT_EQ(after.st_uid, before.st_uid);
  EXPECT_EQ(after.st_gid, before.st_gid);
  EXPECT_EQ(after.st_mode, before.st_mode);
  EXPECT_EQ(folder_.contents("file"), geteuid() == 0 ? "new" : "old");
}

TEST_F(Files, LinksStayAndWhatTheyLeadToIsReplaced) {
  std::filesystem::create_directory(path("elsewhere"));
  folder_.make("elsewhere/file", "old");
  std::filesystem::create_symlink("elsewhere/file", path("one"));
  std::filesystem::create_symlink("one", path("two"));
  EXPECT_EQ(PartFile(Place(path("two"))).path(),
            path("elsewhere/file") + "." + std::to_string(getpid()) + ".part");
  EXPECT_EQ(write(path("two")), 0);
  EXPECT_TRUE(std::filesystem::is_symlink(path("one")));
  EXPECT_TRUE(std::filesystem::is_symlink(path("two")));
  EXPECT_EQ(folder_.contents("elsewhere/file"), "new");
}

TEST_F(Files, ALinkToNothingStays) {
  std::filesystem::create_symlink("file", path("link"));
  EXPECT_EQ(write(path("link")), 0);
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(folder_.contents("file"), "new");
}

TEST_F(Files, TwoNamesOfOneFileStayThat) {
  folder_.make("one", "old and longer");
  std::filesystem::create_hard_link(path("one"), path("two"));
  EXPECT_EQ(write(path("one")), 0);
  EXPECT_EQ(folder_.contents("two"), "new");
  EXPECT_EQ(folder_.status("one").st_ino, folder_.status("two").st_ino);
  EXPECT_EQ(folder_.files(), (Names{"one", "two"}));
}

TEST_F(Files, AnAccessControlListStays) {
  // Version 2; owner rw, user 1234 r, group r, mask r, others nothing.
  constexpr std::array<std::uint32_t, 11> list{2,          0x60001, 0xffffffff, 0x40002, 1234,      0x40004,
                                               0xffffffff, 0x40010, 0xffffffff, 0x00020, 0xffffffff};
  const std::string file = folder_.make("file", "old");
  if (setxattr(file.c_str(), "system.posix_acl_access", list.data(), sizeof list, 0) != 0)
    GTEST_SKIP() << "no access control lists here";
  EXPECT_EQ(write(file), 0);
  EXPECT_EQ(folder_.contents("file"), "new");
  EXPECT_EQ(getxattr(file.c_str(), "system.posix_acl_access", nullptr, 0), static_cast<ssize_t>(sizeof list));
}

TEST_F(Files, APipeIsWrittenTo) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(write(path("pipe")), ENXIO) << "nobody reads";
  const int reader = open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  EXPECT_EQ(write(path("pipe")), 0);
  std::array<char, 16> text{};
  const ssize_t length = read(reader, text.data(), text.size());
  close(reader);
  EXPECT_EQ(std::string_view(text.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0))), "\nnew");
  EXPECT_TRUE(S_ISFIFO(folder_.status("pipe").st_mode));
}

TEST_F(Files, DevicesAreWrittenTo) {
  if (!folder_.make_memory_device("null", test::null_device) ||
      !folder_.make_memory_device("full", test::full_device))
    GTEST_SKIP() << "this user may not make devices";
  std::filesystem::create_symlink("null", path("link"));
  EXPECT_EQ(write(path("null")), 0);
  EXPECT_EQ(write(path("link")), 0);
  EXPECT_EQ(write(path("full")), ENOSPC);
  for (const char* const name : {"null", "full"}) EXPECT_TRUE(S_ISCHR(folder_.status(name).st_mode)) << name;
  EXPECT_EQ(folder_.files(), (Names{"full", "link", "null"}));
}

TEST_F(Files, FoldersAndCirclesAreRefused) {
  std::filesystem::create_symlink("circle", path("circle"));
  EXPECT_EQ(write(path("circle")), ELOOP);
  EXPECT_EQ(write(path("")), EISDIR);
  EXPECT_EQ(write(path("none/file")), ENOENT);
  EXPECT_EQ(write(path("none/")), EISDIR);
  EXPECT_EQ(folder_.files(), Names{"circle"});
}

TEST_F(Files, WhatStandardOutputGoesToIsWrittenBehindWhatIsPrinted) {
  EXPECT_EQ(test::status_of_process([&] {
              const int file = open(path("printed").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
              dup2(file, STDOUT_FILENO);
              dprintf(STDOUT_FILENO, "before");
              EXPECT_EQ(write("/proc/self/fd/1"), 0);
              EXPECT_EQ(write(path("printed")), 0);
              dprintf(STDOUT_FILENO, "after");
            }),
            0);
  EXPECT_EQ(folder_.contents("printed"), "before\nnew\nnewafter");
}

TEST_F(Files, WhatMayNotBeWrittenIsNotReplaced) {
  const std::string file = folder_.make("file", "old");
  ASSERT_EQ(chmod(file.c_str(), 0444), 0);
  EXPECT_EQ(write(file), EACCES) << "by root, too";
  EXPECT_EQ(test::status_of_plain_user(folder_, [&] { EXPECT_EQ(write(file), EACCES); }), 0);
  EXPECT_EQ(folder_.contents("file"), "old");
  EXPECT_EQ(folder_.files(), Names{"file"});
}

TEST_F(Files, InAFolderThatTakesNoNewFileAnOlderOneIsWrittenWhereItIs) {
  const std::string file = folder_.make("file", "old and longer");
  ASSERT_EQ(chmod(file.c_str(), 0666), 0);
  const ino_t before = folder_.status("file").st_ino;
  ASSERT_EQ(chmod(folder_.path().c_str(), 0555), 0);
  EXPECT_EQ(test::status_of_plain_user(folder_,
                                       [&] {
                                         EXPECT_EQ(write(file), 0);
                                         EXPECT_EQ(write(path("other")), EACCES);
                                       }),
            0);
  EXPECT_EQ(folder_.contents("file"), "new");
  EXPECT_EQ(folder_.status("file").st_ino, before);
}

TEST_F(Files, AFileOfAnotherOwnerStaysTheirs) {
  if (geteuid() != 0) GTEST_SKIP() << "this user may give nothing away";
  const std::string file = folder_.make("file", "old");
  ASSERT_EQ(chmod(file.c_str(), 0666), 0);
  for (const mode_t mode : {0755U, 01755U, 01777U}) {  // in a sticky folder, the system may refuse it
    ASSERT_EQ(chmod(folder_.path().c_str(), mode), 0);
    EXPECT_EQ(test::status_of_plain_user(folder_,
                                         [&] {
                                           const int error = write(file);
                                           EXPECT_TRUE(error == 0 || (mode != 0755U && error == EACCES))
                                               << error;
                                         }),
              0);
    EXPECT_EQ(folder_.status("file").st_uid, 0U);
    EXPECT_EQ(folder_.files(), Names{"file"});
  }
  EXPECT_EQ(folder_.contents("file"), "new");
}

TEST_F(Files, WhereTheDiskIsFullTheOlderFileStays) {
  folder_.make("file", "old");
  EXPECT_EQ(test::status_of_process([&] {
              const rlimit limit{.rlim_cur = 100, .rlim_max = 100};
              EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
              EXPECT_EQ(write(path("file"), std::string(1000, 'x')), EFBIG);
            }),
            0);
  EXPECT_EQ(folder_.contents("file"), "old");
  EXPECT_EQ(folder_.files(), Names{"file"});
}

TEST_F(Files, AnOlderPartFileStaysAndNoLinkInItsPlaceIsFollowed) {
  const std::string part = "file." + std::to_string(getpid());
  folder_.make(part + ".part", "of a process that was killed");
  folder_.make("victim", "old");
  std::filesystem::create_symlink("victim", path(part + "-2.part"));
  EXPECT_EQ(PartFile(Place(path("file"))).path(), path(part + "-3.part"));
  EXPECT_EQ(write(path("file")), 0);
  EXPECT_EQ(folder_.contents(part + ".part"), "of a process that was killed");
  EXPECT_EQ(folder_.contents("victim"), "old");
  EXPECT_EQ(folder_.contents("file"), "new");
}

TEST_F(Files, NobodyReadsANewFileBeforeWhoMayNotReadTheOlder) {
  const std::string file = folder_.make("file", "old");
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  const PartFile part{Place(file)};
  struct stat status {};
  ASSERT_EQ(stat(part.path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
}

}  // namespace
}  // namespace tutti::files
