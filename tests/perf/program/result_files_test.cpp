// SPDX-License-Identifier: Apache-2.0
#include "perf/program/program.hpp"
#include "support/temporary_folder.hpp"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

/// What tutti-perf writes stays whole, whatever ends the run.
namespace tutti::perf {
namespace {

class ResultFiles : public testing::Test {
 protected:
  [[nodiscard]] std::string in_folder(const std::string& name) const { return folder_.path(name); }
  /// By a shell, in the folder; `$PERF` is the program.
  [[nodiscard]] std::vector<std::string> by_shell(const std::string& command) const {
    const char* const path = std::getenv("TUTTI_PERF_PROGRAM");
    return {"/bin/sh", "-c",
            "cd '" + folder_.path() + "' && PERF='" + (path != nullptr ? path : "tutti-perf") + "' && " +
                command};
  }

  test::TemporaryFolder folder_;
};

TEST_F(ResultFiles, WhatCannotBeWrittenLeavesWhatWasThere) {
  std::ofstream(in_folder("old.json")) << "old";
  const Outcome outcome = outcome_of(by_shell(
      "ulimit -f 2 && exec \"$PERF\" broadcast -b 1K -e 64K -n 5 --devices 2 -J old.json >/dev/null"));
  EXPECT_EQ(outcome.status, 5);
  expect_one_line_about(outcome.error, "-J: 'old.json' could not be written: File too large");
  EXPECT_EQ(content_of(in_folder("old.json")), "old");
  EXPECT_EQ(folder_.files(), std::vector<std::string>{"old.json"});
}

TEST_F(ResultFiles, AMistakeLeavesNoFile) {
  const Outcome outcome = outcome_of(by_shell("exec \"$PERF\" broadcast -b 1K -e 1K -J none/new.json"));
  EXPECT_EQ(outcome.status, 2);
  expect_one_line_about(outcome.error, "-J: 'none/new.json' cannot be written: No such file or directory");
  EXPECT_TRUE(folder_.files().empty());
}

TEST_F(ResultFiles, LinksAndPermissionsStay) {
  std::ofstream(in_folder("file.json")) << "old";
  chmod(in_folder("file.json").c_str(), 0640);
  std::filesystem::create_symlink("file.json", in_folder("link.json"));
  const Outcome outcome =
      outcome_of(by_shell("exec \"$PERF\" broadcast -b 1K -e 1K -n 2 --devices 2 -J link.json"));
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_TRUE(std::filesystem::is_symlink(in_folder("link.json")));
  struct stat file {};
  ASSERT_EQ(stat(in_folder("file.json").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777U, 0640U);
  EXPECT_EQ(nlohmann::json::parse(content_of(in_folder("file.json")))["rows"].size(), 1U);
}

TEST_F(ResultFiles, OneOfSeveralNamesAndALinkToNothingAreWrittenWhereTheyAre) {
  std::ofstream(in_folder("one.json")) << "old";
  std::filesystem::create_hard_link(in_folder("one.json"), in_folder("two.json"));
  std::filesystem::create_symlink("new.json", in_folder("link.json"));
  for (const char* const name : {"one.json", "link.json"}) {
    const Outcome outcome =
        outcome_of(by_shell(std::string("exec \"$PERF\" broadcast -b 1K -e 1K -n 2 --devices 2 -J ") + name));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
  }
  EXPECT_TRUE(std::filesystem::is_symlink(in_folder("link.json")));
  for (const char* const name : {"two.json", "new.json"})
    EXPECT_EQ(nlohmann::json::parse(content_of(in_folder(name)))["rows"].size(), 1U) << name;
}

TEST_F(ResultFiles, DevicesStayAndOneThatTakesNothingIsFoundBeforeTheRun) {
  if (!folder_.make_memory_device("null", test::null_device) ||
      !folder_.make_memory_device("full", test::full_device))
    GTEST_SKIP() << "this user may not make devices";
  const std::string run = "exec \"$PERF\" broadcast -b 1K -e 1K -n 2 --devices 2 ";
  EXPECT_EQ(outcome_of(by_shell(run + "-J null")).status, 0);
  const Outcome refused = outcome_of(by_shell(run + "-J full"));
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.out, "");
  expect_one_line_about(refused.error, "-J: 'full' cannot be written: No space left on device");
  for (const char* const name : {"null", "full"}) EXPECT_TRUE(S_ISCHR(folder_.status(name).st_mode)) << name;
}

TEST_F(ResultFiles, ATerminalThatGoesEndsARunAsCtrlCDoes) {
  const Program program(by_shell("exec \"$PERF\" broadcast -b 1K -e 1G -r all --devices 4 -J run.json"));
  program.wait_for(" 1024 ");
  program.signal(SIGHUP);
  EXPECT_EQ(program.wait(), 130);
  expect_one_line_about(program.error(), "interrupted");
  EXPECT_EQ(nlohmann::json::parse(content_of(in_folder("run.json")))["summary"]["interrupted"], true);
}

TEST_F(ResultFiles, WrongElementsAreToldOfInterruptedRunsToo) {
  const Program program(
      by_shell("exec \"$TUTTI_PERF_DAMAGING\" broadcast -b 1K -e 1G -r all --devices 4 -J run.json"));
  program.wait_for(" 1024 ");
  program.interrupt();
  EXPECT_EQ(program.wait(), 130);
  EXPECT_NE(program.error().find("interrupted after"), std::string::npos) << program.error();
  EXPECT_NE(program.error().find("wrong elements: tutti "), std::string::npos) << program.error();
}

}  // namespace
}  // namespace tutti::perf
