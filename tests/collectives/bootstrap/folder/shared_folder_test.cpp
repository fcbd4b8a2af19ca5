// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/folder/shared_folder.hpp"

#include "collectives/bootstrap/network_messages.hpp"
#include "support/errors.hpp"
#include "support/timing.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"
#include "tutti/tensor.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

/// Ranks that meet in a shared folder, as threads. (The contract between processes runs over it, too: see
/// bootstrap/tcp/CMakeLists.txt.)
namespace tutti::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using shared_folder::Rendezvous;

constexpr auto invalid = ErrorCode::invalid_argument;

TEST_F(SharedFolder, GathersInOrderOfRanksAndIsLeftEmpty) {
  for (const int size : {1, 2, 5}) {
    on_ranks(size, [&](const Rendezvous& rendezvous) {
      shared_folder::Exchange exchange(rendezvous);
      EXPECT_EQ(exchange.rank(), rendezvous.rank);
      EXPECT_EQ(exchange.size(), size);
      for (const std::size_t bytes : {0U, 1U, 1000U, 3'000'000U}) {
        const std::vector<std::byte> mine(bytes, std::byte(rendezvous.rank + 1));
        std::vector<std::byte> all(bytes * static_cast<std::size_t>(size));
        exchange.all_gather(mine, all);
        for (std::size_t i = 0; i < all.size(); i += 997) ASSERT_EQ(all[i], std::byte(i / bytes + 1)) << i;
      }
    });
    EXPECT_TRUE(fs::is_empty(folder_)) << "after " << size << " ranks";
  }
}

