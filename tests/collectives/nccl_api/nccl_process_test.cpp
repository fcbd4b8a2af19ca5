// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/rank.hpp"
#include "support/machines/machines.hpp"
#include "support/ranks.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

/// The C interface, with all ranks in one process.
namespace tutti::test {
namespace {

using Floats = std::vector<float>;
using Comms = std::array<ncclComm_t, 3>;

/// A communicator of three devices of this process.
class NcclProcess : public testing::Test {
 protected:
  void SetUp() override {
    boot("island", 3);
    TUTTI_ASSERT_SUCCESS(ncclCommInitAll(comms_.data(), 3, nullptr));
    for (int device = 0; device < 3; ++device)
      tensors_.push_back(tensor(Floats{static_cast<float>(device), 1}, {.device = device}));
  }
  void TearDown() override {
    // In any order.
    for (const std::size_t i : {1U, 2U, 0U}) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comms_[i]));
  }

  ncclResult_t all_reduce(std::size_t rank, ncclDataType_t type = ncclFloat) {
    return ncclAllReduce(tensors_[rank].data(), tensors_[rank].data(), 2, type, ncclSum, comms_[rank],
                         nullptr);
  }
  void expect_all(const Floats& values) {
    for (const Tensor& tensor : tensors_) EXPECT_EQ(tensor.to_vector<float>(), values);
  }

  Comms comms_{};
  std::vector<Tensor> tensors_;
};

TEST_F(NcclProcess, AGroupIsOneCallOfAllDevices) {
  TUTTI_ASSERT_SUCCESS(ncclGroupStart());
  for (std::size_t rank = 0; rank < 3; ++rank) TUTTI_EXPECT_SUCCESS(all_reduce(rank));
  TUTTI_ASSERT_SUCCESS(ncclGroupEnd());
  expect_all({3, 3});
}

TEST_F(NcclProcess, MessagesAreReceivedWhereOthersAreSentFrom) {
  TUTTI_EXPECT_SUCCESS(ncclGroupStart());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    float* const data = tensors_[rank].data<float>();
    const int own = static_cast<int>(rank);
    TUTTI_EXPECT_SUCCESS(ncclSend(data, 2, ncclFloat, (own + 1) % 3, comms_[rank], nullptr));
    TUTTI_EXPECT_SUCCESS(ncclRecv(data, 2, ncclFloat, (own + 2) % 3, comms_[rank], nullptr));
  }
  TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
  for (std::size_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(tensors_[rank].to_vector<float>(), (Floats{static_cast<float>((rank + 2) % 3), 1}));
}

TEST_F(NcclProcess, AGroupOfSeveralKindsRoundTheDevices) {
  const std::array<Tensor, 3> parts{zeros({6}, {.device = 0}), zeros({6}, {.device = 1}),
                                    zeros({6}, {.device = 2})};
  for (int device = 0; device < 3; ++device) synchronize(device);
  TUTTI_ASSERT_SUCCESS(ncclGroupStart());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    TUTTI_EXPECT_SUCCESS(
        ncclAllGather(tensors_[rank].data(), parts[rank].data(), 2, ncclFloat, comms_[rank], nullptr));
    TUTTI_EXPECT_SUCCESS(all_reduce(rank));
    TUTTI_EXPECT_SUCCESS(ncclReduce(tensors_[rank].data(), tensors_[rank].data(), 2, ncclFloat, ncclMax, 1,
                                    comms_[rank], nullptr));
    TUTTI_EXPECT_SUCCESS(
        ncclBroadcast(tensors_[rank].data(), tensors_[rank].data(), 2, ncclFloat, 2, comms_[rank], nullptr));
  }
  TUTTI_ASSERT_SUCCESS(ncclGroupEnd());
  for (const Tensor& part : parts) EXPECT_EQ(part.to_vector<float>(), (Floats{0, 1, 1, 1, 2, 1}));
  expect_all({3, 3});
}

