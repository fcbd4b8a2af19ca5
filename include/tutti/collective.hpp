// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

/// The collectives' names, and what each is like. To add one begins here: with an enumerator and its row.
namespace tutti {

enum class Collective : std::uint8_t {
  broadcast,
  broadcast_coalesced,
  reduce_add,
  reduce_add_coalesced,
  reduce,  ///< by any operation; `reduce_add` is the sum
  reduce_coalesced,
  scatter,
  gather,
  // A `Communicator`'s alone.
  all_reduce_add,
  all_reduce_add_coalesced,
  all_reduce,
  all_reduce_coalesced,
  all_gather,
  all_gather_coalesced,
  reduce_scatter_add,
  reduce_scatter,
  reduce_scatter_coalesced,
  all_to_all,
  all_to_all_coalesced,
  // Likewise, and without tensors.
  barrier,
  split,
};
inline constexpr std::size_t collective_count = 21;

/// Who has results.
enum class CollectiveOutput : std::uint8_t {
  none,
  one,   ///< the root has the whole
  all,   ///< every member has the whole
  part,  ///< every member has a part of its own
};

struct CollectiveTraits {
  std::string_view name;  ///< the enumerator's
  /// The collective of one tensor for each member whose bytes go the same ways: the collective itself, unless
  /// it takes lists, or reduces by any operation.
  Collective travels_as;
  CollectiveOutput output = CollectiveOutput::none;
  bool has_root = false;
  bool reduces = false;
  bool takes_operation = false;  ///< a `ReduceOp`; others that reduce add
  bool takes_lists = false;
  bool has_own_sizes = false;        ///< each part's length is that of its tensor
  bool is_of_communicators = false;  ///< and has no free function
};

namespace detail {
inline constexpr std::array<CollectiveTraits, collective_count + 1> collective_traits{{
    {.name = "broadcast",
     .travels_as = Collective::broadcast,
     .output = CollectiveOutput::all,
     .has_root = true},
    {.name = "broadcast_coalesced",
     .travels_as = Collective::broadcast,
     .output = CollectiveOutput::all,
     .has_root = true,
     .takes_lists = true},
    {.name = "reduce_add",
     .travels_as = Collective::reduce_add,
     .output = CollectiveOutput::one,
     .has_root = true,
     .reduces = true},
    {.name = "reduce_add_coalesced",
     .travels_as = Collective::reduce_add,
     .output = CollectiveOutput::one,
     .has_root = true,
     .reduces = true,
     .takes_lists = true},
    {.name = "reduce",
     .travels_as = Collective::reduce_add,
     .output = CollectiveOutput::one,
     .has_root = true,
     .reduces = true,
     .takes_operation = true},
    {.name = "reduce_coalesced",
     .travels_as = Collective::reduce_add,
     .output = CollectiveOutput::one,
     .has_root = true,
     .reduces = true,
     .takes_operation = true,
     .takes_lists = true},
    {.name = "scatter",
     .travels_as = Collective::scatter,
     .output = CollectiveOutput::part,
     .has_root = true,
     .has_own_sizes = true},
    {.name = "gather",
     .travels_as = Collective::gather,
     .output = CollectiveOutput::one,
     .has_root = true,
     .has_own_sizes = true},
    {.name = "all_reduce_add",
     .travels_as = Collective::all_reduce_add,
     .output = CollectiveOutput::all,
     .reduces = true,
     .is_of_communicators = true},
    {.name = "all_reduce_add_coalesced",
     .travels_as = Collective::all_reduce_add,
     .output = CollectiveOutput::all,
     .reduces = true,
     .takes_lists = true,
     .is_of_communicators = true},
    {.name = "all_reduce",
     .travels_as = Collective::all_reduce_add,
     .output = CollectiveOutput::all,
     .reduces = true,
     .takes_operation = true,
     .is_of_communicators = true},
    {.name = "all_reduce_coalesced",
     .travels_as = Collective::all_reduce_add,
     .output = CollectiveOutput::all,
     .reduces = true,
     .takes_operation = true,
     .takes_lists = true,
     .is_of_communicators = true},
    {.name = "all_gather",
     .travels_as = Collective::all_gather,
     .output = CollectiveOutput::all,
     .is_of_communicators = true},
    {.name = "all_gather_coalesced",
     .travels_as = Collective::all_gather,
     .output = CollectiveOutput::all,
     .takes_lists = true,
     .is_of_communicators = true},
    {.name = "reduce_scatter_add",
     .travels_as = Collective::reduce_scatter_add,
     .output = CollectiveOutput::part,
     .reduces = true,
     .is_of_communicators = true},
    {.name = "reduce_scatter",
     .travels_as = Collective::reduce_scatter_add,
     .output = CollectiveOutput::part,
     .reduces = true,
     .takes_operation = true,
     .is_of_communicators = true},
    {.name = "reduce_scatter_coalesced",
     .travels_as = Collective::reduce_scatter_add,
     .output = CollectiveOutput::part,
     .reduces = true,
     .takes_operation = true,
     .takes_lists = true,
     .is_of_communicators = true},
    {.name = "all_to_all",
     .travels_as = Collective::all_to_all,
     .output = CollectiveOutput::part,
     .is_of_communicators = true},
    {.name = "all_to_all_coalesced",
     .travels_as = Collective::all_to_all,
     .output = CollectiveOutput::part,
     .takes_lists = true,
     .is_of_communicators = true},
    {.name = "barrier", .travels_as = Collective::barrier, .is_of_communicators = true},
    {.name = "split", .travels_as = Collective::split, .is_of_communicators = true},
    {.name = "unknown", .travels_as = static_cast<Collective>(collective_count)},
}};
}  // namespace detail

/// Whether it is an enumerator, and not another number.
[[nodiscard]] constexpr bool is_known(Collective collective) noexcept {
  return static_cast<std::size_t>(collective) < collective_count;
}
/// Of what is no enumerator, a row named "unknown".
[[nodiscard]] constexpr const CollectiveTraits& traits_of(Collective collective) noexcept {
  return detail::collective_traits[is_known(collective) ? static_cast<std::size_t>(collective)
                                                        : collective_count];
}
/// The enumerator's name, for instance "reduce_add".
[[nodiscard]] TUTTI_EXPORT std::string_view name_of(Collective collective) noexcept;
/// Whether tensors take part.
[[nodiscard]] constexpr bool moves_tensors(Collective collective) noexcept {
  return traits_of(collective).output != CollectiveOutput::none;
}
/// Whether wholes are made of members' parts: they are cut into these, or put together from them.
[[nodiscard]] constexpr bool moves_parts(Collective collective) noexcept {
  const CollectiveTraits& traits = traits_of(collective);
  if (traits.output == CollectiveOutput::part) return true;
  if (traits.reduces) return false;
  return traits.output == CollectiveOutput::one ||
         (traits.output == CollectiveOutput::all && !traits.has_root);
}

}  // namespace tutti
