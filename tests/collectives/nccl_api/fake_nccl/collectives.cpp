// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/fake_nccl/fake_nccl.hpp"

#include <algorithm>
#include <cstring>

namespace fake_nccl {
namespace {

float combine(float a, float b, ncclRedOp_t op) {
  switch (op) {
    case ncclProd:
      return a * b;
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return a + b;
  }
}

/// Writes the reduction of `count` elements of all ranks, from element `first` on.
void reduce_into(float* out, const Given& given, int ranks, std::size_t first, std::size_t count,
                 ncclRedOp_t op) {
  for (std::size_t i = 0; i < count; ++i) {
    float sum = given(0)[first + i];
    for (int rank = 1; rank < ranks; ++rank) sum = combine(sum, given(rank)[first + i], op);
    out[i] = op == ncclAvg ? sum / static_cast<float>(ranks) : sum;
  }
}

}  // namespace

ncclResult_t collective(const char* function, ncclComm_t comm, const void* in, std::size_t bytes,
                        ncclRedOp_t op, Compute compute) {
  if (const ncclResult_t result = count(function); result != ncclSuccess) return result;
  if (comm == nullptr || bytes > slot_bytes) return fail(ncclInvalidArgument, "fake: bad arguments");
  // By its own name, which the program may have given to another library, as NCCL does.
  ncclResult_t state = ncclSuccess;
  if (const ncclResult_t result = ncclCommGetAsyncError(comm, &state); result != ncclSuccess) return result;
  const unsigned number = comm->calls++;
  const auto give = [=] {
    const ncclResult_t free = wait(*comm, [&] {
      return std::all_of(
          comm->shared->ranks.begin(), comm->shared->ranks.begin() + comm->ranks,
          [&](const Shared::Rank& rank) { return rank.consumed.load() + slot_count > number; });
    });
    if (free != ncclSuccess) return free;
    Shared::Rank& own = comm->shared->ranks[static_cast<std::size_t>(comm->rank)];
    auto* const slot = reinterpret_cast<float*>(own.slots[number % slot_count].data());
    if (in != nullptr) std::memcpy(slot, in, bytes);
    const auto created = static_cast<std::size_t>(op) - ncclNumOps;
    for (std::size_t i = 0; i < bytes / sizeof(float) && op >= ncclNumOps; ++i)
      slot[i] *= comm->factors[created];
    own.posted = number + 1;
    return ncclSuccess;
  };
  const auto take = [=] {
    const ncclResult_t there = wait(*comm, [&] {
      return std::all_of(comm->shared->ranks.begin(), comm->shared->ranks.begin() + comm->ranks,
                         [&](const Shared::Rank& rank) { return rank.posted.load() > number; });
    });
    if (there != ncclSuccess) return there;
    compute([&](int rank) {
      return reinterpret_cast<const float*>(
          comm->shared->ranks[static_cast<std::size_t>(rank)].slots[number % slot_count].data());
    });
    comm->shared->ranks[static_cast<std::size_t>(comm->rank)].consumed = number + 1;
    return ncclSuccess;
  };
  return add({.give = give, .take = take});
}

}  // namespace fake_nccl

using namespace fake_nccl;

// NOLINTBEGIN(readability-identifier-naming): the names are the interface's
extern "C" {

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t, ncclScalarResidence_t,
                                      ncclComm_t comm) {
  *op = static_cast<ncclRedOp_t>(static_cast<std::size_t>(ncclNumOps) + comm->factors.size());
  comm->factors.push_back(*static_cast<float*>(scalar));
  return count("ncclRedOpCreatePreMulSum");
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) {
  return count("ncclRedOpDestroy");
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t number, ncclDataType_t, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t) {
  return collective("ncclAllReduce", comm, in, number * sizeof(float), op, [=](const Given& given) {
    reduce_into(static_cast<float*>(out), given, comm->ranks, 0, number, op);
  });
}
ncclResult_t ncclReduce(const void* in, void* out, size_t number, ncclDataType_t, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t) {
  return collective("ncclReduce", comm, in, number * sizeof(float), op, [=](const Given& given) {
    if (comm->rank == root) reduce_into(static_cast<float*>(out), given, comm->ranks, 0, number, op);
  });
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t number, ncclDataType_t, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t) {
  const auto ranks = static_cast<std::size_t>(comm->ranks);
  return collective("ncclReduceScatter", comm, in, ranks * number * sizeof(float), op,
                    [=](const Given& given) {
                      reduce_into(static_cast<float*>(out), given, comm->ranks,
                                  static_cast<std::size_t>(comm->rank) * number, number, op);
                    });
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t number, ncclDataType_t, int root,
                           ncclComm_t comm, cudaStream_t) {
  return collective("ncclBroadcast", comm, comm->rank == root ? in : nullptr, number * sizeof(float), ncclSum,
                    [=](const Given& given) { std::memcpy(out, given(root), number * sizeof(float)); });
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t number, ncclDataType_t, ncclComm_t comm,
                           cudaStream_t) {
  return collective("ncclAllGather", comm, in, number * sizeof(float), ncclSum, [=](const Given& given) {
    for (int rank = 0; rank < comm->ranks; ++rank)
      std::memcpy(static_cast<float*>(out) + static_cast<std::size_t>(rank) * number, given(rank),
                  number * sizeof(float));
  });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
