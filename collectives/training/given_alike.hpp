// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/communicator.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Compares arguments that all ranks must give alike. Constructors and functions of trainers use it, so that
/// a difference is reported before anything has been added up.
namespace tutti::collectives {

/// A list of arguments as texts, each with its name. Ranks compare the texts in order.
class GivenAlike {
 public:
  struct Item {
    std::string name;
    std::string value;
  };

  void add(std::string name, std::string value) { items_.push_back({std::move(name), std::move(value)}); }
  void add_operation(const ReduceOp& operation);
  /// Adds the number of tensors in the list, then the element type and the sizes of each.
  void add_tensors(const std::string& name, std::span<const Tensor> tensors);

  [[nodiscard]] const std::vector<Item>& items() const noexcept { return items_; }
  /// Returns the hash, which is not 0.
  [[nodiscard]] std::uint64_t hash() const noexcept;

 private:
  std::vector<Item> items_;
};

enum class InCapture : std::uint8_t {
  unsupported,  ///< Error(unsupported)
  uncompared,   ///< this rank is not told of the others' arguments, nor they of its own
};

/// Calls `describe`, which checks and describes what this rank has been given, and compares that with the
/// other ranks: a call of the communicator, in which the host waits until all ranks have made it. With one
/// rank it is no call. Throws Error(invalid_argument) on all ranks, and leaves the communicator as it was: if
/// ranks differ, naming the first difference; if `describe` has thrown that on one of them, with its words.
void require_alike(Communicator& communicator, std::string_view function, InCapture in_capture,
                   const std::function<GivenAlike()>& describe);

}  // namespace tutti::collectives
