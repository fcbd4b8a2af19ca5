// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/process.hpp"

#include <array>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// Communicators of the C interface begin, are split and end, with all ranks in one process.
namespace tutti::test {
namespace {

TEST_F(NcclProcess, ThreadsSplitTheRanksOfOneGroup) {
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      ncclComm_t part = nullptr;
      TUTTI_ASSERT_SUCCESS(ncclCommSplit(comms_[rank], rank == 2 ? 1 : 0, 0, &part, nullptr));
      int count = 0;
      TUTTI_EXPECT_SUCCESS(ncclCommCount(part, &count));
      EXPECT_EQ(count, rank == 2 ? 1 : 2);
      TUTTI_EXPECT_SUCCESS(
          ncclAllReduce(tensors_[rank].data(), tensors_[rank].data(), 2, ncclFloat, ncclSum, part, nullptr));
      synchronize(static_cast<int>(rank));
      TUTTI_EXPECT_SUCCESS(ncclCommDestroy(part));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tensors_[0].to_vector<float>(), (Floats{1, 2}));
  EXPECT_EQ(tensors_[2].to_vector<float>(), (Floats{2, 1}));
}

TEST_F(NcclProcess, ThreadsHaveTheCommunicatorsOfAGroupInAnyOrder) {
  Comms others{};
  TUTTI_ASSERT_SUCCESS(ncclCommInitAll(others.data(), 3, nullptr));
  const auto in_turn = [&](std::size_t rank, const auto& call) {
    const std::array<ncclComm_t, 2> both{comms_[rank], others[rank]};
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    for (std::size_t i = 0; i < 2; ++i) call(both[(i + rank) % 2], (i + rank) % 2);
    TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
  };
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      std::array<ncclComm_t, 2> parts{};
      in_turn(rank, [&](ncclComm_t comm, std::size_t which) {
        const int color = which == 0 ? 0 : static_cast<int>(rank == 2);
        TUTTI_EXPECT_SUCCESS(ncclCommSplit(comm, color, 0, &parts[which], nullptr));
      });
      int count = 0;
      TUTTI_EXPECT_SUCCESS(ncclCommCount(parts[0], &count));
      EXPECT_EQ(count, 3);
      TUTTI_EXPECT_SUCCESS(ncclCommCount(parts[1], &count));
      EXPECT_EQ(count, rank == 2 ? 1 : 2);
      in_turn(rank, [&](ncclComm_t comm, std::size_t) {
        float* const data = tensors_[rank].data<float>();
        TUTTI_EXPECT_SUCCESS(ncclAllReduce(data, data, 2, ncclFloat, ncclSum, comm, nullptr));
      });
      synchronize(static_cast<int>(rank));
      for (const ncclComm_t part : parts) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(part));
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_all({9, 9});
  for (const ncclComm_t other : others) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(other));
}

TEST_F(NcclProcess, OfAGroupsSplitsAllAreMadeOrNone) {
  Comms others{};
  TUTTI_ASSERT_SUCCESS(ncclCommInitAll(others.data(), 3, nullptr));
  Comms parts{};
  std::array<ncclComm_t, 4> other_parts{};
  TUTTI_ASSERT_SUCCESS(ncclGroupStart());
  for (std::size_t rank = 0; rank < 3; ++rank)
    TUTTI_EXPECT_SUCCESS(ncclCommSplit(comms_[rank], 0, 0, &parts[rank], nullptr));
  for (const std::size_t i : {0U, 1U, 2U, 3U})
    TUTTI_EXPECT_SUCCESS(ncclCommSplit(others[i % 3], 0, 0, &other_parts[i], nullptr));
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_NE(last_sentence().find("rank 0 calls it a second time"), std::string::npos) << last_sentence();
  EXPECT_EQ(parts, Comms{});
  EXPECT_EQ(other_parts, (std::array<ncclComm_t, 4>{}));
  for (const ncclComm_t other : others) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(other));
}

