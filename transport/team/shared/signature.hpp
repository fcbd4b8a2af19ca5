// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/hash.hpp"
#include "tutti/collective.hpp"
#include "tutti/dtype.hpp"
#include "tutti/reduce_op.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

/// What the ranks of a team must agree on, call by call.
namespace tutti::transport::team {

/// How many devices one process can bring in.
inline constexpr std::size_t most_local_members = 16;

/// One call as one rank made it. All fields but `lengths` are equal on all ranks of a call that matches.
struct Signature {
  /// How many sizes, and factors, messages can show; those behind them are in the hashes alone.
  static constexpr std::size_t most_sizes = 16;
  static constexpr std::size_t most_factors = 8;

  Collective collective = Collective::barrier;
  DType dtype = DType::float32;  ///< of the first tensor
  ReduceKind reduce_kind = ReduceKind::sum;
  bool has_sizes = false;  ///< of parts that may be of unequal lengths, as the call gives them
  /// No collective, but a round of messages among the members of the only rank, which compares it with none.
  bool are_messages = false;
  std::uint8_t size_count = 0;  ///< of `sizes`; more than those if there were more
  std::int16_t root = -1;       ///< member, -1 where there is none
  std::int16_t dim = 0;
  std::uint8_t dims = 0;  ///< how many of `sizes` are those of dimensions: the first ones
  /// How many factors there are, or letters of `operation_words`.
  std::uint8_t operation_size = 0;
  std::uint32_t tensors = 1;  ///< per member; or how many messages
  /// Per member; of scatter and gather, per unit of length along `dim`; with sizes of all parts, or 0 where
  /// members' own differ.
  std::uint64_t elements = 0;
  std::uint64_t shape = 0;      ///< a hash of all sizes and element types that must agree
  std::uint64_t operation = 0;  ///< a hash of the factors, of the text of what is compiled, or the purpose
  // The members that follow are not compared: the hashes have them.
  /// Lengths of the local members along `dim`, where the collective has sizes of their own.
  std::array<std::uint64_t, most_local_members> lengths{};
  /// The first sizes: of dimensions; behind them elements of parts, or of a list's tensors, with the element
  /// type in the highest byte.
  std::array<std::uint64_t, most_sizes> sizes{};
  /// The first factors; or, letter by letter, the name of the function that is compiled, or the purpose.
  std::array<std::uint64_t, most_factors> operation_words{};

  /// Tells whether any member behind `operation` says something of this call.
  [[nodiscard]] bool has_more() const noexcept {
    return traits_of(collective).has_own_sizes || size_count > 0 || operation_size > 0;
  }
  void show_size(std::uint64_t size) noexcept {
    if (size_count < most_sizes) sizes[size_count] = size;
    if (size_count <= most_sizes) ++size_count;
  }
  void show_tensor(std::uint64_t elements_of_it, DType dtype_of_it) noexcept {
    show_size(elements_of_it | static_cast<std::uint64_t>(dtype_of_it) << type_shift);
  }
  void hide_sizes() noexcept { size_count = dims; }
  void set_operation(const ReduceOp& reduction);
  /// Says in a word, which is compared too, what a call without an operation is made for.
  void set_purpose(std::string_view purpose) noexcept { set_text(purpose, purpose); }
  void add_to_shape(std::uint64_t number) noexcept { shape = mix(shape, number); }
  [[nodiscard]] bool matches(const Signature& other) const noexcept {
    return collective == other.collective && dtype == other.dtype && reduce_kind == other.reduce_kind &&
           has_sizes == other.has_sizes && root == other.root && dim == other.dim &&
           tensors == other.tensors && elements == other.elements && shape == other.shape &&
           operation == other.operation;
  }
  /// A hash of all that `matches` compares.
  [[nodiscard]] std::uint64_t digest() const noexcept {
    std::uint64_t hash = shape;
    for (const std::uint64_t number :
         {static_cast<std::uint64_t>(collective), static_cast<std::uint64_t>(dtype),
          static_cast<std::uint64_t>(reduce_kind), static_cast<std::uint64_t>(has_sizes),
          static_cast<std::uint64_t>(root), static_cast<std::uint64_t>(dim), std::uint64_t{tensors}, elements,
          operation}) {
      hash = mix(hash, number);
    }
    return hash;
  }

  static constexpr unsigned type_shift = 56;  ///< of element types in `sizes`

 private:
  void set_text(std::string_view shown, std::string_view text) noexcept;
};
/// Says what the call reduces by: "premul_sum with factor 2", for instance.
[[nodiscard]] std::string operation_in_words(const Signature& signature);
/// Shows all that is compared, as far as it fits: for instance "broadcast of 1024 float32, root 0 (shapes
/// 1b2c3d4e)".
[[nodiscard]] std::string to_string(const Signature& signature);

}  // namespace tutti::transport::team
