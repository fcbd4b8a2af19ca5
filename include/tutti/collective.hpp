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
  scatter,
  gather,
  // A `Communicator`'s alone.
  all_reduce_add,
  all_reduce_add_coalesced,
  all_gather,
  reduce_scatter_add,
  // Likewise, and without tensors.
  barrier,
  split,
};
inline constexpr std::size_t collective_count = 12;

/// Who has results.
enum class CollectiveOutput : std::uint8_t {
  none,
  one,   ///< the root has the whole
  all,   ///< every member has the whole
  part,  ///< every member has a part of its own
};

struct CollectiveTraits {
  std::string_view name;  ///< the enumerator's
  /// The collective that does the same with one tensor for each member: the collective itself, unless it
  /// takes lists.
  Collective of_one_tensor;
  CollectiveOutput output = CollectiveOutput::none;
  bool has_root = false;
  bool is_sum = false;
  bool takes_lists = false;
  bool has_own_sizes = false;        ///< members' parts may differ in length
  bool is_of_communicators = false;  ///< and has no free function
};

namespace detail {
inline constexpr std::array<CollectiveTraits, collective_count + 1> collective_traits{{
    {.name = "broadcast",
     .of_one_tensor = Collective::broadcast,
     .output = CollectiveOutput::all,
     .has_root = true},
    {.name = "broadcast_coalesced",
     .of_one_tensor = Collective::broadcast,
     .output = CollectiveOutput::all,
     .has_root = true,
     .takes_lists = true},
    {.name = "reduce_add",
     .of_one_tensor = Collective::reduce_add,
     .output = CollectiveOutput::one,
     .has_root = true,
     .is_sum = true},
    {.name = "reduce_add_coalesced",
     .of_one_tensor = Collective::reduce_add,
     .output = CollectiveOutput::one,
     .has_root = true,
     .is_sum = true,
     .takes_lists = true},
    {.name = "scatter",
     .of_one_tensor = Collective::scatter,
     .output = CollectiveOutput::part,
     .has_root = true,
     .has_own_sizes = true},
    {.name = "gather",
     .of_one_tensor = Collective::gather,
     .output = CollectiveOutput::one,
     .has_root = true,
     .has_own_sizes = true},
    {.name = "all_reduce_add",
     .of_one_tensor = Collective::all_reduce_add,
     .output = CollectiveOutput::all,
     .is_sum = true,
     .is_of_communicators = true},
    {.name = "all_reduce_add_coalesced",
     .of_one_tensor = Collective::all_reduce_add,
     .output = CollectiveOutput::all,
     .is_sum = true,
     .takes_lists = true,
     .is_of_communicators = true},
    {.name = "all_gather",
     .of_one_tensor = Collective::all_gather,
     .output = CollectiveOutput::all,
     .is_of_communicators = true},
    {.name = "reduce_scatter_add",
     .of_one_tensor = Collective::reduce_scatter_add,
     .output = CollectiveOutput::part,
     .is_sum = true,
     .is_of_communicators = true},
    {.name = "barrier", .of_one_tensor = Collective::barrier, .is_of_communicators = true},
    {.name = "split", .of_one_tensor = Collective::split, .is_of_communicators = true},
    {.name = "unknown", .of_one_tensor = static_cast<Collective>(collective_count)},
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

}  // namespace tutti
