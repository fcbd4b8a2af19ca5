// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

/// The kinds of collectives, with the traits of each. A new collective begins here, with an enumerator and
/// its row of traits.
namespace tutti {

/// A kind of collective. Calls that take a list of tensors for each member (`…_coalesced`) are a form of the
/// same kind, and so are sums (`…_add`), which are reductions by `ReduceOp::sum`.
enum class Collective : std::uint8_t {
  broadcast,
  reduce,
  scatter,
  gather,
  // The kinds from here on are a `Communicator`'s alone.
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  // These move no tensors.
  barrier,
  split,
};
inline constexpr std::size_t collective_count = 10;

/// The members that have results.
enum class CollectiveOutput : std::uint8_t {
  none,
  one,   ///< the root has the whole
  all,   ///< every member has the whole
  part,  ///< every member has a part of its own
};

struct CollectiveTraits {
  std::string_view name;                ///< of the form that takes a tensor for each member
  std::string_view name_of_lists = {};  ///< of the form that takes lists; empty where there is none
  CollectiveOutput output = CollectiveOutput::none;
  bool has_root = false;
  bool reduces = false;              ///< by a `ReduceOp`
  bool has_own_sizes = false;        ///< each part's length is that of its tensor
  bool is_of_communicators = false;  ///< there is no free function

  [[nodiscard]] constexpr bool may_take_lists() const noexcept { return !name_of_lists.empty(); }
};

namespace detail {
inline constexpr std::array<CollectiveTraits, collective_count + 1> collective_traits{{
    {.name = "broadcast",
     .name_of_lists = "broadcast_coalesced",
     .output = CollectiveOutput::all,
     .has_root = true},
    {.name = "reduce",
     .name_of_lists = "reduce_coalesced",
     .output = CollectiveOutput::one,
     .has_root = true,
     .reduces = true},
    {.name = "scatter", .output = CollectiveOutput::part, .has_root = true, .has_own_sizes = true},
    {.name = "gather", .output = CollectiveOutput::one, .has_root = true, .has_own_sizes = true},
    {.name = "all_reduce",
     .name_of_lists = "all_reduce_coalesced",
     .output = CollectiveOutput::all,
     .reduces = true,
     .is_of_communicators = true},
    {.name = "all_gather",
     .name_of_lists = "all_gather_coalesced",
     .output = CollectiveOutput::all,
     .is_of_communicators = true},
    {.name = "reduce_scatter",
     .name_of_lists = "reduce_scatter_coalesced",
     .output = CollectiveOutput::part,
     .reduces = true,
     .is_of_communicators = true},
    {.name = "all_to_all",
     .name_of_lists = "all_to_all_coalesced",
     .output = CollectiveOutput::part,
     .is_of_communicators = true},
    {.name = "barrier", .is_of_communicators = true},
    {.name = "split", .is_of_communicators = true},
    {.name = "unknown", .name_of_lists = "unknown"},
}};
}  // namespace detail

/// Returns false for a number that is no enumerator.
[[nodiscard]] constexpr bool is_known(Collective collective) noexcept {
  return static_cast<std::size_t>(collective) < collective_count;
}
/// Returns a row named "unknown" for a number that is no enumerator.
[[nodiscard]] constexpr const CollectiveTraits& traits_of(Collective collective) noexcept {
  return detail::collective_traits[is_known(collective) ? static_cast<std::size_t>(collective)
                                                        : collective_count];
}

/// A collective in one of its two forms: with a tensor for each member, or with a list of tensors for each.
struct CollectiveForm {
  constexpr CollectiveForm(Collective kind, bool lists = false) noexcept
      : collective(kind), takes_lists(lists) {}

  [[nodiscard]] friend constexpr bool operator==(const CollectiveForm&, const CollectiveForm&) = default;

  Collective collective;
  bool takes_lists;
};
/// Returns the form that takes lists.
[[nodiscard]] constexpr CollectiveForm coalesced(Collective collective) noexcept {
  return {collective, true};
}

/// Returns the enumerator's name, for instance "reduce".
[[nodiscard]] TUTTI_EXPORT std::string_view name_of(Collective collective) noexcept;
/// Returns the name of the method, for instance "reduce_coalesced".
[[nodiscard]] constexpr std::string_view name_of(CollectiveForm form) noexcept {
  const CollectiveTraits& traits = traits_of(form.collective);
  return form.takes_lists ? traits.name_of_lists : traits.name;
}
/// Returns true if tensors take part.
[[nodiscard]] constexpr bool moves_tensors(Collective collective) noexcept {
  return traits_of(collective).output != CollectiveOutput::none;
}
/// Returns true if wholes are cut into members' parts, or put together from them.
[[nodiscard]] constexpr bool moves_parts(Collective collective) noexcept {
  const CollectiveTraits& traits = traits_of(collective);
  if (traits.output == CollectiveOutput::part) return true;
  if (traits.reduces) return false;
  return traits.output == CollectiveOutput::one ||
         (traits.output == CollectiveOutput::all && !traits.has_root);
}

}  // namespace tutti
