// SPDX-License-Identifier: Apache-2.0
#include "support/errors.hpp"
#include "tutti/collectives.hpp"
#include "tutti/device.hpp"
#include "tutti/persistent.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

/// Calls at the edge of what there is: lists of no tensors, tensors without dimensions, devices named as the
/// current one.
namespace tutti::test {
namespace {

using List = std::vector<Tensor>;
using Lists = std::vector<std::vector<Tensor>>;

/// Another one than the first, where there is one.
Device last_device() {
  return device_count() - 1;
}

Tensor scalar(float value, Device device) {
  return full({}, value, {.device = device});
}

const std::vector<TransportKind> all_kinds{TransportKind::automatic, TransportKind::staged};

TEST(ListsOfNoTensors, AreBroadcastToListsOfNone) {
  for (const TransportKind transport : all_kinds) {
    const CollectiveOptions options{.transport = transport};
    const Lists results = broadcast_coalesced(List{}, {0, last_device()}, default_buffer_size, options);
    EXPECT_EQ(results.size(), 2U);
    EXPECT_TRUE(std::ranges::all_of(results, &List::empty));
    EXPECT_NO_THROW(broadcast_coalesced(List{}, Lists(2), default_buffer_size, options));
  }
  EXPECT_EQ(last_plan().transport, "none");
}

TEST(ListsOfNoTensors, AreSummedToAListOfNone) {
  for (const TransportKind transport : all_kinds) {
    const CollectiveOptions options{.transport = transport};
    EXPECT_TRUE(reduce_add_coalesced(Lists(3), last_device(), default_buffer_size, options).empty());
    EXPECT_TRUE(reduce_add_coalesced(Lists(1)).empty());
    EXPECT_NO_THROW(reduce_add_coalesced(Lists(2), List{}, default_buffer_size, options));
  }
}

TEST(ListsOfNoTensors, CanBeBoundAndLaunched) {
  const DeviceGuard guard(last_device());
  std::vector<PersistentCollective> bound;
  bound.push_back(persistent_broadcast_coalesced(List{}, Lists(2)));
  bound.push_back(persistent_reduce_add_coalesced(Lists(2), List{}));
  for (PersistentCollective& call : bound) {
    EXPECT_EQ(Device(call.home_device()), last_device());
    EXPECT_NO_THROW(call.launch());
    EXPECT_NO_THROW(call.launch(Stream(last_device())));
  }
  EXPECT_NO_THROW(synchronize());
}

TEST(ListsOfNoTensors, AreAsLongAsTheirCounterparts) {
  const auto invalid = ErrorCode::invalid_argument;
  const Tensor tensor = zeros({3}, {.device = 0});
  EXPECT_TRUE(refuses(
      [&] {
        broadcast_coalesced(List{}, Lists{{}, {tensor}});
      },
      invalid, {"broadcast_coalesced", "out[1] has 1 tensors", "expected 0"}));
  EXPECT_TRUE(refuses([&] { broadcast_coalesced(List{tensor}, Lists{{}}); }, invalid,
                      {"broadcast_coalesced", "out[0] has 0 tensors", "expected 1"}));
  EXPECT_TRUE(refuses(
      [&] {
        static_cast<void>(reduce_add_coalesced(Lists{{}, {tensor}}));
      },
      invalid, {"reduce_add_coalesced", "inputs[1] has 1 tensors", "expected 0"}));
  EXPECT_TRUE(refuses([&] { reduce_add_coalesced(Lists(2), List{tensor}); }, invalid,
                      {"reduce_add_coalesced", "out has 1 tensors", "expected 0"}));
  EXPECT_TRUE(refuses([&] { static_cast<void>(reduce_add_coalesced(Lists(2), Device::host())); }, invalid,
                      {"reduce_add_coalesced", "destination is the host"}));
  EXPECT_TRUE(refuses(
      [&] {
        static_cast<void>(broadcast_coalesced(List{}, {0, device_count()}));
      },
      invalid, {"broadcast_coalesced", "devices[1]"}));
}

TEST(TensorsWithoutDimensions, AreGatheredToAVector) {
  const Device last = last_device();
  const List losses{scalar(1, 0), scalar(2, last), scalar(3, 0)};
  const std::vector<float> expected{1, 2, 3};
  EXPECT_EQ(gather(losses, 0, last).to_vector<float>(), expected);
  EXPECT_EQ(gather(losses, -1, Device::host()).to_vector<float>(), expected);
  const Tensor out = zeros({3}, {.device = last});
  gather(losses, out);
  EXPECT_EQ(out.to_vector<float>(), expected);
  out.fill_(0);
  PersistentCollective bound = persistent_gather(losses, out);
  bound.launch();
  synchronize(bound.home_device());
  EXPECT_EQ(out.to_vector<float>(), expected);
  EXPECT_EQ(gather({scalar(7, 0)}, 0, Device(0)).dim(), 1);
}

TEST(TensorsWithoutDimensions, AreJoinedAlongTheirOnlyDimension) {
  const auto invalid = ErrorCode::invalid_argument;
  const List losses{scalar(1, 0), scalar(2, 0)};
  EXPECT_TRUE(refuses([&] { static_cast<void>(gather(losses, 1)); }, invalid, {"gather", "dim is 1"}));
  EXPECT_TRUE(refuses([&] { gather(losses, scalar(0, 0)); }, invalid, {"gather", "out", "expected [2]"}));
  EXPECT_TRUE(refuses(
      [&] {
        static_cast<void>(gather({zeros({1}, {.device = 0}), losses[0]}, 0));
      },
      invalid, {"gather", "tensors[1]", "expected 1 dimensions"}));
}

TEST(CurrentDevice, IsMeantByNegativeIndicesInLists) {
  const Device last = last_device();
  const DeviceGuard guard(last);
  const Tensor source = full({6}, 5, {.device = 0});
  const auto devices_of = [](const List& tensors) {
    std::vector<Device> devices;
    for (const Tensor& tensor : tensors) devices.push_back(tensor.device());
    return devices;
  };
  const std::vector<Device> expected{0, last};
  EXPECT_EQ(devices_of(broadcast(source, {0, -1})), expected);
  EXPECT_EQ(devices_of(scatter(source, {0, -2})), expected);
  const Lists lists = broadcast_coalesced({source, source}, {0, -1});
  EXPECT_EQ(devices_of({lists[0][0], lists[1][1]}), expected);
  EXPECT_EQ(reduce_add({source, source}, -1).device(), last);
  EXPECT_EQ(reduce_add_coalesced(lists, -5)[0].device(), last);
  EXPECT_EQ(gather({source, source}, 0, -1).device(), last);
  EXPECT_EQ(explain({.bytes = 64, .devices = {0, -1}, .root = -1}),
            explain({.bytes = 64, .devices = {0, last}, .root = last}));
}

}  // namespace
}  // namespace tutti::test
