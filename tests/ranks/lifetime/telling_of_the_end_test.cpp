// SPDX-License-Identifier: Apache-2.0
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/communicator.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

/// What ranks write of the end of a communicator: afterwards, and without waiting for those who read it.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

/// Standard error of all ranks that are made while it lives.
class SharedLog {
 public:
  SharedLog() {
    EXPECT_EQ(pipe(ends_.data()), 0);
    dup2(ends_[1], STDERR_FILENO);
  }
  SharedLog(const SharedLog&) = delete;
  SharedLog& operator=(const SharedLog&) = delete;
  ~SharedLog() {
    restore();
    close_reader();
    close(ends_[1]);
    close(before_);
  }
  /// For this process.
  void restore() const { dup2(before_, STDERR_FILENO); }
  void close_reader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }
  void fill() const {
    fcntl(ends_[1], F_SETFL, O_NONBLOCK);
    const char byte = 'x';
    while (write(ends_[1], &byte, 1) > 0) continue;
    fcntl(ends_[1], F_SETFL, 0);
  }
  [[nodiscard]] std::string text() const {
    std::string text;
    std::array<char, 4096> bytes{};
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    for (ssize_t count = 0; (count = read(ends_[0], bytes.data(), bytes.size())) > 0;)
      text.append(bytes.data(), static_cast<std::size_t>(count));
    return text;
  }

 private:
  int before_ = dup(STDERR_FILENO);
  std::array<int, 2> ends_{};
};

/// Rank 1 of three is stopped where all make a call; the others expect to hear of it in time.
void lose_rank_1(Exchange& exchange) {
  Communicator communicator = make(exchange);
  const Tensor tensor = some_tensor();
  communicator.all_reduce_add({tensor}, {tensor});
  synchronize(0);
  transport::team::synchronize(exchange);  // the others have come here too
  if (exchange.rank() == 1) std::raise(SIGSTOP);
  const Stopwatch watch;
  const std::string text = failure_of(0, [&] { communicator.all_reduce_add({tensor}, {tensor}); });
  if (exchange.rank() == 1) return;
  EXPECT_LT(watch.elapsed(), timeout + slack);
  EXPECT_TRUE(mentions(text, {within_timeout, "rank 1 has not made it"}));
}

std::size_t count_of(const std::string& part, const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

TEST(TellingOfTheEnd, HoldsNobodyUpWhereNobodyReads) {
  const SharedLog log;
  log.fill();
  Ranks ranks(3, lose_rank_1);
  log.restore();
  ranks.resume_after_others(timeout + slack, 1);
  expect_endings(ranks, {all_right, all_right, all_right});
}

TEST(TellingOfTheEnd, KillsNobodyWhereTheReaderIsGone) {
  SharedLog log;
  log.close_reader();
  Ranks ranks(3, lose_rank_1);
  log.restore();
  ranks.resume_after_others(timeout + slack, 1);
  expect_endings(ranks, {all_right, all_right, all_right});
}

TEST(TellingOfTheEnd, OneRankWritesAFlightRecordAndTheOthersALine) {
  const SharedLog log;
  Ranks ranks(3, lose_rank_1);
  log.restore();
  ranks.resume_after_others(timeout + slack, 1);
  expect_endings(ranks, {all_right, all_right, all_right});
  const std::string text = log.text();
  EXPECT_EQ(count_of("flight record", text), 1U) << text;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(count_of(fmt::format("Communicator: ended on rank {} of 3: all_reduce", rank), text), 1U)
        << text;
  }
  std::smatch record;
  ASSERT_TRUE(std::regex_search(text, record, std::regex("flight record: (.*)\n"))) << text;
  const auto document = nlohmann::json::parse(record[1].str());
  EXPECT_TRUE(mentions(document["aborted"], {"rank 1 has not made it"}));
  EXPECT_EQ(document["ranks"].size(), 3U);
  EXPECT_EQ(document["ranks"][0]["calls"].back()["completed"], false);
  EXPECT_EQ(document["ranks"][1]["calls"].size(), 1U);
}

TEST(TellingOfTheEnd, OneRankOfAllHostsWritesAFlightRecord) {
  const SharedLog log;
  Ranks ranks(4, [](Exchange& exchange) {
    pretend_host(exchange.rank() / 2);
    lose_rank_1(exchange);
  });
  log.restore();
  ranks.resume_after_others(timeout + slack, 1);
  expect_endings(ranks, {all_right, all_right, all_right, all_right});
  const std::string text = log.text();
  EXPECT_EQ(count_of("flight record: ", text), 1U) << text;
  EXPECT_EQ(count_of("Communicator: ended on rank ", text), 4U) << text;
}

TEST(TellingOfTheEnd, AFlightRecordGoesToAFileWhereOneIsNamed) {
  const auto directory = std::filesystem::temp_directory_path() / fmt::format("tutti-records.{}", getpid());
  std::filesystem::create_directory(directory);
  const std::string path = directory / "record";
  const SharedLog log;
  Ranks ranks(3, [&](Exchange& exchange) {
    setenv("TUTTI_FLIGHT_RECORD", path.c_str(), 1);
    lose_rank_1(exchange);
  });
  log.restore();
  ranks.resume_after_others(timeout + slack, 1);
  expect_endings(ranks, {all_right, all_right, all_right});
  const std::string text = log.text();
  EXPECT_EQ(count_of("schema", text), 0U) << text;
  std::smatch name;
  ASSERT_TRUE(std::regex_search(text, name, std::regex("the flight record is in (.*)\n"))) << text;
  const std::string file = name[1];
  EXPECT_TRUE(file == path + ".0" || file == path + ".2") << file;
  std::stringstream content;
  content << std::ifstream(file).rdbuf();
  EXPECT_EQ(count_of("\n", content.str()), 1U);
  EXPECT_EQ(nlohmann::json::parse(content.str())["written_by"], file.back() - '0');
  std::filesystem::remove_all(directory);
}

TEST(TellingOfTheEnd, AFlightRecordThatCannotBeWrittenToItsFileIsMissedInALine) {
  const SharedLog log;
  Ranks ranks(3, [&](Exchange& exchange) {
    setenv("TUTTI_FLIGHT_RECORD", "/nowhere/record", 1);
    lose_rank_1(exchange);
  });
  log.restore();
  ranks.resume_after_others(timeout + slack, 1);
  expect_endings(ranks, {all_right, all_right, all_right});
  EXPECT_EQ(count_of("no flight record: /nowhere/record.", log.text()), 1U);
}

TEST(TellingOfTheEnd, NothingIsSaidOfOneThatARankHasWanted) {
  const SharedLog log;
  Ranks ranks(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    if (exchange.rank() == 0) communicator.abort("enough");
    EXPECT_TRUE(becomes_true([&] { return !communicator.is_running(); }));
  });
  log.restore();
  expect_endings(ranks, {all_right, all_right});
  EXPECT_EQ(log.text(), "");
}

}  // namespace
}  // namespace tutti::test::ranks
