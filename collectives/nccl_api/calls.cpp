// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/clique.hpp"
#include "collectives/nccl_api/forwarding.hpp"
#include "collectives/nccl_api/group.hpp"
#include "collectives/nccl_api/handle.hpp"
#include "collectives/nccl_api/types.hpp"

#include <cstddef>
#include <utility>

#include <fmt/format.h>

/// The collectives and messages.
namespace tutti::nccl_api {
namespace {

/// Throws a `Refusal` with the name of the argument if `value` is none of 0 to `count - 1`.
void require_below(const char* function, const char* argument, int value, int count) {
  if (value >= 0 && value < count) return;
  throw Refusal{ncclInvalidArgument,
                fmt::format("{}: {} is {}, expected 0 to {}", function, argument, value, count - 1)};
}

/// Finds a rank's call in the arguments of a function.
class Caller {
 public:
  Caller(const char* function, ncclComm_t comm, ncclDataType_t datatype) : function_(function), comm_(comm) {
    require_communicator(function, comm);
    require_below(function, "datatype", datatype, ncclNumTypes);
    if (comm->is_finalized)
      throw Refusal{ncclInvalidUsage, fmt::format("{}: the communicator has been finalized", function)};
    call_.comm = comm;
    call_.dtype = dtypes[static_cast<std::size_t>(datatype)];
  }

  Caller& operation(ncclRedOp_t op) {
    const int created = static_cast<int>(op) - ncclNumOps;
    if (created >= 0 && created < static_cast<int>(comm_->factors.size())) {
      call_.factor = comm_->factors[static_cast<std::size_t>(created)];
      if (call_.factor != nullptr && call_.factor->dtype == call_.dtype) return *this;
    }
    require_below(function_, "op", op, ncclNumOps);
    call_.op = op;
    return *this;
  }
  Caller& peer(const char* argument, int rank) {
    require_below(function_, argument, rank, comm_->ranks);
    call_.peer = rank;
    return *this;
  }

  void make(Kind kind, const void* in, void* out, std::size_t count, cudaStream_t stream) {
    if (count == 0) return;  // on all ranks alike
    call_.kind = kind;
    call_.in = in;
    call_.out = out;
    call_.count = count;
    call_.stream = stream;
    Group::of_thread().add(call_);
  }

 private:
  const char* function_;
  ncclComm_t comm_;
  Call call_{};
};

std::size_t bytes_of(ncclDataType_t datatype, std::size_t count) {
  return size_of(dtypes[static_cast<std::size_t>(datatype)]) * count;
}

/// Sends every rank its part of `send`, if that is the root's, and receives this rank's part.
void scatter(const char* function, const void* send, void* receive, std::size_t count,
             ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  Caller caller(function, comm, datatype);
  caller.peer("root", root);
  const auto* const parts = static_cast<const std::byte*>(send);
  const std::size_t bytes = bytes_of(datatype, count);
  GroupGuard together;
  for (int rank = 0; rank < comm->ranks && comm->rank == root; ++rank) {
    const std::byte* const part = parts + static_cast<std::size_t>(rank) * bytes;
    if (rank == root && part == receive) continue;
    caller.peer("root", rank).make(Kind::send, part, nullptr, count, stream);
  }
  const bool has_its_own = comm->rank == root && parts + static_cast<std::size_t>(root) * bytes == receive;
  if (!has_its_own) caller.peer("root", root).make(Kind::recv, nullptr, receive, count, stream);
  together.end();
}

/// Receives every rank's part into `receive`, if that is the root's, and sends this rank's part.
void gather(const char* function, const void* send, void* receive, std::size_t count, ncclDataType_t datatype,
            int root, ncclComm_t comm, cudaStream_t stream) {
  Caller caller(function, comm, datatype);
  caller.peer("root", root);
  auto* const parts = static_cast<std::byte*>(receive);
  const std::size_t bytes = bytes_of(datatype, count);
  GroupGuard together;
  const bool has_its_own = comm->rank == root && parts + static_cast<std::size_t>(root) * bytes == send;
  if (!has_its_own) caller.peer("root", root).make(Kind::send, send, nullptr, count, stream);
  for (int rank = 0; rank < comm->ranks && comm->rank == root; ++rank) {
    std::byte* const part = parts + static_cast<std::size_t>(rank) * bytes;
    if (rank == root && part == send) continue;
    caller.peer("root", rank).make(Kind::recv, nullptr, part, count, stream);
  }
  together.end();
}

}  // namespace
}  // namespace tutti::nccl_api

using tutti::nccl_api::called;
using tutti::nccl_api::Caller;
using tutti::nccl_api::forwarded;
using tutti::nccl_api::is_of_nccl;
using tutti::nccl_api::Kind;

