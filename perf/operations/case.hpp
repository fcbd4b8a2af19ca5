// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/reductions.hpp"
#include "perf/operations/tensor_lists.hpp"
#include "tutti/collectives.hpp"
#include "tutti/device.hpp"
#include "tutti/dtype.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {
class Communicator;
}

namespace tutti::perf {

/// The devices that take part, numbered through all processes.
struct Members {
  int count = 1;
  int first_local = 0;                   ///< the number of this process's first one
  std::vector<Device> local{0};          ///< this process's, in order
  Communicator* communicator = nullptr;  ///< what joins the processes; nullptr: there is only this one

  [[nodiscard]] bool is_local(int member) const noexcept {
    return member >= first_local && member < first_local + static_cast<int>(local.size());
  }
  /// The place of a local member in `local`.
  [[nodiscard]] std::size_t local_of(int member) const noexcept {
    return static_cast<std::size_t>(member - first_local);
  }
  /// The next one, and the one before, in a ring.
  [[nodiscard]] int after(int member) const noexcept { return (member + 1) % count; }
  [[nodiscard]] int before(int member) const noexcept { return (member + count - 1) % count; }
  [[nodiscard]] int number_of(std::size_t index) const noexcept {
    return first_local + static_cast<int>(index);
  }
};

/// Where the operands of calls lie that a peer makes, if it wants them elsewhere than tutti's are.
class OperandMemory {
 public:
  /// Of what begins there, in bytes.
  static constexpr std::size_t alignment = 512;

  OperandMemory() = default;
  OperandMemory(const OperandMemory&) = delete;
  OperandMemory& operator=(const OperandMemory&) = delete;
  virtual ~OperandMemory() = default;

  /// What is made from now on is of set `set` of buffers, counted from 0. Of every set the same tensors are
  /// made, first those that all members have.
  virtual void start_set(std::size_t set) = 0;
  /// A dense tensor for local member `local`, whose contents are unspecified. It does not outlive this
  /// object.
  [[nodiscard]] virtual Tensor make(const std::vector<std::int64_t>& sizes, DType dtype,
                                    std::size_t local) = 0;
};

/// What one row of the table measures.
struct Case {
  std::size_t bytes = 0;  ///< payload asked for; the one moved is whole elements
  /// Coalesced operations: the list; empty: `bytes` split into a few tensors.
  std::vector<TensorSpec> tensors;
  DType dtype = DType::float32;
  Members members;
  int root = 0;     ///< source of a broadcast, scatter or copy, destination of a reduce or gather: a member
  int partner = 0;  ///< destination of a copy
  int dim = 0;      ///< 0: a one-dimensional tensor; 1: the rows of a two-dimensional one are cut
  int first_element = 0;            ///< where tensors begin in memory that is aligned
  OperandMemory* memory = nullptr;  ///< where tensors lie; nullptr: where the library allocates them
  std::uint64_t seed = 1;
  CollectiveOptions options;
  ReduceKind reduce_kind = ReduceKind::sum;
};

/// Where results go.
enum class Placement : std::uint8_t {
  out_of_place,  ///< into memory of their own
  in_place,      ///< the root's part of the result is its input
  returned,      ///< into new tensors that the call allocates and returns
};

}  // namespace tutti::perf
