// SPDX-License-Identifier: Apache-2.0
#include "tutti/collectives.hpp"
#include "tutti/persistent.hpp"

#include <array>
#include <concepts>
#include <type_traits>

#include <gtest/gtest.h>

/// Calls with both or neither of `devices` and `out` do not compile; the ways of writing lists do.
namespace tutti::test {
namespace {

#define TUTTI_CALLABLE(concept_name, function) \
  template <class... Arguments>                \
  concept concept_name = requires(Arguments... arguments) { function(arguments...); }

TUTTI_CALLABLE(Broadcastable, broadcast);
TUTTI_CALLABLE(BroadcastableCoalesced, broadcast_coalesced);
TUTTI_CALLABLE(Scatterable, scatter);
TUTTI_CALLABLE(Gatherable, gather);
TUTTI_CALLABLE(Addable, reduce_add);
TUTTI_CALLABLE(AddableCoalesced, reduce_add_coalesced);
TUTTI_CALLABLE(PersistentlyBroadcastable, persistent_broadcast);

static_assert(Broadcastable<Tensor, DeviceList> && Broadcastable<Tensor, TensorList>);
static_assert(!Broadcastable<Tensor>, "neither devices nor out");
static_assert(!Broadcastable<Tensor, DeviceList, TensorList>, "both devices and out");

static_assert(BroadcastableCoalesced<TensorList, DeviceList> &&
              BroadcastableCoalesced<TensorList, TensorLists>);
static_assert(!BroadcastableCoalesced<TensorList>, "neither devices nor out");
static_assert(!BroadcastableCoalesced<TensorList, DeviceList, TensorLists>, "both devices and out");

static_assert(Scatterable<Tensor, DeviceList> && Scatterable<Tensor, TensorList>);
static_assert(!Scatterable<Tensor>, "neither devices nor out");
static_assert(!Scatterable<Tensor, DeviceList, TensorList>, "both devices and out");
static_assert(!Scatterable<Tensor, TensorList, ListOf<std::int64_t>>, "chunk sizes come from out");

static_assert(Gatherable<TensorList> && Gatherable<TensorList, int, Device> &&
              Gatherable<TensorList, Tensor>);
static_assert(!Gatherable<TensorList, int, Device, Tensor>, "both a destination and out");
static_assert(!Gatherable<TensorList, Tensor, int, Device>, "both a destination and out");

static_assert(Addable<TensorList> && Addable<TensorList, Device> && Addable<TensorList, Tensor>);
static_assert(!Addable<TensorList, Device, Tensor>, "both a destination and out");
static_assert(AddableCoalesced<TensorLists, Device> && AddableCoalesced<TensorLists, TensorList>);
static_assert(!AddableCoalesced<TensorLists, Device, TensorList>, "both a destination and out");

/// `{}` stands for what is not given; where both would be such, for no destination.
template <class Expected, class Call>
constexpr bool gives = std::same_as<std::invoke_result_t<Call>, Expected>;
constexpr auto add_to_none = [] { return reduce_add(TensorList(), {}, CollectiveOptions()); };
constexpr auto add_to_none_shortly = [] { return reduce_add(TensorList(), {}); };
constexpr auto add_all_to_none = [] {
  return reduce_add_coalesced(TensorLists(), {}, default_buffer_size, CollectiveOptions());
};
constexpr auto gather_to_none = [] { return gather(TensorList(), 0, {}, CollectiveOptions()); };
constexpr auto scatter_in_equal_parts = [] { return scatter(Tensor(), {0, 1}, {}, 0, {}, {}); };
static_assert(gives<Tensor, decltype(add_to_none)> && gives<Tensor, decltype(add_to_none_shortly)>);
static_assert(gives<std::vector<Tensor>, decltype(add_all_to_none)>);
static_assert(gives<Tensor, decltype(gather_to_none)>);
static_assert(gives<std::vector<Tensor>, decltype(scatter_in_equal_parts)>);

static_assert(PersistentlyBroadcastable<Tensor, TensorList>);
static_assert(!PersistentlyBroadcastable<Tensor, DeviceList>, "a persistent call needs given outputs");

TEST(ListArguments, AreWrittenInManyWays) {
  const std::vector<Device> vector{0, 1};
  const std::array<Device, 2> array{0, 1};
  const std::span<const Device> span(vector);
  const auto length = [](DeviceList list) { return list.size(); };
  EXPECT_EQ(length({0, 1}), 2U);
  EXPECT_EQ(length({Device(0)}), 1U);
  EXPECT_EQ(length(vector), 2U);
  EXPECT_EQ(length(array), 2U);
  EXPECT_EQ(length(span), 2U);
  EXPECT_EQ(length({}), 0U);
}

}  // namespace
}  // namespace tutti::test
