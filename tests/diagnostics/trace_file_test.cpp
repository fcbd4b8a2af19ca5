// SPDX-License-Identifier: Apache-2.0
// Files of traces: where they are, what is in them whatever ends the process, and what they take the place
// of.

#include "diagnostics/trace_file.hpp"

#include "support/environment.hpp"
#include "support/traces.hpp"
#include "tutti/tutti.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti::watching {
namespace {

using test::Read;
using test::Traces;
using testing::HasSubstr;
using Names = std::vector<std::string>;

constexpr std::string_view first = R"({"ph":"M","name":"process_name","args":{"name":"a program"}})";
constexpr std::string_view a_mark = R"({"ph":"i","name":"here"})";

std::string part_of(const std::string& name, pid_t process) {
  return name + "." + std::to_string(process) + ".part";
}

void write_trace(const std::string& path) {
  TraceFile file(path, first);
  file.add(a_mark);
  file.finish();
}

TEST_F(Traces, AreInAFileWhateverEndsTheProcess) {
  const std::array<std::function<void()>, 3> ends{[] { raise(SIGKILL); }, [] { _exit(0); }, [] { abort(); }};
  for (const auto& end : ends) {
    int status = 0;
    const pid_t process = run_to_any_end(
        path("trace.json"),
        [&] {
          const rlimit no_core{};
          setrlimit(RLIMIT_CORE, &no_core);
          const std::vector<Tensor> tensors = test::one_on_each(test::first_devices(2));
          nvtx::range_push("never ended");
          for (int i = 0; i < 3; ++i) broadcast(tensors[0], tensors);
          nvtx::mark("last");
          end();
        },
        status);
    const std::string part = part_of("trace.json", process);
    EXPECT_EQ(files(), (Names{"errors", part}));
    const Read trace(contents(part));
    EXPECT_EQ(trace.slices("collective").size(), 3U);
    EXPECT_EQ(trace.phases("B").size(), 1U);
    EXPECT_EQ(trace.phases("i").size(), 1U);
    std::filesystem::remove(path(part));
  }
}

TEST_F(Traces, OfARankThatIsKilledHasItsRankInTheName) {
  int status = 0;
  const pid_t process = run_to_any_end(
      path("trace.json"),
      [&] {
        TraceFile file(path("trace.json"), first);
        file.name_by_rank(3);
        file.add(a_mark);
        file.write();
        raise(SIGKILL);
      },
      status);
  EXPECT_EQ(files(), (Names{"errors", part_of("trace.3.json", process)}));
  EXPECT_EQ(Read(contents(part_of("trace.3.json", process))).phases("i").size(), 1U);
}

TEST_F(Traces, AreWholeListsAtAnyTimeAndTakeTheirPlaceAtTheEnd) {
  folder_.make("trace.json", "old");
  chmod(path("trace.json").c_str(), 0640);
  std::filesystem::create_symlink("trace.json", path("link"));
  TraceFile file(path("link"), first);
  const std::string part = part_of("trace.json", getpid());
  EXPECT_EQ(files(), (Names{"link", "trace.json", part}));
  EXPECT_EQ(Read(contents(part)).process(), "a program");
  for (std::size_t i = 1; i <= 3; ++i) {
    file.add(a_mark);
    file.write();
    EXPECT_EQ(Read(contents(part)).phases("i").size(), i);
  }
  EXPECT_EQ(contents("trace.json"), "old");
  file.finish();
  EXPECT_EQ(files(), (Names{"link", "trace.json"}));
  EXPECT_EQ(Read(contents("link")).phases("i").size(), 3U);
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(folder_.status("trace.json").st_mode & 07777U, 0640U);
}

TEST_F(Traces, LeaveAPartFileOfAnotherAlone) {
  const std::string other = part_of("trace.json", getpid());
  folder_.make("victim", "old");
  std::filesystem::create_symlink("victim", path(other));
  write_trace(path("trace.json"));
  EXPECT_EQ(files(), (Names{"trace.json", other, "victim"}));
  EXPECT_EQ(contents("victim"), "old");
}

TEST_F(Traces, OfAFileWithTwoNamesAreInBoth) {
  folder_.make("one.json", "old");
  std::filesystem::create_hard_link(path("one.json"), path("two.json"));
  write_trace(path("one.json"));
  EXPECT_EQ(files(), (Names{"one.json", "two.json"}));
  EXPECT_EQ(Read(contents("two.json")).phases("i").size(), 1U);
}

TEST_F(Traces, GoThroughPipes) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  TraceFile file(path("pipe"), first);
  file.name_by_rank(1);
  file.add(a_mark);
  file.finish();
  std::array<char, 4096> text{};
  const ssize_t length = read(reader, text.data(), text.size());
  close(reader);
  ASSERT_GT(length, 0);
  EXPECT_EQ(Read(std::string(text.data(), static_cast<std::size_t>(length))).phases("i").size(), 1U);
  EXPECT_TRUE(S_ISFIFO(folder_.status("pipe").st_mode));
  EXPECT_EQ(files(), Names{"pipe"});
}

