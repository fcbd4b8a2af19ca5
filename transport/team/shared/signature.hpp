// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/hash.hpp"
#include "tutti/collective.hpp"
#include "tutti/dtype.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/tensor.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

/// The properties of a call that the ranks of a team must agree on.
namespace tutti::transport::team {

/// The most devices of one process.
inline constexpr std::size_t most_local_members = 16;

/// The operands that a call takes from each member. Messages are no collective, but a round of them among the
/// members of a single rank, which compares it with none.
enum class CallOperands : std::uint8_t { tensors, lists, messages };

/// One call as one rank made it. All fields but `lengths` are equal on all ranks of a matching call.
struct Signature {
  /// The most sizes and factors that messages can show; further ones are in the hashes only.
  static constexpr std::size_t most_sizes = 16;
  static constexpr std::size_t most_factors = 8;

  Collective collective = Collective::barrier;
  DType dtype = DType::float32;  ///< of the first tensor
  ReduceKind reduce_kind = ReduceKind::sum;
  bool has_sizes = false;  ///< the call gives sizes of parts, which may be of unequal lengths
  CallOperands operands = CallOperands::tensors;
  std::uint8_t size_count = 0;  ///< of `sizes`; greater than its capacity if there were more
  std::int16_t root = -1;       ///< member, -1 where there is none
  std::int16_t dim = 0;
  std::uint8_t dims = 0;  ///< how many of the first `sizes` are dimensions
  /// The number of factors, or of letters in `operation_words`.
  std::uint8_t operation_size = 0;
  std::uint32_t tensors = 1;  ///< per member; or the number of messages
  /// Elements per member; for scatter and gather, per unit of length along `dim`; with sizes, of all parts,
  /// or 0 where members' own differ.
  std::uint64_t elements = 0;
  std::uint64_t shape = 0;      ///< a hash of all sizes and element types that must agree
  std::uint64_t operation = 0;  ///< a hash of the factors, of the compiled text, or of the purpose
  // The fields below are not compared, as the hashes include them.
  /// Lengths of the local members along `dim`, where the collective has sizes of their own.
  std::array<std::uint64_t, most_local_members> lengths{};
  /// The first sizes: of dimensions, then elements of parts or of a list's tensors, with the element type in
  /// the highest byte.
  std::array<std::uint64_t, most_sizes> sizes{};
  /// The first factors; or the letters of the name of the compiled function, or of the purpose.
  std::array<std::uint64_t, most_factors> operation_words{};

  /// Returns true if any field after `operation` is used by this call.
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
  /// Shows the tensors of a list of more than one.
  void show_list(std::span<const Tensor> list) noexcept;
  /// Shows the elements of each member's part.
  void show_parts(std::span<const std::int64_t> elements_of_parts) noexcept;
  /// Sets what all ranks must give alike in a call without work, or beside the lengths of parts.
  void set_alike(DType type, std::span<const std::int64_t> dimensions, int along) noexcept;
  void set_operation(const ReduceOp& reduction);
  /// Sets the purpose of a call without an operation, in a word that is compared too.
  void set_purpose(std::string_view purpose) noexcept { set_text(purpose, purpose); }
  void add_to_shape(std::uint64_t number) noexcept { shape = mix(shape, number); }
  [[nodiscard]] bool matches(const Signature& other) const noexcept {
    return collective == other.collective && dtype == other.dtype && reduce_kind == other.reduce_kind &&
           has_sizes == other.has_sizes && operands == other.operands && root == other.root &&
           dim == other.dim && tensors == other.tensors && elements == other.elements &&
           shape == other.shape && operation == other.operation;
  }
  /// Returns a hash of all that `matches` compares.
  [[nodiscard]] std::uint64_t digest() const noexcept {
    std::uint64_t hash = shape;
    for (const std::uint64_t number :
         {static_cast<std::uint64_t>(collective), static_cast<std::uint64_t>(dtype),
          static_cast<std::uint64_t>(reduce_kind),
          static_cast<std::uint64_t>(has_sizes) | static_cast<std::uint64_t>(operands) << 8U,
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
/// Describes the reduction: "premul_sum with factor 2", for instance.
[[nodiscard]] std::string operation_in_words(const Signature& signature);
/// Describes all that is compared, as far as it fits: "broadcast of 1024 float32, root 0 (shapes 1b2c3d4e)",
/// for instance.
[[nodiscard]] std::string to_string(const Signature& signature);

}  // namespace tutti::transport::team