TEST_F(SharedFolder, RanksMayMeetAgainAtOnce) {
  on_ranks(3, [](const Rendezvous& rendezvous) {
    {
      shared_folder::Exchange kept(rendezvous);
      for (int time = 0; time < 5; ++time) {
        shared_folder::Exchange exchange(rendezvous);
        EXPECT_EQ(meet(exchange).size(), 3U);
      }
      EXPECT_EQ(meet(kept).size(), 3U);
    }
    // Some leave before all have seen that all have come.
    for (int time = 0; time < 5; ++time) static_cast<void>(shared_folder::Exchange(rendezvous));
  });
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(SharedFolder, MakesACommunicator) {
  on_ranks(3, [](const Rendezvous& rendezvous) {
    Communicator communicator = shared_folder::make_communicator(rendezvous);
    EXPECT_EQ(communicator.devices().front().index(), rendezvous.rank % device_count());
    const Tensor sum = full({100}, rendezvous.rank + 1.0, {.device = communicator.devices().front()});
    communicator.all_reduce_add({sum}, {sum});
    EXPECT_EQ(sum.to_vector<float>(), std::vector<float>(100, 6.0F));
  });
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(SharedFolder, TakesNothingOfAnEarlierJobForItsOwn) {
  // All that two ranks have written, while both are there: as if they had been killed.
  const fs::path killed = folder_ + "-killed";
  std::latch is_copied(1);
  on_ranks(2, [&](const Rendezvous& rendezvous) {
    shared_folder::Exchange exchange(rendezvous);
    const std::unique_ptr<Network> network = exchange.network();
    network->send(1 - rendezvous.rank, message(rendezvous.rank, 0, 100'000));
    meet(exchange, std::byte{99});
    if (rendezvous.rank == 0) {
      fs::copy(folder_, killed, fs::copy_options::recursive);
      is_copied.count_down();
    }
    is_copied.wait();
  });
  for (int round = 0; round < 2; ++round) {
    fs::copy(killed, folder_, fs::copy_options::recursive);
    std::ofstream(*job() / ".part-0") << "half of a file";
    std::ofstream(*job() / "hello-1-0") << "a file that nobody has signed";
    chmod((*job() / "hello-1-0").c_str(), 0600);
    on_ranks(2, [&](const Rendezvous& rendezvous) {
      shared_folder::Exchange exchange(rendezvous);
      EXPECT_EQ(meet(exchange, std::byte(rendezvous.rank + 7)),
                (std::vector<std::byte>{std::byte{7}, std::byte{8}}));
    });
    EXPECT_TRUE(fs::is_empty(folder_));
  }
  fs::remove_all(killed);
}

TEST_F(SharedFolder, RanksMayComeInAnyOrder) {
  for (const int late : {0, 2}) {
    on_ranks(3, [&](const Rendezvous& rendezvous) {
      // Until the others have written, or for a while: nothing tells when they wait.
      if (rendezvous.rank == late) {
        while (!job()) std::this_thread::sleep_for(1ms);
      }
      shared_folder::Exchange exchange(rendezvous);
      EXPECT_EQ(meet(exchange).size(), 3U);
    });
  }
}

TEST_F(SharedFolder, MessagesToThoseWhoHaveLeftAreDropped) {
  std::latch has_left(1);
  on_ranks(2, [&](const Rendezvous& rendezvous) {
    shared_folder::Exchange exchange(rendezvous);
    std::unique_ptr<Network> network = exchange.network();
    if (rendezvous.rank == 0) {
      network.reset();
      return has_left.count_down();
    }
    has_left.wait();
    network->send(0, message(1, 0, 8));
    EXPECT_TRUE(network->is_delivered());
    EXPECT_FALSE(network->receive());
  });
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(SharedFolder, MissingRanksAreNamedInTime) {
  const auto in_short = [&](int rank, int size) {
    Rendezvous rendezvous = as_rank(rank, size);
    rendezvous.timeout = 1500ms;
    return rendezvous;
  };
  std::vector<std::jthread> threads;
  threads.emplace_back([&] {
    EXPECT_TRUE(refuses([&] { shared_folder::Exchange{in_short(0, 4)}; }, ErrorCode::timeout,
                        {"ranks 1 and 3 of 4", "within 1500 ms", folder_}));
  });
  threads.emplace_back([&] {
    EXPECT_TRUE(
        refuses([&] { shared_folder::Exchange{as_rank(2, 4)}; }, ErrorCode::timeout, {"ranks 1 and 3 of 4"}));
  });
  threads.clear();
  EXPECT_TRUE(refuses([&] { shared_folder::Exchange{in_short(1, 2)}; }, ErrorCode::timeout,
                      {"rank 0 has not answered in time"}));
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(SharedFolder, ARankThatGivesUpBeforeAllHaveMetHasLeft) {
  std::latch has_begun(3);
  std::latch has_given_up(1);
  std::vector<std::jthread> threads;
  for (const int rank : {0, 1, 2}) {
    threads.emplace_back([&, rank] {
      Rendezvous rendezvous = as_rank(rank, 3);
      has_begun.arrive_and_wait();
      if (rank == 1) {
        rendezvous.timeout = patient(300ms);
        EXPECT_TRUE(refuses([&] { shared_folder::Exchange{rendezvous}; }, ErrorCode::timeout,
                            {"rank 0 has arrived, but others have not in time"}));
        return has_given_up.count_down();
      }
      if (rank == 2) has_given_up.wait();
      rendezvous.timeout = patient(1s);
      EXPECT_TRUE(
          refuses([&] { shared_folder::Exchange{rendezvous}; }, ErrorCode::timeout, {"rank 1 of 3 has not"}));
    });
  }
  threads.clear();
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(SharedFolder, RanksWithoutTheSecretAreNotAnswered) {
  std::vector<std::jthread> threads;
  for (const int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      Rendezvous rendezvous = as_rank(rank, 2);
      rendezvous.timeout = 300ms;
      if (rank == 1) rendezvous.secret = "another secret..";
      EXPECT_TRUE(refuses([&] { shared_folder::Exchange{rendezvous}; }, ErrorCode::timeout,
                          {rank == 0 ? "rank 1 of 2" : "rank 0 has not answered"}));
    });
  }
}

TEST_F(SharedFolder, ARankOfAnotherNumberOfRanksIsRefused) {
  std::vector<std::jthread> threads;
  threads.emplace_back([&] {
    Rendezvous rendezvous = as_rank(0, 2);
    rendezvous.timeout = 2s;
    EXPECT_TRUE(refuses([&] { shared_folder::Exchange{rendezvous}; }, ErrorCode::timeout, {"rank 1 of 2"}));
  });
  EXPECT_TRUE(refuses([&] { shared_folder::Exchange{as_rank(1, 3)}; }, invalid,
                      {"rank 1 was started as one of 3, and rank 0 as one of 2"}));
  threads.clear();
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(SharedFolder, OfTwoProcessesOfOneRankOneIsRefused) {
  std::atomic<int> refused = 0;
  std::latch is_over(4);
  std::vector<std::jthread> threads;
  for (const int rank : {0, 1, 1, 2}) {
    threads.emplace_back([&, rank] {
      std::optional<shared_folder::Exchange> exchange;
      if (rank == 2) {
        while (hellos_of_rank_1() < 2) std::this_thread::sleep_for(1ms);
      }
      try {
        exchange.emplace(as_rank(rank, 3));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), invalid);
        EXPECT_NE(std::string(error.what()).find("rank 1 is there already"), std::string::npos);
        ++refused;
      }
      is_over.arrive_and_wait();
    });
  }
  threads.clear();
  EXPECT_EQ(refused, 1);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(SharedFolder, AProcessThatGivesUpLeavesTheOtherOfItsRankThere) {
  std::vector<std::jthread> threads;
  for (const int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      shared_folder::Exchange exchange(as_rank(rank, 3));
      EXPECT_EQ(meet(exchange).size(), 3U);
    });
  }
  static_cast<void>(session_with("here-1"));
  Rendezvous hasty = as_rank(1, 3);
  hasty.timeout = patient(1s);
  EXPECT_TRUE(refuses([&] { shared_folder::Exchange{hasty}; }, ErrorCode::timeout,
                      {"rank 0 has arrived, but others have not in time"}));
  shared_folder::Exchange exchange(as_rank(2, 3));
  EXPECT_EQ(meet(exchange).size(), 3U);
  threads.clear();
}

TEST_F(SharedFolder, RanksHearOfThoseWhoLeave) {
  on_ranks(3, [](const Rendezvous& rendezvous) {
    std::optional<shared_folder::Exchange> exchange(std::in_place, rendezvous);
    meet(*exchange);
    if (rendezvous.rank == 1) return exchange.reset();
    EXPECT_TRUE(refuses([&] { meet(*exchange); }, ErrorCode::peer_unavailable, {"rank 1 has left"}));
  });
  on_ranks(2, [](const Rendezvous& rendezvous) {
    std::optional<shared_folder::Exchange> exchange(std::in_place, rendezvous);
    meet(*exchange);
    if (rendezvous.rank == 0) return exchange.reset();
    EXPECT_TRUE(refuses([&] { meet(*exchange); }, ErrorCode::peer_unavailable, {"rank 0 has left"}));
  });
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(SharedFolder, LateRanksAndDifferentLengthsAreNamed) {
  on_ranks(3, [](const Rendezvous& rendezvous) {
    shared_folder::Exchange exchange(rendezvous);
    meet(exchange);
    exchange.limit_waits(300ms);
    if (rendezvous.rank == 2) return std::this_thread::sleep_for(1500ms);
    EXPECT_TRUE(refuses([&] { meet(exchange); }, ErrorCode::timeout, {"has given nothing within 300 ms"}));
  });
  on_ranks(2, [](const Rendezvous& rendezvous) {
    shared_folder::Exchange exchange(rendezvous);
    const std::vector<std::byte> mine(static_cast<std::size_t>(rendezvous.rank) + 1);
    std::vector<std::byte> all(2 * mine.size());
    EXPECT_TRUE(refuses([&] { exchange.all_gather(mine, all); }, invalid,
                        {"rank 1 has given 2 bytes, and rank 0 1"}));
    EXPECT_TRUE(refuses([&] { exchange.all_gather(mine, {}); }, invalid, {"all has 0 bytes, expected"}));
  });
}

TEST_F(SharedFolder, RefusesWhatIsNoRendezvous) {
  const auto refuses_one = [&](auto&& change, ErrorCode code, const std::vector<std::string>& about) {
    Rendezvous rendezvous = as_rank(0, 1);
    change(rendezvous);
    return refuses([&] { shared_folder::Exchange{rendezvous}; }, code, about);
  };
  EXPECT_TRUE(refuses_one([](auto& bad) { bad.size = 0; }, invalid, {"size is 0"}));
  EXPECT_TRUE(refuses_one([](auto& bad) { bad.rank = 1; }, invalid, {"rank is 1, expected 0 to 0"}));
  EXPECT_TRUE(refuses_one([](auto& bad) { bad.folder = ""; }, invalid, {"folder is empty"}));
  EXPECT_TRUE(refuses_one([](auto& bad) { bad.secret = "short"; }, invalid, {"secret has 5 byte(s)"}));
  EXPECT_TRUE(refuses_one([](auto& bad) { bad.timeout = 0s; }, invalid, {"timeout is 0 ms"}));
  EXPECT_TRUE(refuses_one([](auto& bad) { bad.folder += "/none"; }, ErrorCode::transport_failure,
                          {"/none: No such file or directory"}));
  chmod(folder_.c_str(), 0770);
  EXPECT_TRUE(refuses_one([](auto&) {}, invalid, {folder_, "has permissions 770"}));
  chmod(folder_.c_str(), 01777);
  EXPECT_FALSE(refuses_one([](auto&) {}, invalid, {}));
  chmod(folder_.c_str(), 0700);
}

TEST_F(SharedFolder, RefusesAJobsFolderOfOthers) {
  const auto job_in = [&](const std::function<void(const fs::path&)>& make) {
    fs::path path;
    {
      const shared_folder::Exchange exchange(as_rank(0, 1));
      path = *job();
    }
    make(path);
    const auto result = refuses([&] { shared_folder::Exchange{as_rank(0, 1)}; }, invalid, {path});
    fs::remove_all(path);
    return result;
  };
  EXPECT_TRUE(job_in([](const fs::path& path) {
    fs::create_directory(path);
    chmod(path.c_str(), 0755);
  }));
  EXPECT_TRUE(job_in([this](const fs::path& path) { fs::create_symlink(folder_, path); }));
  EXPECT_TRUE(job_in([](const fs::path& path) { std::ofstream(path) << "a file"; }));
  if (geteuid() != 0) return;  // only root can give a folder away
  EXPECT_TRUE(job_in([](const fs::path& path) {
    fs::create_directory(path);
    chmod(path.c_str(), 0700);
    ASSERT_EQ(chown(path.c_str(), 1, 1), 0);
  }));
}

TEST(SharedFolderEnvironment, NamesWhatIsMissing) {
  const auto with = [](const char* folder, const std::vector<std::string>& fragments) {
    folder == nullptr ? unsetenv("TUTTI_FOLDER") : setenv("TUTTI_FOLDER", folder, 1);
    return refuses([] { static_cast<void>(shared_folder::rendezvous()); }, invalid, fragments);
  };
  for (const char* name : {"RANK", "WORLD_SIZE", "SLURM_PROCID"}) unsetenv(name);
  EXPECT_TRUE(with("/tmp", {"neither RANK nor SLURM_PROCID is set"}));
  setenv("RANK", "1", 1);
  setenv("WORLD_SIZE", "2", 1);
  EXPECT_TRUE(with(nullptr, {"TUTTI_FOLDER is not set"}));
  EXPECT_TRUE(with("", {"TUTTI_FOLDER is not set"}));
  setenv("TUTTI_FOLDER", "/shared", 1);
  const Rendezvous found = shared_folder::rendezvous();
  EXPECT_EQ(found.folder, "/shared");
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.size, 2);
  for (const char* name : {"RANK", "WORLD_SIZE", "TUTTI_FOLDER"}) unsetenv(name);
}

}  // namespace
}  // namespace tutti::test