TEST_F(NcclProcess, ARankIsNotSplitTwiceAtATime) {
  Comms parts{};
  TUTTI_ASSERT_SUCCESS(ncclGroupStart());
  for (const std::size_t rank : {0U, 1U, 1U})
    TUTTI_EXPECT_SUCCESS(ncclCommSplit(comms_[rank], 0, 0, &parts[rank], nullptr));
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("rank 1 calls it a second time"), std::string::npos);
  EXPECT_EQ(parts, Comms{});
  TUTTI_ASSERT_SUCCESS(ncclGroupStart());
  for (std::size_t rank = 0; rank < 3; ++rank) TUTTI_EXPECT_SUCCESS(all_reduce(rank));
  TUTTI_ASSERT_SUCCESS(ncclGroupEnd());
}

TEST_F(NcclProcess, ACommunicatorIsDestroyedWhenItsGroupEnds) {
  TUTTI_ASSERT_SUCCESS(ncclGroupStart());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    TUTTI_EXPECT_SUCCESS(all_reduce(rank));
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comms_[rank]));
    EXPECT_EQ(all_reduce(rank, ncclFloat), ncclInvalidArgument) << "it has been destroyed for the program";
  }
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(tensors_[2].to_vector<float>(), (Floats{2, 1}));
  TUTTI_ASSERT_SUCCESS(ncclCommInitAll(comms_.data(), 3, nullptr));
  TUTTI_ASSERT_SUCCESS(ncclGroupStart());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    TUTTI_EXPECT_SUCCESS(all_reduce(rank));
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comms_[rank]));
  }
  TUTTI_ASSERT_SUCCESS(ncclGroupEnd());
  comms_ = {};
  expect_all({3, 3});
}

TEST_F(NcclProcess, AnAbortEndsTheCallsOfOtherThreads) {
  std::thread waiting([&] { EXPECT_NE(all_reduce(0), ncclSuccess); });
  TUTTI_EXPECT_SUCCESS(ncclCommAbort(comms_[1]));
  comms_[1] = nullptr;
  waiting.join();
  ncclResult_t state = ncclSuccess;
  TUTTI_EXPECT_SUCCESS(ncclCommGetAsyncError(comms_[2], &state));
  EXPECT_EQ(state, ncclRemoteError);
}

