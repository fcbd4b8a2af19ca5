// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/exchange.hpp"
#include "tutti/nccl_api.h"
#include "tutti/tutti.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test {

/// Expects success, and shows the library's sentence otherwise.
#define TUTTI_EXPECT_SUCCESS(call) EXPECT_EQ((call), ncclSuccess) << ncclGetLastError(nullptr)
#define TUTTI_ASSERT_SUCCESS(call) ASSERT_EQ((call), ncclSuccess) << ncclGetLastError(nullptr)

using Floats = std::vector<float>;

/// Makes a tensor on the current device.
inline Tensor floats(const Floats& values) {
  return tensor(values, {.device = Device::current()});
}

/// Gives every rank the unique id that rank 0 makes.
inline ncclUniqueId common_id(Exchange& exchange) {
  ncclUniqueId mine{};
  if (exchange.rank() == 0) {
    TUTTI_EXPECT_SUCCESS(ncclGetUniqueId(&mine));
  }
  std::vector<ncclUniqueId> all(static_cast<std::size_t>(exchange.size()));
  exchange.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all.front();
}

/// Makes a communicator of all ranks, one per process, each on a device of its own.
inline ncclComm_t common_communicator(Exchange& exchange) {
  const ncclUniqueId id = common_id(exchange);
  set_device(exchange.rank() % device_count());
  ncclComm_t comm = nullptr;
  TUTTI_EXPECT_SUCCESS(ncclCommInitRank(&comm, exchange.size(), id, exchange.rank()));
  return comm;
}

/// Returns when all ranks have called it.
inline void await_all(Exchange& exchange) {
  const std::byte nothing{};
  std::vector<std::byte> all(static_cast<std::size_t>(exchange.size()));
  exchange.all_gather(std::span(&nothing, 1), all);
}

inline cudaStream_t handle_of(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native_handle());
}

inline std::string last_sentence() {
  return ncclGetLastError(nullptr);
}

}  // namespace tutti::test