extern "C" {

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return called<&ncclAllReduce>(
      "ncclAllReduce",
      [&] {
        Caller("ncclAllReduce", comm, datatype)
            .operation(op)
            .make(Kind::all_reduce, sendbuff, recvbuff, count, stream);
      },
      sendbuff, recvbuff, count, datatype, op, comm, stream);
}
ncclResult_t ncclAllReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config) {
  if (!is_of_nccl(comm)) return ncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
  return forwarded<&ncclAllReduceConfig>("ncclAllReduceConfig", sendbuff, recvbuff, count, datatype, op, comm,
                                         stream, config);
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return called<&ncclBroadcast>(
      "ncclBroadcast",
      [&] {
        Caller("ncclBroadcast", comm, datatype)
            .peer("root", root)
            .make(Kind::broadcast, sendbuff, recvbuff, count, stream);
      },
      sendbuff, recvbuff, count, datatype, root, comm, stream);
}
ncclResult_t ncclBroadcastConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                 int root, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config) {
  if (!is_of_nccl(comm)) return ncclBroadcast(sendbuff, recvbuff, count, datatype, root, comm, stream);
  return forwarded<&ncclBroadcastConfig>("ncclBroadcastConfig", sendbuff, recvbuff, count, datatype, root,
                                         comm, stream, config);
}

ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return called<&ncclReduce>(
      "ncclReduce",
      [&] {
        Caller("ncclReduce", comm, datatype)
            .operation(op)
            .peer("root", root)
            .make(Kind::reduce, sendbuff, recvbuff, count, stream);
      },
      sendbuff, recvbuff, count, datatype, op, root, comm, stream);
}
ncclResult_t ncclReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t* config) {
  if (!is_of_nccl(comm)) return ncclReduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream);
  return forwarded<&ncclReduceConfig>("ncclReduceConfig", sendbuff, recvbuff, count, datatype, op, root, comm,
                                      stream, config);
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream) {
  return called<&ncclAllGather>(
      "ncclAllGather",
      [&] {
        Caller("ncclAllGather", comm, datatype).make(Kind::all_gather, sendbuff, recvbuff, sendcount, stream);
      },
      sendbuff, recvbuff, sendcount, datatype, comm, stream);
}
ncclResult_t ncclAllGatherConfig(const void* sendbuff, void* recvbuff, size_t sendcount,
                                 ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config) {
  if (!is_of_nccl(comm)) return ncclAllGather(sendbuff, recvbuff, sendcount, datatype, comm, stream);
  return forwarded<&ncclAllGatherConfig>("ncclAllGatherConfig", sendbuff, recvbuff, sendcount, datatype, comm,
                                         stream, config);
}

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return called<&ncclReduceScatter>(
      "ncclReduceScatter",
      [&] {
        Caller("ncclReduceScatter", comm, datatype)
            .operation(op)
            .make(Kind::reduce_scatter, sendbuff, recvbuff, recvcount, stream);
      },
      sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
}
ncclResult_t ncclReduceScatterConfig(const void* sendbuff, void* recvbuff, size_t recvcount,
                                     ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                     cudaStream_t stream, const ncclCollConfig_t* config) {
  if (!is_of_nccl(comm)) return ncclReduceScatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
  return forwarded<&ncclReduceScatterConfig>("ncclReduceScatterConfig", sendbuff, recvbuff, recvcount,
                                             datatype, op, comm, stream, config);
}

ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                          ncclComm_t comm, cudaStream_t stream) {
  return called<&ncclAlltoAll>(
      "ncclAlltoAll",
      [&] {
        Caller("ncclAlltoAll", comm, datatype).make(Kind::all_to_all, sendbuff, recvbuff, count, stream);
      },
      sendbuff, recvbuff, count, datatype, comm, stream);
}
ncclResult_t ncclAlltoAllConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  if (!is_of_nccl(comm)) return ncclAlltoAll(sendbuff, recvbuff, count, datatype, comm, stream);
  return forwarded<&ncclAlltoAllConfig>("ncclAlltoAllConfig", sendbuff, recvbuff, count, datatype, comm,
                                        stream, config);
}

ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return called<&ncclGather>(
      "ncclGather",
      [&] { tutti::nccl_api::gather("ncclGather", sendbuff, recvbuff, count, datatype, root, comm, stream); },
      sendbuff, recvbuff, count, datatype, root, comm, stream);
}
ncclResult_t ncclGatherConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                              int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t* config) {
  if (!is_of_nccl(comm)) return ncclGather(sendbuff, recvbuff, count, datatype, root, comm, stream);
  return forwarded<&ncclGatherConfig>("ncclGatherConfig", sendbuff, recvbuff, count, datatype, root, comm,
                                      stream, config);
}

ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                         int root, ncclComm_t comm, cudaStream_t stream) {
  return called<&ncclScatter>(
      "ncclScatter",
      [&] {
        tutti::nccl_api::scatter("ncclScatter", sendbuff, recvbuff, count, datatype, root, comm, stream);
      },
      sendbuff, recvbuff, count, datatype, root, comm, stream);
}
ncclResult_t ncclScatterConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                               int root, ncclComm_t comm, cudaStream_t stream,
                               const ncclCollConfig_t* config) {
  if (!is_of_nccl(comm)) return ncclScatter(sendbuff, recvbuff, count, datatype, root, comm, stream);
  return forwarded<&ncclScatterConfig>("ncclScatterConfig", sendbuff, recvbuff, count, datatype, root, comm,
                                       stream, config);
}

ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}
ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return called<&ncclSend>(
      "ncclSend",
      [&] {
        Caller("ncclSend", comm, datatype)
            .peer("peer", peer)
            .make(Kind::send, sendbuff, nullptr, count, stream);
      },
      sendbuff, count, datatype, peer, comm, stream);
}
ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return called<&ncclRecv>(
      "ncclRecv",
      [&] {
        Caller("ncclRecv", comm, datatype)
            .peer("peer", peer)
            .make(Kind::recv, nullptr, recvbuff, count, stream);
      },
      recvbuff, count, datatype, peer, comm, stream);
}

ncclResult_t ncclGroupStart() {
  tutti::nccl_api::Group::of_thread().start();
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  return tutti::nccl_api::guarded("ncclGroupEnd", [] { tutti::nccl_api::Group::of_thread().end(); });
}

}  // extern "C"
