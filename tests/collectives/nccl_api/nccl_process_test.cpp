// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/process.hpp"
#include "support/machines/machines.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

/// The calls of the C interface, with all ranks in one process.
namespace tutti::test {
namespace {

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

TEST(NcclVersions, AreThoseOfTheHeader) {
  int version = 0;
  TUTTI_EXPECT_SUCCESS(ncclGetVersion(&version));
  EXPECT_EQ(version, NCCL_VERSION_CODE);
  for (int result = 0; result < ncclNumResults; ++result)
    EXPECT_NE(std::string(ncclGetErrorString(static_cast<ncclResult_t>(result))), "");
}

}  // namespace
}  // namespace tutti::test