TEST_F(Traces, LeaveDevicesWhatTheyAre) {
  if (!folder_.make_memory_device("null", test::null_device))
    GTEST_SKIP() << "this user may not make devices";
  run(path("null"), [] {
    const std::vector<Tensor> tensors = test::one_on_each(test::first_devices(2));
    broadcast(tensors[0], tensors);
  });
  EXPECT_TRUE(S_ISCHR(folder_.status("null").st_mode));
  EXPECT_EQ(contents("errors"), "");
  EXPECT_EQ(files(), (Names{"errors", "null"}));
}

TEST_F(Traces, AreRefusedWhereTheFileMayNotBeWritten) {
  folder_.make("trace.json", "old");
  chmod(path("trace.json").c_str(), 0444);
  EXPECT_THROW(write_trace(path("trace.json")), std::system_error) << "by root, too";
  EXPECT_EQ(test::status_of_plain_user(
                folder_, [&] { EXPECT_THROW(write_trace(path("trace.json")), std::system_error); }),
            0);
  EXPECT_EQ(contents("trace.json"), "old");
  EXPECT_EQ(files(), Names{"trace.json"});
}

TEST_F(Traces, InAFolderThatTakesNoNewFileAreWrittenToTheOlderOneByOneProcess) {
  folder_.make("trace.json", "old and longer than what comes to be written");
  chmod(path("trace.json").c_str(), 0666);
  chmod(folder_.path().c_str(), 0555);
  EXPECT_EQ(test::status_of_plain_user(folder_,
                                       [&] {
                                         TraceFile file(path("trace.json"), first);
                                         EXPECT_THROW(write_trace(path("trace.json")), std::system_error);
                                         file.add(a_mark);
                                         file.finish();
                                       }),
            0);
  EXPECT_EQ(Read(contents("trace.json")).phases("i").size(), 1U);
}

TEST_F(Traces, StayReadableUpToWhereTheDiskIsFull) {
  folder_.make("trace.json", "old");
  int status = -1;
  const pid_t process = run_to_any_end(
      path("trace.json"),
      [&] {
        const rlimit limit{.rlim_cur = 1000, .rlim_max = 1000};
        EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
        TraceFile file(path("trace.json"), first);
        for (int i = 0; i < 1000; ++i) {
          file.add(a_mark);
          file.write();
        }
        file.finish();
      },
      status);
  EXPECT_EQ(status, 0);
  const std::string part = part_of("trace.json", process);
  EXPECT_THAT(contents("errors"), HasSubstr("the trace ends here"));
  EXPECT_THAT(contents("errors"), HasSubstr("what was written is in " + path(part)));
  EXPECT_GT(Read(contents(part)).phases("i").size(), 10U);
  EXPECT_EQ(contents("trace.json"), "old");
}

TEST_F(Traces, ThatNothingCouldBeWrittenToLeaveNoFile) {
  run(path("trace.json"), [&] {
    const rlimit none{};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
    write_trace(path("trace.json"));
  });
  EXPECT_EQ(files(), Names{"errors"});
}

TEST_F(Traces, StayInTheFolderWhereTheyBegan) {
  std::filesystem::create_directory(path("other"));
  run("trace.json", [&] {
    std::filesystem::current_path(path(""));
    TraceFile file("trace.json", first);
    std::filesystem::current_path("other");
    file.name_by_rank(3);
    file.add(a_mark);
    file.finish();
  });
  EXPECT_TRUE(std::filesystem::is_empty(path("other")));
  EXPECT_EQ(Read(contents("trace.3.json")).phases("i").size(), 1U);
  EXPECT_EQ(files(), (Names{"errors", "other", "trace.3.json"}));
}

TEST(TraceFile, NamesThoseOfRanksByTheirRanks) {
  EXPECT_EQ(TraceFile::name_for("a/trace.json", 3), "a/trace.3.json");
  EXPECT_EQ(TraceFile::name_for("a.b/trace", 3), "a.b/trace.3");
  EXPECT_EQ(TraceFile::name_for(".trace", 0), ".trace.0");
}

}  // namespace
}  // namespace tutti::watching