TEST_F(NcclProcess, AnAbortDropsWhatTheGroupHasQueuedForTheRank) {
  TUTTI_ASSERT_SUCCESS(ncclGroupStart());
  for (std::size_t rank = 0; rank < 3; ++rank) TUTTI_EXPECT_SUCCESS(all_reduce(rank));
  for (ncclComm_t& comm : comms_) TUTTI_EXPECT_SUCCESS(ncclCommAbort(std::exchange(comm, nullptr)));
  TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
  for (std::size_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(tensors_[rank].to_vector<float>(), (Floats{static_cast<float>(rank), 1}));
}

TEST_F(NcclProcess, AGroupHasNoCallsOfWhatAnotherThreadHasAborted) {
  TUTTI_ASSERT_SUCCESS(ncclGroupStart());
  for (std::size_t rank = 0; rank < 3; ++rank) TUTTI_EXPECT_SUCCESS(all_reduce(rank));
  std::thread([&] { TUTTI_EXPECT_SUCCESS(ncclCommAbort(std::exchange(comms_[1], nullptr))); }).join();
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_NE(last_sentence().find("communicator of rank 1"), std::string::npos) << last_sentence();
  EXPECT_EQ(tensors_[0].to_vector<float>(), (Floats{0, 1}));
}

TEST_F(NcclProcess, AnIdWhoseRanksOneThreadHasMadeIsUsedUp) {
  ncclUniqueId id{};
  ncclComm_t whole = nullptr;
  TUTTI_ASSERT_SUCCESS(ncclGetUniqueId(&id));
  TUTTI_ASSERT_SUCCESS(ncclCommInitRank(&whole, 1, id, 0));
  ncclComm_t late = nullptr;
  EXPECT_EQ(ncclCommInitRank(&late, 2, id, 1), ncclInvalidArgument);
  EXPECT_NE(last_sentence().find("has been made already"), std::string::npos) << last_sentence();
  TUTTI_EXPECT_SUCCESS(ncclCommDestroy(whole));
}

TEST(NcclThreads, MayMakeTheirOwnRanks) {
  boot("island", 3);
  ncclUniqueId id{};
  TUTTI_ASSERT_SUCCESS(ncclGetUniqueId(&id));
  const auto body = [&](int rank) {
    set_device(rank);
    ncclComm_t comm = nullptr;
    TUTTI_ASSERT_SUCCESS(ncclCommInitRank(&comm, 3, id, rank));
    ncclComm_t part = nullptr;
    TUTTI_EXPECT_SUCCESS(ncclCommSplit(comm, rank == 1 ? NCCL_SPLIT_NOCOLOR : 0, -rank, &part, nullptr));
    EXPECT_EQ(part == nullptr, rank == 1);
    {
      const Tensor sum = tensor(Floats{static_cast<float>(rank), 1}, {.device = rank});
      TUTTI_EXPECT_SUCCESS(ncclAllReduce(sum.data(), sum.data(), 2, ncclFloat, ncclSum, comm, nullptr));
      if (part != nullptr) {
        TUTTI_EXPECT_SUCCESS(ncclAllReduce(sum.data(), sum.data(), 2, ncclFloat, ncclSum, part, nullptr));
      }
      EXPECT_EQ(sum.to_vector<float>(), part == nullptr ? (Floats{3, 3}) : (Floats{6, 6}));
    }
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(part));
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

TEST(NcclThreads, MakeRanksThatFollowOneAnother) {
  boot("island", 3);
  ncclUniqueId id{};
  TUTTI_ASSERT_SUCCESS(ncclGetUniqueId(&id));
  std::array<ncclComm_t, 3> comms{};
  std::thread other([&] {
    set_device(1);
    EXPECT_EQ(ncclCommInitRank(&comms[1], 3, id, 1), ncclInvalidUsage);
  });
  TUTTI_EXPECT_SUCCESS(ncclGroupStart());
  for (const int rank : {0, 2}) {
    set_device(rank);
    TUTTI_EXPECT_SUCCESS(ncclCommInitRank(&comms[static_cast<std::size_t>(rank)], 3, id, rank));
  }
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  other.join();
  EXPECT_NE(last_sentence().find("ranks 0 and 2"), std::string::npos) << last_sentence();
  EXPECT_EQ(comms, (std::array<ncclComm_t, 3>{}));
}

TEST(NcclConfigs, ThatDoNotBlockMakeRanksOfAGroup) {
  boot("island", 2);
  ncclUniqueId id{};
  TUTTI_ASSERT_SUCCESS(ncclGetUniqueId(&id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  std::array<ncclComm_t, 2> comms{};
  TUTTI_EXPECT_SUCCESS(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank) {
    set_device(rank);
    TUTTI_EXPECT_SUCCESS(
        ncclCommInitRankConfig(&comms[static_cast<std::size_t>(rank)], 2, id, rank, &config));
  }
  TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
  for (const ncclComm_t comm : comms) {
    ncclResult_t state = ncclInProgress;
    TUTTI_EXPECT_SUCCESS(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclSuccess);
    TUTTI_EXPECT_SUCCESS(ncclCommFinalize(comm));
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  }
}

TEST(NcclConfigs, ThatAreNotInitializedAreRefused) {
  ncclUniqueId id{};
  ncclConfig_t config{};
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  EXPECT_NE(last_sentence().find("NCCL_CONFIG_INITIALIZER"), std::string::npos) << last_sentence();
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 0), ncclInvalidArgument);
  EXPECT_NE(last_sentence().find("unique id"), std::string::npos) << last_sentence();
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
}

}  // namespace
}  // namespace tutti::test
