// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/select/plan_cache.hpp"
#include "tutti/collective.hpp"
#include "tutti/reduce_op.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

namespace tutti::collectives {

/// The operands of a collective that copies whole tensors or parts of them.
struct CopiedOperands {
  /// Bytes of an input, by column.
  std::vector<std::uint64_t> bytes{};
  /// The buffers of outputs that stay as they are, ascending. In a team only the copy of their own member's
  /// input leaves them alone. Of an exchange in place, these outputs are the inputs.
  std::vector<std::uint64_t> left_alone{};

  void clear() noexcept {
    bytes.clear();
    left_alone.clear();
  }
  [[nodiscard]] bool is_empty() const noexcept { return bytes.empty(); }
  [[nodiscard]] std::uint64_t total_bytes() const noexcept;
  void add_to(transport::PlanKey& key) const;
  [[nodiscard]] std::size_t words() const noexcept { return 2 + bytes.size() + left_alone.size(); }
};

/// The operands of a reduction.
struct ReducedOperands {
  struct Column {
    std::uint64_t elements = 0;  ///< of an input
    DType dtype = DType::uint8;

    [[nodiscard]] std::uint64_t bytes() const noexcept { return elements * size_of(dtype); }
  };
  ReduceKind kind = ReduceKind::sum;
  std::vector<Column> columns{};

  void clear() noexcept {
    kind = ReduceKind::sum;
    columns.clear();
  }
  [[nodiscard]] bool is_empty() const noexcept { return columns.empty(); }
  [[nodiscard]] std::uint64_t total_bytes() const noexcept;
  void add_to(transport::PlanKey& key) const;
  [[nodiscard]] std::size_t words() const noexcept { return 2 + 2 * columns.size(); }
};

/// The operands of a scatter or gather: rows of a whole, each of which is cut alike.
struct CutOperands {
  struct Part {
    std::uint64_t offset = 0;  ///< in the row, in bytes
    std::uint64_t bytes = 0;   ///< of the row
  };
  std::uint64_t rows = 0;
  std::uint64_t row_bytes = 0;
  std::vector<Part> parts{};

  void clear() noexcept {
    rows = row_bytes = 0;
    parts.clear();
  }
  [[nodiscard]] bool is_empty() const noexcept { return parts.empty(); }
  [[nodiscard]] std::uint64_t total_bytes() const noexcept { return rows * row_bytes; }
  void add_to(transport::PlanKey& key) const;
  [[nodiscard]] std::size_t words() const noexcept { return 3 + 2 * parts.size(); }
};

/// Memory that a request of another type of operands may use again.
using SpareOperands = std::tuple<CopiedOperands, ReducedOperands, CutOperands>;

/// Describes a call of one process or of a team in numbers, without addresses and streams. With lanes and
/// options it is all that a plan depends on.
struct Request {
  explicit Request(Collective of = Collective::barrier, std::string_view called = {},
                   std::size_t column_count = 1) {
    reset(of, called, column_count);
  }
  /// Makes it a request without operands. It keeps its memory where the type of operands stays; otherwise it
  /// leaves that in `spare`, and takes what there is.
  void reset(Collective of, std::string_view called, std::size_t column_count = 1,
             SpareOperands* spare = nullptr);
  /// Makes it a request of nothing, which keeps its memory and the type of operands.
  void clear() noexcept;

  Collective collective = Collective::barrier;
  /// The function that was called, for messages and traces; it lives as long as the program, and plans do not
  /// depend on it.
  std::string_view name;
  /// Tensors of each row of operands. Buffer b is column b % columns of row b / columns.
  std::size_t columns = 1;
  /// The type follows from the collective's traits. Collectives that move no tensors copy nothing.
  std::variant<CopiedOperands, ReducedOperands, CutOperands> operands;
  /// The lengths of members' parts of the one column; empty where all parts are equally long. An all_gather
  /// has the bytes of each member's input here, and their sum in the column. Reductions have the elements of
  /// each member's part. An all_to_all has the bytes from each member to each, by sender, then receiver; its
  /// column has as many as the largest input or output.
  std::vector<std::uint64_t> parts;

  [[nodiscard]] CopiedOperands& copied() { return std::get<CopiedOperands>(operands); }
  [[nodiscard]] const CopiedOperands& copied() const { return std::get<CopiedOperands>(operands); }
  [[nodiscard]] ReducedOperands& reduced() { return std::get<ReducedOperands>(operands); }
  [[nodiscard]] const ReducedOperands& reduced() const { return std::get<ReducedOperands>(operands); }
  [[nodiscard]] CutOperands& cut() { return std::get<CutOperands>(operands); }
  [[nodiscard]] const CutOperands& cut() const { return std::get<CutOperands>(operands); }

  /// Adds the next column of a copy or a reduction.
  void add_column(std::uint64_t elements, DType dtype);
  /// Adds an output of a copy that stays as it is, of a team of so many members.
  void leave_alone_in_team(std::size_t members, std::size_t member, std::size_t column) {
    copied().left_alone.push_back((members + member) * columns + column);
  }
  /// Returns true if some of that output of a copy stays as it is.
  [[nodiscard]] bool is_left_alone(std::uint64_t output) const;
  [[nodiscard]] bool is_empty() const;
  /// Returns the bytes of one member's tensors. For a scatter or gather, or with parts of unequal lengths,
  /// returns the bytes of the whole.
  [[nodiscard]] std::uint64_t bytes() const;
  /// Adds all that plans depend on, except the collective, as `words` numbers.
  void add_to(transport::PlanKey& key) const;
  [[nodiscard]] std::size_t words() const;
};

/// Excludes outputs from the copies of their own members' inputs: the root's output, or every member's where
/// all have inputs. `is_left(member, column)` returns true for an output that needs no such copy. Applies to
/// requests that copy to all outputs of a team, such as a broadcast or an all_gather; others stay as they
/// are. Call it after all columns have been added.
template <class IsLeft>
void leave_own_copies_alone(Request& request, std::size_t members, std::size_t root, const IsLeft& is_left) {
  const CollectiveTraits& traits = traits_of(request.collective);
  if (traits.reduces || traits.output != CollectiveOutput::all) return;
  for (std::size_t member = 0; member < members; ++member) {
    if (traits.has_root && member != root) continue;
    for (std::size_t column = 0; column < request.columns; ++column) {
      if (is_left(member, column)) request.leave_alone_in_team(members, member, column);
    }
  }
}

}  // namespace tutti::collectives
