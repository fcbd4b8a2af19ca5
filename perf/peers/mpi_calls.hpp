// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/operation.hpp"

#include <cstddef>
#include <string>

#include <mpi.h>

namespace tutti::perf {

/// The calls of MPI that do what an operation does, one for each tensor, as a program without tutti would
/// write it. They block.
class MpiCalls {
 public:
  /// Between all ranks of MPI, in a communicator of its own. Collective.
  MpiCalls();
  MpiCalls(const MpiCalls&) = delete;
  MpiCalls& operator=(const MpiCalls&) = delete;
  ~MpiCalls();

  /// Why MPI cannot do this; empty if it can. The same on every rank, whichever buffers it has.
  [[nodiscard]] static std::string refusal(const Operation& operation, const Call& call);
  /// Throws Error(transport_failure).
  void make(const Operation& operation, const Call& call) const;

 private:
  [[nodiscard]] bool is_root(const Call& call) const { return rank_ == call.root; }
  void make_one(Collective collective, const Call& call, std::size_t tensor) const;
  /// To the next rank, from the one before.
  void pass_on(const Tensor& input, const Tensor& out) const;
  void reduce_scatter(const Call& call, const Tensor& whole, const Tensor& part) const;
  void all_gather(const Call& call, const Tensor& part, const Tensor& whole) const;
  void all_to_all(const Call& call, const Tensor& input, const Tensor& out) const;
  /// Between the root's whole tensor and every rank's chunk of it.
  void scatter(const Call& call) const;
  void gather(const Call& call) const;
  /// Where this rank's part belongs in a whole.
  [[nodiscard]] const std::byte* place_of_own(const Call& call, const Tensor& whole,
                                              const Tensor& part) const;

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace tutti::perf
