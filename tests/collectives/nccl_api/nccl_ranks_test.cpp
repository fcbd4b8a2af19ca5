// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/rank.hpp"
#include "support/ranks.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

/// The calls of the C interface, with every rank a process.
namespace tutti::test {
namespace {

TEST(NcclRanks, EveryCollectiveDeliversWhatNcclSays) {
  expect_all_right(3, [](Exchange& exchange) {
    const ncclComm_t comm = common_communicator(exchange);
    const auto rank = static_cast<float>(exchange.rank());
    const Stream stream;
    const StreamGuard guard(stream);
    const cudaStream_t handle = handle_of(stream);

    const Tensor in = floats({rank, rank + 10, rank + 20});
    const Tensor out = floats({0, 0, 0});
    TUTTI_EXPECT_SUCCESS(ncclAllReduce(in.data(), out.data(), 3, ncclFloat, ncclSum, comm, handle));
    EXPECT_EQ(out.to_vector<float>(), (Floats{3, 33, 63}));
    TUTTI_EXPECT_SUCCESS(ncclAllReduce(in.data(), out.data(), 3, ncclFloat, ncclAvg, comm, handle));
    EXPECT_EQ(out.to_vector<float>(), (Floats{1, 11, 21}));

    TUTTI_EXPECT_SUCCESS(ncclReduce(in.data(), exchange.rank() == 1 ? out.data() : nullptr, 3, ncclFloat,
                                    ncclMax, 1, comm, handle));
    EXPECT_EQ(out.to_vector<float>(), exchange.rank() == 1 ? (Floats{2, 12, 22}) : (Floats{1, 11, 21}));

    TUTTI_EXPECT_SUCCESS(
        ncclBroadcast(exchange.rank() == 2 ? in.data() : nullptr, out.data(), 3, ncclFloat, 2, comm, handle));
    EXPECT_EQ(out.to_vector<float>(), (Floats{2, 12, 22}));
    const Tensor everywhere = floats({rank});
    TUTTI_EXPECT_SUCCESS(ncclBcast(everywhere.data(), 1, ncclFloat, 1, comm, handle));
    EXPECT_EQ(everywhere.to_vector<float>(), (Floats{1}));

    const Tensor all = floats(Floats(9));
    TUTTI_EXPECT_SUCCESS(ncclAllGather(in.data(), all.data(), 3, ncclFloat, comm, handle));
    EXPECT_EQ(all.to_vector<float>(), (Floats{0, 10, 20, 1, 11, 21, 2, 12, 22}));

    const Tensor part = floats({0});
    TUTTI_EXPECT_SUCCESS(ncclReduceScatter(in.data(), part.data(), 1, ncclFloat, ncclSum, comm, handle));
    EXPECT_EQ(part.to_vector<float>(), (Floats{3 + 30 * rank}));

    TUTTI_EXPECT_SUCCESS(ncclAlltoAll(in.data(), out.data(), 1, ncclFloat, comm, handle));
    EXPECT_EQ(out.to_vector<float>(), (Floats{10 * rank, 10 * rank + 1, 10 * rank + 2}));

    const Tensor gathered = floats({-1, -1, -1});
    TUTTI_EXPECT_SUCCESS(ncclGather(part.data(), gathered.data(), 1, ncclFloat, 2, comm, handle));
    EXPECT_EQ(gathered.to_vector<float>(), exchange.rank() == 2 ? (Floats{3, 33, 63}) : (Floats{-1, -1, -1}));
    TUTTI_EXPECT_SUCCESS(ncclScatter(in.data(), part.data(), 1, ncclFloat, 1, comm, handle));
    EXPECT_EQ(part.to_vector<float>(), (Floats{1 + 10 * rank}));

    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

TEST(NcclRanks, InPlaceCollectives) {
  expect_all_right(2, [](Exchange& exchange) {
    const ncclComm_t comm = common_communicator(exchange);
    const int rank = exchange.rank();
    const auto value = static_cast<float>(rank + 1);
    const Tensor whole = floats({value, value});
    auto* const parts = whole.data<float>();
    TUTTI_EXPECT_SUCCESS(ncclAllGather(parts + rank, parts, 1, ncclFloat, comm, nullptr));
    EXPECT_EQ(whole.to_vector<float>(), (Floats{1, 2}));
    TUTTI_EXPECT_SUCCESS(ncclReduceScatter(parts, parts + rank, 1, ncclFloat, ncclSum, comm, nullptr));
    EXPECT_EQ(whole.to_vector<float>(), rank == 0 ? (Floats{2, 2}) : (Floats{1, 4}));
    TUTTI_EXPECT_SUCCESS(ncclGather(parts + rank, parts, 1, ncclFloat, 0, comm, nullptr));
    EXPECT_EQ(whole.to_vector<float>(), rank == 0 ? (Floats{2, 4}) : (Floats{1, 4}));
    TUTTI_EXPECT_SUCCESS(ncclScatter(parts, parts + rank, 1, ncclFloat, 0, comm, nullptr));
    EXPECT_EQ(whole.to_vector<float>(), rank == 0 ? (Floats{2, 4}) : (Floats{1, 4}));
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

TEST(NcclRanks, EveryTypeAndOperation) {
  expect_all_right(2, [](Exchange& exchange) {
    const ncclComm_t comm = common_communicator(exchange);
    constexpr std::array types{DType::int8,    DType::uint8,    DType::int32,       DType::uint32,
                               DType::int64,   DType::uint64,   DType::float16,     DType::float32,
                               DType::float64, DType::bfloat16, DType::float8_e4m3, DType::float8_e5m2};
    constexpr std::array<double, 5> expected{6, 8, 4, 2, 3};  // of 2 and 4: sum, prod, max, min, avg
    const Device device = Device::current();
    for (std::size_t type = 0; type < types.size(); ++type) {
      for (std::size_t op = 0; op < expected.size(); ++op) {
        const Tensor tensor =
            full({5}, exchange.rank() == 0 ? 2 : 4, {.dtype = types[type], .device = device});
        TUTTI_EXPECT_SUCCESS(ncclAllReduce(tensor.data(), tensor.data(), 5, static_cast<ncclDataType_t>(type),
                                           static_cast<ncclRedOp_t>(op), comm, nullptr));
        EXPECT_EQ(tensor.to(DType::float64).to_vector<double>(), std::vector<double>(5, expected[op]))
            << name_of(types[type]) << ", operation " << op;
      }
    }
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

TEST(NcclRanks, AFactorOfOneRankMultipliesItsInput) {
  expect_all_right(2, [](Exchange& exchange) {
    const ncclComm_t comm = common_communicator(exchange);
    double half = 0.5;
    const Tensor quarter = tensor({0.25}, {.device = Device::current()});
    const Tensor in = tensor({8.0, 16.0}, {.device = Device::current()});
    const Tensor out = tensor({0.0, 0.0}, {.device = Device::current()});
    ncclRedOp_t op = ncclSum;
    const bool is_first = exchange.rank() == 0;
    TUTTI_EXPECT_SUCCESS(ncclRedOpCreatePreMulSum(&op, is_first ? &half : quarter.data(), ncclDouble,
                                                  is_first ? ncclScalarHostImmediate : ncclScalarDevice,
                                                  comm));
    TUTTI_EXPECT_SUCCESS(ncclAllReduce(in.data(), out.data(), 2, ncclDouble, op, comm, nullptr));
    EXPECT_EQ(out.to_vector<double>(), (std::vector<double>{6, 12}));
    TUTTI_EXPECT_SUCCESS(ncclRedOpDestroy(op, comm));
    EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(in.data(), out.data(), 2, ncclDouble, op, comm, nullptr), ncclInvalidArgument);
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

TEST(NcclRanks, MessagesOfAGroupMoveAtTheSameTime) {
  expect_all_right(3, [](Exchange& exchange) {
    const ncclComm_t comm = common_communicator(exchange);
    const int next = (exchange.rank() + 1) % 3;
    const int previous = (exchange.rank() + 2) % 3;
    const Tensor in = floats({static_cast<float>(exchange.rank())});
    const Tensor out = floats({-1, -1});
    const Stream first;
    const Stream second;
    synchronize();
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    TUTTI_EXPECT_SUCCESS(ncclSend(in.data(), 1, ncclFloat, next, comm, handle_of(first)));
    TUTTI_EXPECT_SUCCESS(ncclRecv(out.data(), 1, ncclFloat, previous, comm, handle_of(second)));
    TUTTI_EXPECT_SUCCESS(ncclSend(in.data(), 1, ncclFloat, exchange.rank(), comm, handle_of(second)));
    TUTTI_EXPECT_SUCCESS(
        ncclRecv(out.data<float>() + 1, 1, ncclFloat, exchange.rank(), comm, handle_of(second)));
    TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    second.synchronize();
    EXPECT_EQ(out.to_vector<float>(),
              (Floats{static_cast<float>(previous), static_cast<float>(exchange.rank())}));
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

TEST(NcclRanks, AGroupBecomesOneCallOfAKind) {
  expect_all_right(2, [](Exchange& exchange) {
    const ncclComm_t comm = common_communicator(exchange);
    std::vector<Tensor> tensors;
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    for (int i = 0; i < 4; ++i) {
      tensors.push_back(floats({static_cast<float>(i), 1}));
      TUTTI_EXPECT_SUCCESS(ncclGroupStart());
      TUTTI_EXPECT_SUCCESS(
          ncclAllReduce(tensors.back().data(), tensors.back().data(), 2, ncclFloat, ncclSum, comm, nullptr));
      TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    }
    const std::uint64_t before = virtual_devices::operations_enqueued();
    TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    EXPECT_LE(virtual_devices::operations_enqueued() - before, 3U);
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(tensors[static_cast<std::size_t>(i)].to_vector<float>(),
                (Floats{2 * static_cast<float>(i), 2}));
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

TEST(NcclRanks, AGroupMayRepeatCallsOfTheSameMemory) {
  expect_all_right(2, [](Exchange& exchange) {
    const ncclComm_t comm = common_communicator(exchange);
    const Tensor in = floats({1, 2});
    const Tensor out = floats({0, 0});
    const Tensor other = floats({0, 0});
    synchronize();
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    for (int i = 0; i < 3; ++i) {
      // The second rank has memory for each; that is known to it alone.
      const Tensor& target = exchange.rank() == 1 && i == 0 ? other : out;
      TUTTI_EXPECT_SUCCESS(ncclAllReduce(in.data(), target.data(), 2, ncclFloat, ncclSum, comm, nullptr));
      TUTTI_EXPECT_SUCCESS(ncclSend(in.data(), 2, ncclFloat, 1 - exchange.rank(), comm, nullptr));
      TUTTI_EXPECT_SUCCESS(ncclRecv(other.data(), 2, ncclFloat, 1 - exchange.rank(), comm, nullptr));
    }
    TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    EXPECT_EQ(out.to_vector<float>(), (Floats{2, 4}));
    EXPECT_EQ(other.to_vector<float>(), (Floats{1, 2}));
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

TEST(NcclRanks, BroadcastsFromEveryRankGatherAndReductionsToEveryRankScatter) {
  expect_all_right(3, [](Exchange& exchange) {
    const ncclComm_t comm = common_communicator(exchange);
    const auto rank = static_cast<std::size_t>(exchange.rank());
    const Tensor own = floats(Floats(rank + 1, static_cast<float>(rank)));
    // Rank 0 has them one behind the other, the others have not.
    const Tensor whole = floats(Floats(9, -1));
    const std::array<std::size_t, 3> starts =
        rank == 0 ? std::array<std::size_t, 3>{0, 1, 3} : std::array<std::size_t, 3>{0, 2, 5};
    synchronize();
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    for (int root = 0; root < 3; ++root) {
      const auto place = static_cast<std::size_t>(root);
      TUTTI_EXPECT_SUCCESS(ncclBroadcast(own.data(), whole.data<float>() + starts[place], place + 1,
                                         ncclFloat, root, comm, nullptr));
    }
    TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    EXPECT_EQ(whole.to_vector<float>(),
              rank == 0 ? (Floats{0, 1, 1, 2, 2, 2, -1, -1, -1}) : (Floats{0, -1, 1, 1, -1, 2, 2, 2, -1}));
    const Tensor sum = floats(Floats(rank + 1));
    synchronize();
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    for (int root = 0; root < 3; ++root) {
      const auto place = static_cast<std::size_t>(root);
      TUTTI_EXPECT_SUCCESS(ncclReduce(whole.data<float>() + starts[place], sum.data(), place + 1, ncclFloat,
                                      ncclSum, root, comm, nullptr));
    }
    TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    EXPECT_EQ(sum.to_vector<float>(), Floats(rank + 1, 3 * static_cast<float>(rank)));
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

TEST(NcclRanks, MemoryIsAllocatedRegisteredAndFreed) {
  expect_all_right(2, [](Exchange& exchange) {
    const ncclComm_t comm = common_communicator(exchange);
    void* memory = nullptr;
    TUTTI_EXPECT_SUCCESS(ncclMemAlloc(&memory, std::size_t{1} << 20U));
    void* handle = nullptr;
    ncclWindow_t window = nullptr;
    TUTTI_EXPECT_SUCCESS(ncclCommRegister(comm, memory, 4096, &handle));
    TUTTI_EXPECT_SUCCESS(ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
    void* address = nullptr;
    TUTTI_EXPECT_SUCCESS(ncclWinGetUserPtr(comm, window, &address));
    EXPECT_EQ(address, memory);
    const Tensor whole = from_blob(memory, {1 << 18}, {.device = Device::current()});
    whole.fill_(exchange.rank() + 1);
    TUTTI_EXPECT_SUCCESS(
        ncclAllReduce(memory, memory, std::size_t{1} << 18U, ncclFloat, ncclSum, comm, nullptr));
    EXPECT_EQ(whole.narrow(0, 262143, 1).item<float>(), 3);
    TUTTI_EXPECT_SUCCESS(ncclCommWindowDeregister(comm, window));
    TUTTI_EXPECT_SUCCESS(ncclCommDeregister(comm, handle));
    TUTTI_EXPECT_SUCCESS(ncclMemFree(memory));
    EXPECT_EQ(ncclMemFree(memory), ncclInvalidArgument);
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

}  // namespace
}  // namespace tutti::test
