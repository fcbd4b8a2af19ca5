// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator/team_call.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tutti::collectives {

/// The operands of calls that join parts or cut them: on one side parts, on the other wholes, which have as
/// many elements as all members' parts. Parts are equal, flat, or as long as the sizes say.
class PartsAndWholes {
 public:
  enum class Wholes : std::uint8_t { inputs, outputs };

  /// The arguments outlive this.
  PartsAndWholes(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out, Wholes wholes,
                 const std::optional<PartSizes>& sizes);

  /// Checks the operands; inputs that are wholes have been checked to be alike. Tells the call what all ranks
  /// must give alike beside the lengths of parts.
  void check();
  /// Begins the call, and gives it the operands. This object must outlive the call.
  void set();
  /// Returns how parts of given sizes lie in the wholes; without elements if no sizes are given. Call it
  /// after `check`.
  [[nodiscard]] const PartsInRows& parts() const noexcept { return in_rows_; }

 private:
  void check_parts();
  void check_parts_along(int dim);
  /// Returns true if `part` lies in `whole` at the place of that local member's part.
  [[nodiscard]] bool is_in_place(const Tensor& part, const Tensor& whole, std::size_t local) const;
  void check_count(std::size_t i) const;
  void check_whole(std::size_t i, std::size_t t) const;
  void check_whole_along(const Tensor& whole, const Name& name, std::size_t i) const;
  /// Checks overlaps. A part in place belongs to its whole, which then counts as an output: nothing else may
  /// overlap it.
  void check_overlaps(std::size_t i) const;
  /// Checks overlaps that cannot be excluded by the tensors' beginnings and ends.
  void check_overlaps_one_by_one(std::size_t i) const;
  void set_input(std::size_t i, std::size_t t);
  void set_output(std::size_t i, std::size_t t);
  [[nodiscard]] bool are_in_rows() const noexcept { return in_rows_.rows > 1; }

  TeamCall& call_;
  const MemberOperands& inputs_;
  const MemberOperands& out_;
  const std::optional<PartSizes>& sizes_;
  const MemberOperands& wholes_;
  const MemberOperands& parts_;
  std::string_view wholes_name_;
  std::string_view parts_name_;
  std::int64_t total_ = 0;              ///< of the sizes
  std::optional<int> along_;            ///< the dimension that has them
  std::vector<std::int64_t> elements_;  ///< of each member's part, where sizes are given
  PartsInRows in_rows_;
};

}  // namespace tutti::collectives
