// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/saved_optimizer.hpp"
#include "support/errors.hpp"
#include "support/full_disk.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/sharded_optimizer.hpp"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Files of a `ShardedOptimizer` among processes, whose rank 0 writes and reads them.
namespace tutti::test {
namespace {

CommunicatorOptions some_devices(const Exchange& exchange, int members) {
  CommunicatorOptions options;
  for (int i = 0; i < std::min(members, device_count()); ++i)
    options.devices.emplace_back((exchange.rank() * members + i) % device_count());
  return options;
}

/// The path that a rank gives: only rank 0's counts.
std::string path_on(const Exchange& exchange, const TemporaryFile& file) {
  return exchange.rank() == 0 ? file.path() : "/nowhere/at/all";
}

class OptimizerStateRanks : public testing::TestWithParam<int> {};

TEST_P(OptimizerStateRanks, WriteAndReadWhatOneProcessDoes) {
  const TemporaryFile file("ranks");
  const int members = GetParam();
  expect_all_right(members == 1 ? 3 : 2, [&](Exchange& exchange) {
    Communicator communicator(exchange, some_devices(exchange, members));
    ShardedOptimizer optimizer(communicator, saved_parameters(communicator), saved_options());
    fill_by_place(optimizer, 4);
    optimizer.save(path_on(exchange, file), "of rank " + std::to_string(exchange.rank()));
    const std::vector<char> bytes = file.read();
    fill_by_place(optimizer, 5);
    EXPECT_EQ(optimizer.load(path_on(exchange, file)), "of rank 0");
    EXPECT_TRUE(is_filled_by_place(optimizer, 4));
    transport::team::synchronize(exchange);
    if (exchange.rank() == 0) {
      Communicator alone({.devices = {Device(0)}});
      ShardedOptimizer same(alone, saved_parameters(alone), saved_options());
      EXPECT_EQ(same.load(file.path()), "of rank 0");
      EXPECT_TRUE(is_filled_by_place(same, 4));
      same.save(file.path(), "of rank 0");
      EXPECT_EQ(file.read(), bytes);
    }
    communicator.check();
  });
}

TEST_P(OptimizerStateRanks, HearAlikeOfAFileThatIsRefused) {
  const TemporaryFile file("refused");
  const int members = GetParam();
  expect_all_right(2, [&](Exchange& exchange) {
    Communicator communicator(exchange, some_devices(exchange, members));
    ShardedOptimizer optimizer(communicator, saved_parameters(communicator), saved_options());
    fill_by_place(optimizer, 4);
    EXPECT_TRUE(refuses([&] { static_cast<void>(optimizer.load(path_on(exchange, file))); },
                        ErrorCode::invalid_argument,
                        {"ShardedOptimizer::load: " + file.path() + ": No such file or directory"}));
    EXPECT_TRUE(refuses([&] { optimizer.save(exchange.rank() == 0 ? "/nowhere/at/all" : file.path()); },
                        ErrorCode::invalid_argument, {"ShardedOptimizer::save: /nowhere/at/all: "}));
    optimizer.save(path_on(exchange, file));
    if (exchange.rank() == 0) {
      std::vector<char> bytes = file.read();
      bytes[bytes.size() - 100] ^= 1;
      file.write(bytes);
    }
    EXPECT_TRUE(refuses([&] { static_cast<void>(optimizer.load(path_on(exchange, file))); },
                        ErrorCode::invalid_argument, {file.path() + ": has data of checksum "}));
    EXPECT_TRUE(is_filled_by_place(optimizer, 4));
    communicator.check();
  });
}

TEST_P(OptimizerStateRanks, HearAlikeOfADiskThatFillsUp) {
  const TemporaryFile file("full");
  const int members = GetParam();
  expect_all_right(2, [&](Exchange& exchange) {
    Communicator communicator(exchange, some_devices(exchange, members));
    ShardedOptimizer optimizer(communicator, saved_parameters(communicator), saved_options());
    fill_by_place(optimizer, 4);
    optimizer.save(path_on(exchange, file));
    const std::vector<char> before = file.read();
    fill_by_place(optimizer, 5);
    // In the header, in the data, and where only the checksum is missing.
    for (const std::size_t left : {std::size_t{0}, std::size_t{1000}, before.size() - 8}) {
      std::optional<FullDisk> disk;
      if (exchange.rank() == 0) disk.emplace(left);
      EXPECT_TRUE(refuses([&] { optimizer.save(path_on(exchange, file)); }, ErrorCode::invalid_argument,
                          {"ShardedOptimizer::save: " + file.path() + ": No space left on device"}));
      transport::team::synchronize(exchange);
      EXPECT_EQ(file.read(), before);
      EXPECT_TRUE(file.is_alone());
      transport::team::synchronize(exchange);  // before the next one is begun
    }
    communicator.check();
    optimizer.save(path_on(exchange, file));
    fill_by_place(optimizer, 6);
    EXPECT_EQ(optimizer.load(path_on(exchange, file)), "");
    EXPECT_TRUE(is_filled_by_place(optimizer, 5));
  });
}

INSTANTIATE_TEST_SUITE_P(MembersOfARank, OptimizerStateRanks, testing::Values(1, 2),
                         testing::PrintToStringParamName());

TEST(OptimizerStateOfLostRanks, LeavesTheOlderFile) {
  const TemporaryFile file("lost");
  Ranks ranks(3, [&](Exchange& exchange) {
    Communicator communicator(exchange, some_devices(exchange, 1));
    ShardedOptimizer optimizer(communicator, saved_parameters(communicator), saved_options());
    fill_by_place(optimizer, 4);
    optimizer.save(path_on(exchange, file));
    transport::team::synchronize(exchange);
    if (exchange.rank() == 2) std::raise(SIGKILL);
    fill_by_place(optimizer, 5);
    EXPECT_THROW(optimizer.save(path_on(exchange, file)), Error);
    // With those who are left, what has been saved is loaded.
    communicator = communicator.shrink();
    optimizer.rescale(communicator);
    EXPECT_EQ(optimizer.load(path_on(exchange, file)), "");
    EXPECT_TRUE(is_filled_by_place(optimizer, 4));
    EXPECT_TRUE(exchange.rank() != 0 || file.is_alone());
  });
  EXPECT_EQ(ranks.wait(), (std::vector<Ending>{all_right, all_right, killed}));
}

}  // namespace
}  // namespace tutti::test
