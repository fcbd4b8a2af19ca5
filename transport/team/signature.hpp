// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hash.hpp"
#include "tutti/collective.hpp"
#include "tutti/dtype.hpp"
#include "tutti/reduce_op.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

/// What the ranks of a team must agree on, call by call.
namespace tutti::transport::team {

/// How many devices one process can bring in.
inline constexpr std::size_t most_local_members = 16;

/// One call as one rank made it. All fields but `lengths` are equal on all ranks of a call that matches.
struct Signature {
  Collective collective = Collective::barrier;
  DType dtype = DType::float32;  ///< of the first tensor
  ReduceKind reduce_kind = ReduceKind::sum;
  bool has_sizes = false;  ///< of parts that may be of unequal lengths, as the call gives them
  /// No collective, but a round of messages among the members of the only rank, which compares it with none.
  bool are_messages = false;
  std::int16_t root = -1;  ///< member, -1 where there is none
  std::int16_t dim = 0;
  std::uint32_t tensors = 1;  ///< per member; or how many messages
  /// Per member; of scatter and gather, per unit of length along `dim`; with sizes of all parts, or 0 where
  /// members' own differ.
  std::uint64_t elements = 0;
  std::uint64_t shape = 0;  ///< a hash of all sizes and element types that must agree
  /// Lengths of the local members along `dim`, where the collective has sizes of their own.
  std::array<std::uint64_t, most_local_members> lengths{};

  void add_to_shape(std::uint64_t number) noexcept { shape = mix(shape, number); }
  [[nodiscard]] bool matches(const Signature& other) const noexcept {
    return collective == other.collective && dtype == other.dtype && reduce_kind == other.reduce_kind &&
           has_sizes == other.has_sizes && root == other.root && dim == other.dim &&
           tensors == other.tensors && elements == other.elements && shape == other.shape;
  }
  /// A hash of all that `matches` compares.
  [[nodiscard]] std::uint64_t digest() const noexcept {
    std::uint64_t hash = shape;
    for (const std::uint64_t number :
         {static_cast<std::uint64_t>(collective), static_cast<std::uint64_t>(dtype),
          static_cast<std::uint64_t>(reduce_kind), static_cast<std::uint64_t>(has_sizes),
          static_cast<std::uint64_t>(root), static_cast<std::uint64_t>(dim), std::uint64_t{tensors},
          elements}) {
      hash = mix(hash, number);
    }
    return hash;
  }
};
/// For instance "broadcast of 1024 float32, root 0 (shapes 1b2c3d4e)".
[[nodiscard]] std::string to_string(const Signature& signature);

}  // namespace tutti::transport::team
