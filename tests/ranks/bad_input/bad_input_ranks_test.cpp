// SPDX-License-Identifier: Apache-2.0
#include "ranks/bad_input/bad_call.hpp"
#include "ranks/bad_input/methods.hpp"
#include "ranks/contract/checks.hpp"
#include "support/environment.hpp"
#include "support/ranks.hpp"
#include "tutti/topology.hpp"

#include <vector>

#include <gtest/gtest.h>

/// Bad input of one of two ranks, of which the other hears nothing.
namespace tutti::test::ranks {
namespace {

const Sizes shape{4, 6};

struct BadCallOfARank {
  int rank;
  BadCall call;
};

/// One member per rank, on its device.
std::vector<BadCallOfARank> lines(Device device) {
  const auto good = [device](Scene& scene) { return scene.tensor(shape, device); };
  return {
      {0,
       {"NoTensorAtTheRoot",
        [=](Scene& scene) -> CommunicatorCall {
          return
              [out = good(scene)](Communicator& communicator) { communicator.broadcast(Tensor(), {out}, 0); };
        },
        {"broadcast: ", "tensor is undefined"}}},
      {1,
       {"NoOutputElsewhere",
        [=](Scene&) -> CommunicatorCall {
          return [](Communicator& communicator) { communicator.broadcast({Tensor()}, 0); };
        },
        {"broadcast: ", "tensors[0] is undefined"}}},
      {1,
       {"NoSuchRoot",
        [=](Scene& scene) -> CommunicatorCall {
          return [tensor = good(scene)](Communicator& communicator) { communicator.broadcast({tensor}, 2); };
        },
        {"broadcast: ", "root is 2, expected 0 to 1"}}},
      {1,
       {"NoListForItsMember",
        [=](Scene&) -> CommunicatorCall {
          return [](Communicator& communicator) { communicator.broadcast_coalesced(TensorLists{}, 0); };
        },
        {"broadcast_coalesced: ", "tensors has 0 entries", "local member, 1"}}},
      {1,
       {"NoSumAtTheRoot",
        [=](Scene& scene) -> CommunicatorCall {
          return
              [input = good(scene)](Communicator& communicator) { communicator.reduce_add({input}, {}, 1); };
        },
        {"reduce: ", "out has 0 entries", "local member, 1"}}},
      {0,
       {"SumsForOthersElsewhere",
        [=](Scene& scene) -> CommunicatorCall {
          return [input = good(scene), out = Row{good(scene), good(scene)}](Communicator& communicator) {
            communicator.reduce_add({input}, out, 1);
          };
        },
        {"reduce: ", "out has 2 entries", "local member, 1"}}},
      {0,
       {"OutputOfAnotherElementType",
        [=](Scene& scene) -> CommunicatorCall {
          return [input = good(scene), out = scene.tensor(shape, device, DType::int8)](
                     Communicator& communicator) { communicator.all_reduce_add({input}, {out}); };
        },
        {"all_reduce: ", "out[0]", "int8", "float32"}}},
      {1,
       {"InputInThePlaceOfRank0",
        [=](Scene& scene) -> CommunicatorCall {
          const Tensor whole = scene.tensor({8, 6}, device);
          return
              [=](Communicator& communicator) { communicator.all_gather({whole.narrow(0, 0, 4)}, {whole}); };
        },
        {"all_gather: ", "out[0]", "inputs[0]", "overlaps"}}},
      {0,
       {"OutputInThePlaceOfRank1",
        [=](Scene& scene) -> CommunicatorCall {
          const Tensor whole = scene.tensor({8, 6}, device);
          return [=](Communicator& communicator) {
            communicator.reduce_scatter_add({whole}, {whole.narrow(0, 4, 4)});
          };
        },
        {"reduce_scatter: ", "out[0]", "inputs[0]", "overlaps"}}},
      {1,
       {"PartOnTheHost",
        [=](Scene& scene) -> CommunicatorCall {
          return [out = scene.tensor(shape, Device::host())](Communicator& communicator) {
            communicator.scatter(Tensor(), {out}, 0);
          };
        },
        {"scatter: ", "out[0] is on host", "the device of member 1"}}},
      {0,
       {"NothingToScatterAtTheRoot",
        [=](Scene& scene) -> CommunicatorCall {
          return
              [out = good(scene)](Communicator& communicator) { communicator.scatter(Tensor(), {out}, 0); };
        },
        {"scatter: ", "tensor is undefined"}}},
      {0,
       {"ScatteredIntoItself",
        [=](Scene& scene) -> CommunicatorCall {
          const Tensor whole = scene.tensor({8, 6}, device);
          return [=](Communicator& communicator) { communicator.scatter(whole, {whole.narrow(0, 0, 4)}, 0); };
        },
        {"scatter: ", "out[0]", "tensor", "overlaps"}}},
      {1,
       {"NothingToGatherIntoAtTheRoot",
        [=](Scene& scene) -> CommunicatorCall {
          return [tensor = good(scene)](Communicator& communicator) {
            communicator.gather({tensor}, Tensor(), 1);
          };
        },
        {"gather: ", "out is undefined"}}},
      {0,
       {"MoreThanItsAllocationToGather",
        [=](Scene& scene) -> CommunicatorCall {
          return [tensor = oversized(good(scene), KeepStorage::no)](Communicator& communicator) {
            communicator.gather({tensor}, Tensor(), 1);
          };
        },
        {"gather: ", "tensors[0]", "1073741824 bytes", "allocation holds"}}},
  };
}

TEST(BadInputOfARank, IsRefusedThereAndUnheardOfElsewhere) {
  expect_all_right(2, [](Exchange& exchange) {
    const Device device(exchange.rank() % device_count());
    self_test_peers();  // its operations are not the calls'
    Communicator communicator(exchange, {.devices = {device}});
    const Group group(communicator);
    std::uint64_t seed = 1;
    for (const BadCallOfARank& line : lines(device)) {
      SCOPED_TRACE(line.call.name);
      if (line.rank == communicator.rank()) expect_refusal(communicator, line.call);
      check_all_reduce(group, DType::int32, {1000}, false, ++seed);
      check_scatter_and_gather(group, DType::float32, {5, 6, 7}, 0, 1, ++seed);
    }
  });
}

}  // namespace
}  // namespace tutti::test::ranks
