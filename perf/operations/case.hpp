// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/reductions.hpp"
#include "perf/operations/tensor_lists.hpp"
#include "tutti/collectives.hpp"
#include "tutti/device.hpp"
#include "tutti/dtype.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
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
  /// Returns the index of a local member in `local`.
  [[nodiscard]] std::size_t local_of(int member) const noexcept {
    return static_cast<std::size_t>(member - first_local);
  }
  /// Returns the next member in a ring; `before` returns the previous one.
  [[nodiscard]] int after(int member) const noexcept { return (member + 1) % count; }
  [[nodiscard]] int before(int member) const noexcept { return (member + count - 1) % count; }
  [[nodiscard]] int number_of(std::size_t index) const noexcept {
    return first_local + static_cast<int>(index);
  }
};

/// Provides memory for the operands of calls that are not to lie in tutti's own.
class OperandMemory {
 public:
  /// The alignment of operands in this memory, in bytes.
  static constexpr std::size_t alignment = 512;
  /// Returns how much of this memory an operand of so many bytes takes: also an empty one has a place.
  [[nodiscard]] static constexpr std::size_t taken_by(std::size_t bytes) noexcept {
    return (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  }

  OperandMemory() = default;
  OperandMemory(const OperandMemory&) = delete;
  OperandMemory& operator=(const OperandMemory&) = delete;
  virtual ~OperandMemory() = default;

  /// Begins set `set` of buffers, counted from 0, to which the tensors made from now on belong. Every set
  /// gets the same tensors in the same order, first those that all members have.
  virtual void start_set(std::size_t set) = 0;
  /// Makes a dense tensor for local member `local`, with unspecified contents. It must not outlive this
  /// object.
  [[nodiscard]] virtual Tensor make(const std::vector<std::int64_t>& sizes, DType dtype,
                                    std::size_t local) = 0;
};

/// The parameters of one row of the table.
struct Case {
  std::size_t bytes = 0;  ///< payload asked for; the one moved is whole elements
  /// The list of tensors of a coalesced operation; empty: `bytes` are split into a few tensors.
  std::vector<TensorSpec> tensors;
  std::string tensors_name;  ///< of that list
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

/// The memory in which results are placed.
enum class Placement : std::uint8_t {
  out_of_place,  ///< into memory of their own
  in_place,      ///< the root's part of the result is its input
  returned,      ///< into new tensors that the call allocates and returns
};

}  // namespace tutti::perf
