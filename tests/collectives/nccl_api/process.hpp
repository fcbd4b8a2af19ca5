// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/rank.hpp"
#include "support/machines/machines.hpp"

#include <array>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test {

/// The ranks of `NcclProcess`.
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

}  // namespace tutti::test