TEST_F(NcclProcess, ThreadsMakeTheCallsOfTheirOwnDevices) {
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      set_device(static_cast<int>(rank));
      for (int i = 0; i < 20; ++i) TUTTI_EXPECT_SUCCESS(all_reduce(rank));
      synchronize(static_cast<int>(rank));
    });
  }
  for (std::thread& thread : threads) thread.join();
  float ones = 1;
  for (int i = 0; i < 20; ++i) ones *= 3;
  expect_all({ones, ones});
}

TEST_F(NcclProcess, ThreadsExchangeMessagesWithoutTheOthers) {
  std::vector<std::thread> threads;
  threads.emplace_back(
      [&] { TUTTI_EXPECT_SUCCESS(ncclSend(tensors_[2].data(), 2, ncclFloat, 0, comms_[2], nullptr)); });
  threads.emplace_back(
      [&] { TUTTI_EXPECT_SUCCESS(ncclRecv(tensors_[0].data(), 2, ncclFloat, 2, comms_[0], nullptr)); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tensors_[0].to_vector<float>(), (Floats{2, 1}));
  EXPECT_EQ(tensors_[1].to_vector<float>(), (Floats{1, 1}));
}

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

TEST_F(NcclProcess, BadArgumentsAreNamedAndQueueNothing) {
  const std::uint64_t before = virtual_devices::operations_enqueued();
  void* const data = tensors_[0].data();
  EXPECT_EQ(ncclAllReduce(data, data, 2, static_cast<ncclDataType_t>(12), ncclSum, comms_[0], nullptr),
            ncclInvalidArgument);
  EXPECT_NE(last_sentence().find("ncclAllReduce: datatype is 12, expected 0 to 11"), std::string::npos)
      << last_sentence();
  EXPECT_EQ(ncclReduce(data, data, 2, ncclFloat, static_cast<ncclRedOp_t>(7), 0, comms_[0], nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclBroadcast(data, data, 2, ncclFloat, 3, comms_[0], nullptr), ncclInvalidArgument);
  EXPECT_NE(last_sentence().find("root is 3"), std::string::npos) << last_sentence();
  EXPECT_EQ(ncclSend(data, 2, ncclFloat, -1, comms_[0], nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(data, data, 2, ncclFloat, ncclSum, nullptr, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  int count = 0;
  EXPECT_EQ(ncclCommCount(comms_[0], nullptr), ncclInvalidArgument);
  TUTTI_EXPECT_SUCCESS(ncclCommCount(comms_[0], &count));
  EXPECT_EQ(count, 3);
  EXPECT_EQ(virtual_devices::operations_enqueued(), before);
}

TEST_F(NcclProcess, AGroupWithABadCallMakesNone) {
  TUTTI_ASSERT_SUCCESS(ncclGroupStart());
  for (std::size_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(all_reduce(rank, rank == 1 ? ncclNumTypes : ncclFloat),
              rank == 1 ? ncclInvalidArgument : ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_NE(last_sentence().find("datatype is 12"), std::string::npos) << last_sentence();
  EXPECT_EQ(tensors_[2].to_vector<float>(), (Floats{2, 1}));
  TUTTI_ASSERT_SUCCESS(ncclGroupStart());
  for (std::size_t rank = 0; rank < 3; ++rank) TUTTI_EXPECT_SUCCESS(all_reduce(rank));
  TUTTI_ASSERT_SUCCESS(ncclGroupEnd());
  expect_all({3, 3});
}

TEST_F(NcclProcess, RanksOfAGroupThatDifferAreNamed) {
  TUTTI_ASSERT_SUCCESS(ncclGroupStart());
  for (std::size_t rank = 0; rank < 3; ++rank)
    TUTTI_EXPECT_SUCCESS(ncclAllReduce(tensors_[rank].data(), tensors_[rank].data(), rank == 2 ? 1 : 2,
                                       ncclFloat, ncclSum, comms_[rank], nullptr));
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_NE(last_sentence().find("rank 0 and rank 2"), std::string::npos) << last_sentence();
  EXPECT_EQ(tensors_[1].to_vector<float>(), (Floats{1, 1}));
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

TEST_F(NcclProcess, WhatIsNotCarriedOutIsRefusedWithASentence) {
  ncclComm_t other = nullptr;
  int excluded = 1;
  EXPECT_EQ(ncclCommShrink(comms_[0], &excluded, 1, &other, nullptr, NCCL_SHRINK_DEFAULT), ncclInvalidUsage);
  EXPECT_NE(last_sentence().find("ncclCommShrink"), std::string::npos) << last_sentence();
  uint64_t value = 0;
  EXPECT_EQ(ncclCommMemStats(comms_[0], ncclStatGpuMemTotal, &value), ncclInvalidUsage);
}

TEST_F(NcclProcess, AFailingDeviceIsReported) {
  const InjectedFault fault({.operation = virtual_devices::Operation::kernel,
                             .kind = virtual_devices::FaultKind::fail,
                             .count = forever});
  TUTTI_ASSERT_SUCCESS(ncclGroupStart());
  for (std::size_t rank = 0; rank < 3; ++rank) TUTTI_EXPECT_SUCCESS(all_reduce(rank));
  EXPECT_EQ(ncclGroupEnd(), ncclUnhandledCudaError);
  EXPECT_FALSE(last_sentence().empty());
}

TEST(NcclSeeds, GroupsDeliverInAnyOrderOfStreams) {
  boot("island", 2);
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    virtual_devices::set_interleaving_seed(seed);
    std::array<ncclComm_t, 2> comms{};
    TUTTI_ASSERT_SUCCESS(ncclCommInitAll(comms.data(), 2, nullptr));
    std::vector<Tensor> tensors;
    for (int device = 0; device < 2; ++device) tensors.push_back(full({100}, device + 1, {.device = device}));
    const std::array<Stream, 2> streams{Stream(0), Stream(1)};
    for (int device = 0; device < 2; ++device)
      streams[static_cast<std::size_t>(device)].wait_stream(default_stream(device));
    TUTTI_ASSERT_SUCCESS(ncclGroupStart());
    for (std::size_t rank = 0; rank < 2; ++rank) {
      void* const data = tensors[rank].data();
      TUTTI_EXPECT_SUCCESS(
          ncclAllReduce(data, data, 100, ncclFloat, ncclSum, comms[rank], handle_of(streams[rank])));
      TUTTI_EXPECT_SUCCESS(
          ncclAllReduce(data, data, 100, ncclFloat, ncclProd, comms[rank], handle_of(streams[rank])));
    }
    TUTTI_ASSERT_SUCCESS(ncclGroupEnd());
    for (std::size_t rank = 0; rank < 2; ++rank) {
      streams[rank].synchronize();
      EXPECT_EQ(tensors[rank].to_vector<float>(), Floats(100, 9));
    }
    for (const ncclComm_t comm : comms) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
    tensors.clear();
  }
  virtual_devices::set_interleaving_seed(std::nullopt);
}

TEST(NcclCapture, AGroupIsCapturedAndReplayed) {
  boot("island", 2);
  std::array<ncclComm_t, 2> comms{};
  TUTTI_ASSERT_SUCCESS(ncclCommInitAll(comms.data(), 2, nullptr));
  std::vector<Tensor> tensors;
  for (int device = 0; device < 2; ++device) tensors.push_back(full({100}, 1, {.device = device}));
  for (int device = 0; device < 2; ++device) synchronize(device);
  {
    const std::array<Stream, 2> streams{Stream(0), Stream(1)};
    Graph graph = Graph::capture(streams, [&] {
      TUTTI_EXPECT_SUCCESS(ncclGroupStart());
      for (std::size_t rank = 0; rank < 2; ++rank)
        TUTTI_EXPECT_SUCCESS(ncclAllReduce(tensors[rank].data(), tensors[rank].data(), 100, ncclFloat,
                                           ncclSum, comms[rank], handle_of(streams[rank])));
      TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    });
    for (int i = 0; i < 3; ++i) graph.launch(streams[0]);
    streams[0].synchronize();
    synchronize(1);
    for (const Tensor& tensor : tensors) EXPECT_EQ(tensor.to_vector<float>(), Floats(100, 8));
  }
  for (const ncclComm_t comm : comms) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
}

TEST(NcclCapture, EveryDeviceMayHaveAGraphOfItsOwn) {
  boot("island", 2);
  std::array<ncclComm_t, 2> comms{};
  TUTTI_ASSERT_SUCCESS(ncclCommInitAll(comms.data(), 2, nullptr));
  {
    std::vector<Tensor> tensors;
    for (int device = 0; device < 2; ++device) tensors.push_back(full({100}, 1, {.device = device}));
    for (int device = 0; device < 2; ++device) synchronize(device);
    const std::array<Stream, 2> streams{Stream(0), Stream(1)};
    std::array<CUDAGraph, 2> graphs;
    for (std::size_t i = 0; i < 2; ++i) {
      const StreamGuard guard(streams[i]);
      graphs[i].capture_begin();
    }
    for (int call = 0; call < 2; ++call) {
      TUTTI_EXPECT_SUCCESS(ncclGroupStart());
      for (std::size_t rank = 0; rank < 2; ++rank)
        TUTTI_EXPECT_SUCCESS(ncclAllReduce(tensors[rank].data(), tensors[rank].data(), 100, ncclFloat,
                                           ncclSum, comms[rank], handle_of(streams[rank])));
      TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    }
    for (std::size_t i = 2; i-- > 0;) graphs[i].capture_end();
    for (int launch = 0; launch < 3; ++launch) {
      for (std::size_t i = 0; i < 2; ++i) {
        const StreamGuard guard(streams[i]);
        graphs[i].replay();
      }
    }
    for (const Stream& stream : streams) stream.synchronize();
    for (const Tensor& tensor : tensors) EXPECT_EQ(tensor.to_vector<float>(), Floats(100, 64));
  }
  for (const ncclComm_t comm : comms) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
}

TEST(NcclAlone, OneRankIsACommunicator) {
  boot("island", 1);
  ncclUniqueId id{};
  ncclComm_t comm = nullptr;
  TUTTI_EXPECT_SUCCESS(ncclGetUniqueId(&id));
  TUTTI_ASSERT_SUCCESS(ncclCommInitRank(&comm, 1, id, 0));
  {
    const Tensor in = tensor(Floats{1, 2}, {.device = 0});
    const Tensor out = zeros({2}, {.device = 0});
    TUTTI_EXPECT_SUCCESS(ncclAllReduce(in.data(), out.data(), 2, ncclFloat, ncclSum, comm, nullptr));
    EXPECT_EQ(out.to_vector<float>(), (Floats{1, 2}));
    TUTTI_EXPECT_SUCCESS(ncclAlltoAll(out.data(), in.data(), 2, ncclFloat, comm, nullptr));
    TUTTI_EXPECT_SUCCESS(ncclGather(in.data(), out.data(), 2, ncclFloat, 0, comm, nullptr));
    EXPECT_EQ(out.to_vector<float>(), (Floats{1, 2}));
  }
  TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
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

TEST(NcclVersions, AreThoseOfTheHeader) {
  int version = 0;
  TUTTI_EXPECT_SUCCESS(ncclGetVersion(&version));
  EXPECT_EQ(version, NCCL_VERSION_CODE);
  for (int result = 0; result < ncclNumResults; ++result)
    EXPECT_NE(std::string(ncclGetErrorString(static_cast<ncclResult_t>(result))), "");
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
