// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/call/arguments.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

/// Checks that outputs overlap neither one another nor inputs. For thousands of tensors a full check costs
/// more than moving them, so the usual case is recognised while the tensors are checked anyway.
namespace tutti::collectives {

/// Says if an output may be exactly an input.
enum class InPlace : std::uint8_t {
  forbidden,
  allowed,
  same_index,  ///< only an input at the same place of its list
};

/// Tensors and their name in messages; for lists the index is part of the name, which is made only when it is
/// needed.
struct Named {
  std::string_view argument;
  std::span<const Tensor> tensors;
  int row = -1;         ///< of a list of lists, or of tensors; -1: the argument itself
  bool is_one = false;  ///< a single tensor, not a list
  /// Makes the name of a tensor that is an argument of its own, or one of a list.
  [[nodiscard]] static Named one(std::string_view argument, const Tensor& tensor, int row = -1) {
    return {argument, std::span(&tensor, 1), row, true};
  }
  [[nodiscard]] Name name(std::size_t index) const;
};

/// Returns true if the whole span of one tensor lies before or behind that of the other.
[[nodiscard]] inline bool lie_apart(const Tensor& a, const Tensor& b) noexcept {
  const auto begin_of_a = reinterpret_cast<std::uintptr_t>(a.data());
  const auto begin_of_b = reinterpret_cast<std::uintptr_t>(b.data());
  return begin_of_a + a.layout()->span_bytes() <= begin_of_b ||
         begin_of_b + b.layout()->span_bytes() <= begin_of_a;
}

/// The memory of lists of tensors as runs: consecutive tensors of a device whose addresses only ascend, or
/// only descend. Tensors that were allocated one after another make a run or two. A run contains no memory of
/// other devices' tensors, unless it is managed memory.
class MemoryRuns {
 public:
  void start_inputs() { start_list(false); }
  void start_outputs() { start_list(true); }
  /// Adds the next tensor of the list started last.
  void add(const Tensor& tensor) {
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data());
    const std::uintptr_t end = begin + tensor.layout()->span_bytes();
    if (begin == end) return;
    const int device = tensor.device().index();
    const bool goes_on = device == last_.device;
    if (goes_on && last_.ascends && begin >= last_.end) {
      last_.end = end;
      last_.descends = false;
    } else if (goes_on && last_.descends && end <= last_.begin) {
      last_.begin = begin;
      last_.ascends = false;
    } else {
      start_run(begin, end, device);
    }
  }
  /// Adds an output that is exactly an input, where that is allowed, in place of `add`. No two such outputs
  /// may be the same input.
  void add_in_place() { inputs_are_written_ = true; }

  /// Returns true if no run of outputs meets another run: then no output overlaps anything. Also returns
  /// false if there are too many runs to compare. Ends the collection.
  [[nodiscard]] bool are_disjoint();

 private:
  static constexpr std::size_t most_runs = 64;

  struct Run {
    std::uintptr_t begin;
    std::uintptr_t end;
    int device;
    bool ascends;  ///< both while it is one tensor, neither while it is none
    bool descends;
    bool is_output;
  };

  void start_list(bool is_output);
  void start_run(std::uintptr_t begin, std::uintptr_t end, int device);
  void finish_run();

  std::array<Run, most_runs> runs_;  ///< the first `count_` of them
  std::size_t count_ = 0;
  Run last_{};
  bool inputs_are_written_ = false;
};

/// Checks that no output overlaps another output or an input, except as `in_place` allows. Throws
/// Error(invalid_argument). Cost: linear for lists of few runs and for tensors with storages of their own;
/// otherwise that of a sort.
void require_disjoint(const Arguments& arguments, std::span<const Named> inputs,
                      std::span<const Named> outputs, InPlace in_place);
/// Checks the same as `require_disjoint`, for lists whose runs are not disjoint. `are_plain`: all tensors are
/// known to be.
void require_disjoint_one_by_one(const Arguments& arguments, std::span<const Named> inputs,
                                 std::span<const Named> outputs, InPlace in_place, bool are_plain);

}  // namespace tutti::collectives
