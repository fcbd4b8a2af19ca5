// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/growth.hpp"
#include "collectives/nccl_api/rank.hpp"
#include "support/machines/machines.hpp"

#include <array>
#include <cstddef>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// `ncclCommGrow`, with all ranks in one process.
namespace tutti::test {
namespace {

/// A communicator of two of the three devices of this process.
class NcclGrowingProcess : public testing::Test {
 protected:
  void SetUp() override {
    boot("island", 3);
    TUTTI_ASSERT_SUCCESS(ncclCommInitAll(comms_.data(), 2, nullptr));
  }
  void TearDown() override {
    for (const ncclComm_t comm : comms_) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  }

  std::array<ncclComm_t, 2> comms_{};
  ncclUniqueId id_{};
};

TEST_F(NcclGrowingProcess, OneThreadMakesOldRanksAndNewOnesInAGroup) {
  TUTTI_ASSERT_SUCCESS(ncclCommGetUniqueId(comms_[0], &id_));
  std::array<ncclComm_t, 3> larger{};
  TUTTI_ASSERT_SUCCESS(ncclGroupStart());
  for (std::size_t i = 0; i < 2; ++i)
    TUTTI_EXPECT_SUCCESS(ncclCommGrow(comms_[i], 3, i == 0 ? &id_ : nullptr, -1, &larger[i], nullptr));
  set_device(2);
  TUTTI_EXPECT_SUCCESS(ncclCommGrow(nullptr, 3, &id_, 2, &larger[2], nullptr));
  TUTTI_ASSERT_SUCCESS(ncclGroupEnd());
  std::vector<Tensor> tensors;
  TUTTI_ASSERT_SUCCESS(ncclGroupStart());
  for (int rank = 0; rank < 3; ++rank) {
    const ncclComm_t comm = larger[static_cast<std::size_t>(rank)];
    expect_rank(comm, rank, 3);
    tensors.push_back(full({4}, rank + 1, {.device = rank}));
    TUTTI_EXPECT_SUCCESS(
        ncclAllReduce(tensors.back().data(), tensors.back().data(), 4, ncclFloat, ncclSum, comm, nullptr));
  }
  TUTTI_ASSERT_SUCCESS(ncclGroupEnd());
  for (const Tensor& tensor : tensors) EXPECT_EQ(tensor.to_vector<float>(), Floats(4, 6));
  ncclComm_t late = nullptr;
  expect_refused(ncclCommGrow(nullptr, 3, &id_, 2, &late, nullptr), ncclInvalidArgument,
                 "ncclCommGrow: the unique id is not known there");
  for (const ncclComm_t comm : larger) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
}

TEST_F(NcclGrowingProcess, ThreadsBringTheOldRanksOfOneGroup) {
  TUTTI_ASSERT_SUCCESS(ncclCommGetUniqueId(comms_[1], &id_));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      set_device(rank);
      ncclComm_t larger = nullptr;
      const ncclComm_t comm = rank < 2 ? comms_[static_cast<std::size_t>(rank)] : nullptr;
      TUTTI_ASSERT_SUCCESS(
          ncclCommGrow(comm, 3, rank == 0 ? nullptr : &id_, rank < 2 ? -1 : rank, &larger, nullptr));
      expect_works(larger, rank, 3);
      TUTTI_EXPECT_SUCCESS(ncclCommDestroy(larger));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(NcclGrowingProcess, BadArgumentsAreNamed) {
  ncclComm_t result = nullptr;
  expect_refused(ncclCommGetUniqueId(nullptr, &id_), ncclInvalidArgument, "ncclCommGetUniqueId: comm");
  expect_refused(ncclCommGetUniqueId(comms_[0], nullptr), ncclInvalidArgument, "uniqueId is a null pointer");
  expect_refused(ncclCommGrow(comms_[0], 3, nullptr, -1, nullptr, nullptr), ncclInvalidArgument, "newcomm");
  expect_refused(ncclCommGrow(comms_[0], 3, nullptr, 0, &result, nullptr), ncclInvalidArgument,
                 "ncclCommGrow: rank is 0, expected -1");
  expect_refused(ncclCommGrow(comms_[0], 2, nullptr, -1, &result, nullptr), ncclInvalidArgument,
                 "nRanks is 2, expected more than the 2 ranks");
  expect_refused(ncclCommGrow(nullptr, 3, nullptr, 2, &result, nullptr), ncclInvalidArgument,
                 "uniqueId is a null pointer");
  expect_refused(ncclCommGrow(nullptr, 3, &id_, 3, &result, nullptr), ncclInvalidArgument,
                 "rank is 3 and nRanks 3");
  EXPECT_NE(ncclCommGrow(nullptr, 3, &id_, 2, &result, nullptr), ncclSuccess);
  EXPECT_NE(last_sentence().find("no unique id of tutti"), std::string::npos) << last_sentence();

  TUTTI_ASSERT_SUCCESS(ncclGroupStart());
  for (const ncclComm_t comm : comms_)
    TUTTI_EXPECT_SUCCESS(ncclCommGrow(comm, 3, nullptr, -1, &result, nullptr));
  expect_refused(ncclGroupEnd(), ncclInvalidArgument, "no rank of the communicator has a unique id");

  TUTTI_ASSERT_SUCCESS(ncclGetUniqueId(&id_));
  expect_refused(ncclCommGrow(nullptr, 3, &id_, 2, &result, nullptr), ncclInvalidArgument,
                 "the unique id is one of ncclGetUniqueId");
  TUTTI_ASSERT_SUCCESS(ncclCommGetUniqueId(comms_[0], &id_));
  expect_refused(ncclCommInitRank(&result, 3, id_, 2), ncclInvalidArgument,
                 "the unique id is one of ncclCommGetUniqueId");
  expect_refused(ncclCommGrow(nullptr, 3, &id_, 1, &result, nullptr), ncclInvalidArgument,
                 "a new rank asks for number 1, which the communicator has, expected 2 to 2");
  EXPECT_EQ(result, nullptr);
}

}  // namespace
}  // namespace tutti::test
