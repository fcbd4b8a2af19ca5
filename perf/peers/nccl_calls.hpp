// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/operation.hpp"
#include "perf/peers/nccl_library.hpp"
#include "perf/peers/nccl_memory.hpp"
#include "tutti/cuda_interop.hpp"
#include "tutti/stream.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace tutti::perf {

/// Makes the calls of NCCL that correspond to an operation: one group for each, as a program without tutti
/// would write it.
class NcclCalls {
 public:
  /// Makes calls in these communicators, which this object does not own: they may be replaced between calls.
  NcclCalls(const NcclLibrary& nccl, const Members& members, const std::vector<Stream>& streams,
            NcclCommunicators& communicators)
      : nccl_(nccl), members_(members), streams_(streams), communicators_(communicators) {}

  /// Returns why NCCL cannot make the call; empty if it can.
  [[nodiscard]] static std::string refusal(const Operation& operation, const Call& call);
  [[nodiscard]] static NcclCallKind kind_of(const Operation& operation);
  void enqueue(const Operation& operation, const Call& call);

 private:
  /// One local member's part in one tensor of a call.
  struct Part {
    const Call& call;
    bool coalesced;
    std::size_t local;
    std::size_t tensor;

    /// Returns the member's tensor, if every member has one.
    [[nodiscard]] const Tensor& each(const Lists& lists) const {
      return coalesced ? lists[local][tensor] : lists[0][local];
    }
    /// Returns the root's tensor, if only the root has one.
    [[nodiscard]] const Tensor& root(const Lists& lists) const {
      return lists.back()[coalesced ? tensor : 0];
    }
  };

  [[nodiscard]] cudaStream_t stream(std::size_t device) const { return to_cuda(streams_[device]); }
  void check(ncclResult_t result, const char* what) const { nccl_.check(result, what); }
  void send(const std::byte* data, std::size_t bytes, std::size_t from, int to) const;
  void receive(std::byte* data, std::size_t bytes, std::size_t at, int from) const;
  /// Sends parts of so many bytes each to every member in order; `receive_parts` receives them.
  void send_parts(const Tensor& whole, const std::vector<std::size_t>& bytes, std::size_t local) const;
  void receive_parts(const Tensor& whole, const std::vector<std::size_t>& bytes, std::size_t local) const;
  [[nodiscard]] ncclRedOp_t operation_of(ReduceKind kind, std::size_t local, ncclDataType_t type);
  void enqueue_one(Collective collective, const Part& part);
  void enqueue_copy(const Part& part) const;
  /// Sends to the next member, and receives from the previous one.
  void pass_on(const Part& part) const;
  /// Sends a part of the input to every member, and receives a part of the output from each.
  void exchange(const Part& part) const;
  /// Makes one call for each part, because NCCL has no call for parts of unequal lengths.
  void gather_unequal(const Part& part) const;
  void reduce_unequal(const Part& part);
  /// Sends every member its chunk of the root's whole tensor; `gather` is the inverse.
  void scatter(const Part& part, bool is_root) const;
  void gather(const Part& part, bool is_root) const;

  const NcclLibrary& nccl_;
  const Members& members_;
  const std::vector<Stream>& streams_;
  NcclCommunicators& communicators_;
};

}  // namespace tutti::perf
