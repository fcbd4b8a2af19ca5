// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/fake_nccl/fake_nccl.hpp"

#include <cstring>

namespace {

fake_nccl::Shared::Mail& mail(const ncclComm& comm, int from, int to) {
  return comm.shared->mail[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

}  // namespace

using namespace fake_nccl;

// NOLINTBEGIN(readability-identifier-naming): the names are the interface's
extern "C" {

ncclResult_t ncclSend(const void* in, size_t number, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t) {
  if (const ncclResult_t result = count("ncclSend"); result != ncclSuccess) return result;
  const unsigned turn = comm->sent[static_cast<std::size_t>(peer)]++;
  const auto give = [=] {
    Shared::Mail& box = mail(*comm, comm->rank, peer);
    const ncclResult_t free = wait(*comm, [&] { return box.received.load() == turn; });
    std::memcpy(box.bytes.data(), in, number * sizeof(float));
    box.sent = turn + 1;
    return free;
  };
  return add({.give = give, .take = [] { return ncclSuccess; }});
}
ncclResult_t ncclRecv(void* out, size_t number, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t) {
  if (const ncclResult_t result = count("ncclRecv"); result != ncclSuccess) return result;
  const unsigned turn = comm->received[static_cast<std::size_t>(peer)]++;
  return add(alone([=] {
    Shared::Mail& box = mail(*comm, peer, comm->rank);
    const ncclResult_t there = wait(*comm, [&] { return box.sent.load() == turn + 1; });
    std::memcpy(out, box.bytes.data(), number * sizeof(float));
    box.received = turn + 1;
    return there;
  }));
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
