// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/call/disjoint.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::collectives {

/// Operands of the local members: one tensor each, or a list each.
class MemberOperands {
 public:
  [[nodiscard]] static MemberOperands one_each(TensorList tensors) { return {tensors, {}, false}; }
  [[nodiscard]] static MemberOperands lists(TensorLists tensors) { return {{}, tensors, true}; }

  [[nodiscard]] std::size_t size() const noexcept { return are_lists_ ? lists_.size() : tensors_.size(); }
  [[nodiscard]] std::span<const Tensor> operator[](std::size_t local) const {
    return are_lists_ ? std::span<const Tensor>(lists_[local])
                      : std::span<const Tensor>(tensors_).subspan(local, 1);
  }
  [[nodiscard]] Name name(std::string_view argument, std::size_t local, std::size_t index) const {
    return are_lists_ ? Name(argument, local, index) : Name(argument, local);
  }
  [[nodiscard]] Named named(std::string_view argument, std::size_t local) const {
    return {argument, (*this)[local], static_cast<int>(local), !are_lists_};
  }

 private:
  MemberOperands(TensorList tensors, TensorLists lists, bool are_lists)
      : tensors_(tensors), lists_(lists), are_lists_(are_lists) {}

  TensorList tensors_;
  TensorLists lists_;
  bool are_lists_;
};

/// The lengths of parts of a whole, by member; all ranks give all of them.
struct PartSizes {
  std::span<const std::int64_t> sizes;
  /// The dimension along which the parts lie, and of which `sizes` are the lengths; none: the parts are flat,
  /// and `sizes` are numbers of elements.
  std::optional<int> dim = std::nullopt;
};

/// Parts of a whole that is cut along a dimension which is not its slowest one: all rows of the whole have a
/// share of each part.
struct PartsInRows {
  std::uint64_t rows = 1;
  std::span<const std::int64_t> elements;  ///< of each member's part, over all rows
};

/// Lists of sizes, one for each local member: numbers of elements, by member of the communicator.
using SizeLists = ListOf<std::vector<std::int64_t>>;

/// The properties that local members' tensors share beside element types: their sizes, or, where they are
/// taken as flat, the number of elements alone.
enum class Likeness : std::uint8_t { sizes, elements };

}  // namespace tutti::collectives
