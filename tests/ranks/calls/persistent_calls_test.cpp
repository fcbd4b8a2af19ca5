// SPDX-License-Identifier: Apache-2.0
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "tutti/communicator.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"
#include "tutti/graph.hpp"
#include "tutti/persistent.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

/// A communicator's calls that are bound once and launched many times.
namespace tutti {
namespace {

using test::expect_all_right;
using test::refuses;
using Floats = std::vector<float>;

struct PersistentShape {
  int ranks;
  int members_per_rank;
  int hosts;
  bool graph_per_device = false;
};

class PersistentCalls : public testing::TestWithParam<PersistentShape> {};

TEST_P(PersistentCalls, AreMadeByEachLaunch) {
  const PersistentShape shape = GetParam();
  expect_all_right(shape.ranks, [&](Exchange& exchange) {
    if (shape.members_per_rank > device_count()) return;  // on a machine with few GPUs
    setenv("TUTTI_HOST_ID", fmt::format("host {}", exchange.rank() % shape.hosts).c_str(), 1);
    CommunicatorOptions options;
    for (int i = 0; i < shape.members_per_rank; ++i)
      options.devices.emplace_back((exchange.rank() * shape.members_per_rank + i) % device_count());
    Communicator communicator(exchange, options);
    for (const std::int64_t count : {std::int64_t{3}, std::int64_t{300'000}}) {
      std::vector<Tensor> values;
      std::vector<Tensor> sums;
      std::vector<Tensor> all;
      for (const Device device : communicator.devices()) {
        values.push_back(zeros({count}, {.device = device}));
        sums.push_back(zeros({count}, {.device = device}));
        all.push_back(zeros({count * communicator.member_count()}, {.device = device}));
        synchronize(device);
      }
      PersistentCollective step = communicator.persistent(
          [&communicator, values, sums, all] {
            communicator.all_reduce(values, sums, ReduceOp::sum);
            communicator.all_gather(sums, all);
          },
          {.graph_per_device = shape.graph_per_device});
      EXPECT_EQ(step.home_device(), communicator.devices().front().index());
      EXPECT_EQ(sums.back().to_vector<float>().back(), 0) << "nothing has run";
      const Stream stream(step.home_device());
      for (int round = 1; round <= 5; ++round) {
        std::vector<Stream> streams;
        for (std::size_t i = 0; i < values.size(); ++i) {
          const StreamGuard guard(streams.emplace_back(communicator.devices()[i]));
          values[i].fill_(round * (communicator.first_member() + static_cast<int>(i) + 1));
        }
        if (round % 2 == 0) {
          step.launch(streams);
          for (const Stream& each : streams) each.synchronize();
        } else {
          for (const Stream& each : streams) stream.wait_stream(each);
          step.launch(stream);
          stream.synchronize();
        }
        const auto members = communicator.member_count();
        const float expected = static_cast<float>(round * members * (members + 1) / 2);
        EXPECT_EQ(sums.front().to_vector<float>(), Floats(static_cast<std::size_t>(count), expected));
        EXPECT_EQ(all.back().to_vector<float>(), Floats(static_cast<std::size_t>(count * members), expected));
      }
      const char* const how = shape.hosts > 1          ? "made anew"
                              : shape.graph_per_device ? "a graph for each device"
                                                       : "one graph";
      EXPECT_NE(step.explain().find(how), std::string::npos) << step.explain();
      EXPECT_FALSE(step.summary().transport.empty());
      step.launch();
      communicator.barrier();  // which follows the launch
      for (const Device device : communicator.devices()) synchronize(device);
    }
  });
}
INSTANTIATE_TEST_SUITE_P(Shapes, PersistentCalls,
                         testing::Values(PersistentShape{1, 2, 1}, PersistentShape{2, 1, 1},
                                         PersistentShape{2, 2, 1}, PersistentShape{3, 1, 1},
                                         PersistentShape{3, 1, 2}, PersistentShape{1, 2, 1, true},
                                         PersistentShape{2, 2, 1, true}),
                         [](const auto& shape) {
                           return fmt::format("{}x{}on{}{}", shape.param.ranks, shape.param.members_per_rank,
                                              shape.param.hosts, shape.param.graph_per_device ? "apart" : "");
                         });

/// Without waits of the host between them, and on streams that are not ordered otherwise.
TEST(PersistentCallsInTurn, FollowCallsAndAreFollowedByThem) {
  expect_all_right(2, [](Exchange& exchange) {
    const int device = exchange.rank() % device_count();
    Communicator communicator(exchange, {.devices = {Device(device)}});
    const Tensor value = full({50'000}, 1, {.device = device});
    synchronize(device);
    PersistentCollective doubling =
        communicator.persistent([&communicator, value] { communicator.all_reduce_add({value}, {value}); });
    const Stream launches(device);
    const Stream calls(device);
    for (int round = 0; round < 5; ++round) {
      doubling.launch(launches);
      communicator.all_reduce_add({value}, {value}, {calls});
    }
    doubling.launch(calls);
    calls.synchronize();
    EXPECT_EQ(value.to_vector<float>(), Floats(50'000, 2048));
  });
}

TEST(PersistentCallsOfOneProcess, KeepWhatTheyHold) {
  expect_all_right(1, [](Exchange& /*exchange*/) {
    Communicator communicator({.devices = {Device(0)}});
    const Tensor value = full({1000}, 3, {.device = 0});
    const Tensor result = zeros({1000}, {.device = 0});
    std::optional<PersistentCollective> bound;
    {
      const Tensor between = zeros({1000}, {.device = 0});
      synchronize(0);
      bound.emplace(communicator.persistent([&communicator, value, between, result] {
        communicator.all_reduce_add({value}, {value});
        between.copy_(value, Blocking::no);
        result.copy_(between, Blocking::no);
      }));
    }
    const Tensor other = full({1000}, 7, {.device = 0});  // would take the memory of what has been let go of
    synchronize(0);
    bound->launch();
    bound.reset();
    synchronize(0);
    EXPECT_EQ(result.to_vector<float>(), Floats(1000, 3));
    EXPECT_EQ(other.to_vector<float>(), Floats(1000, 7));
  });
}

TEST(PersistentCallsOfOneProcess, AreCapturedAndEndWithTheirCommunicator) {
  expect_all_right(1, [](Exchange& /*exchange*/) {
    std::vector<Device> devices{Device(0)};
    if (device_count() > 1) devices.emplace_back(1);
    Communicator communicator({.devices = devices});
    std::vector<Tensor> values;
    for (const Device device : devices) values.push_back(full({100}, 1, {.device = device}));
    for (const Device device : devices) synchronize(device);
    PersistentCollective bound =
        communicator.persistent([&communicator, values] { communicator.all_reduce_add(values, values); });
    const Stream stream(0);
    const Graph graph = Graph::capture(stream, [&] { bound.launch(); });
    graph.launch(stream);
    stream.synchronize();
    const auto members = static_cast<float>(devices.size());
    EXPECT_EQ(values.back().to_vector<float>(), Floats(100, members));
    bound.launch(stream);
    stream.synchronize();
    EXPECT_EQ(values.back().to_vector<float>(), Floats(100, members * members));
    communicator.abort("enough");
    EXPECT_TRUE(refuses([&] { bound.launch(stream); }, ErrorCode::aborted, {"enough"}));
  });
}

/// The program captures a graph for each device, and launches them as it likes.
TEST(PersistentCallsOfOneProcess, MayBePartsOfSeveralGraphs) {
  expect_all_right(1, [](Exchange& /*exchange*/) {
    if (device_count() < 2) return;  // on a machine with few GPUs
    Communicator communicator({.devices = {Device(0), Device(1)}});
    const std::vector<Stream> streams{Stream(0), Stream(1)};
    std::optional<Graph> second;
    std::optional<Graph> first;
    const std::vector<Tensor> values{full({1000}, 1, {.device = 0}), full({1000}, 2, {.device = 1})};
    {
      const std::vector<Tensor> between{zeros({1000}, {.device = 0}), zeros({1000}, {.device = 1})};
      for (const int device : {0, 1}) synchronize(device);
      first.emplace(Graph::capture(streams[0], [&] {
        second.emplace(Graph::capture(streams[1], [&] {
          for (int i = 0; i < 3; ++i) {
            communicator.all_reduce(values, between, ReduceOp::sum, streams);
            communicator.all_reduce(between, values, ReduceOp::avg, streams);
          }
        }));
      }));
    }
    EXPECT_EQ(values[0].to_vector<float>(), Floats(1000, 1)) << "nothing has run";
    for (int launch = 0; launch < 2; ++launch) {
      first->launch(streams[0]);
      second->launch(streams[1]);
    }
    for (const int device : {0, 1}) synchronize(device);
    EXPECT_EQ(values[0].to_vector<float>(), Floats(1000, 3 * 32));
    EXPECT_EQ(values[1].to_vector<float>(), Floats(1000, 3 * 32));
  });
}

/// Messages inside the process go by kernels of their members then, of any size.
TEST(PersistentCallsOfOneProcess, HaveMessagesInSeveralGraphs) {
  expect_all_right(1, [](Exchange& /*exchange*/) {
    if (device_count() < 2) return;  // on a machine with few GPUs
    Communicator communicator({.devices = {Device(0), Device(1)}});
    for (const std::int64_t count : {std::int64_t{100}, std::int64_t{3'000'000}}) {
      const std::vector<Tensor> values{full({count}, 1, {.device = 0}), full({count}, 2, {.device = 1})};
      const std::vector<Tensor> results{zeros({count}, {.device = 0}), zeros({count}, {.device = 1})};
      for (const int device : {0, 1}) synchronize(device);
      const std::vector<Message> messages{Message::send(values[0], 1), Message::recv(results[1], 0),
                                          Message::send(values[1], 0), Message::recv(results[0], 1)};
      PersistentCollective bound = communicator.persistent(
          [&communicator, messages] { communicator.batch_send_recv(messages); }, {.graph_per_device = true});
      const std::vector<Stream> streams{Stream(0), Stream(1)};
      for (int launch = 0; launch < 3; ++launch) bound.launch(streams);
      for (const Stream& stream : streams) stream.synchronize();
      EXPECT_EQ(results[0].to_vector<float>(), Floats(static_cast<std::size_t>(count), 2));
      EXPECT_EQ(results[1].to_vector<float>(), Floats(static_cast<std::size_t>(count), 1));
    }
  });
}

TEST(PersistentCallsOfOneProcess, GoOnStreamsThatHaveJoinedWhatIsRecorded) {
  expect_all_right(1, [](Exchange& /*exchange*/) {
    Communicator communicator({.devices = {Device(0)}});
    const Tensor tensor = full({8}, 3, {.device = 0});
    const Tensor copy = zeros({8}, {.device = 0});
    synchronize(0);
    const Stream joined(0);
    PersistentCollective bound = communicator.persistent([&communicator, tensor, copy, joined] {
      joined.wait_stream(current_stream(0));
      communicator.all_reduce_add({tensor}, {copy}, {joined});
      current_stream(0).wait_stream(joined);
    });
    EXPECT_EQ(copy.to_vector<float>(), Floats(8, 0));
    bound.launch();
    EXPECT_EQ(copy.to_vector<float>(), Floats(8, 3));
  });
}

TEST(PersistentCallsBetweenHosts, EndTheCommunicatorWhereTheyFail) {
  expect_all_right(2, [](Exchange& exchange) {
    setenv("TUTTI_HOST_ID", fmt::format("host {}", exchange.rank()).c_str(), 1);
    Communicator communicator(exchange, {.devices = {Device(exchange.rank() % device_count())}});
    const int rank = exchange.rank();
    PersistentCollective bound = communicator.persistent([&communicator, rank] {
      communicator.barrier();
      if (rank == 0) throw std::runtime_error("enough");
      communicator.barrier();
    });
    if (rank == 0) {
      EXPECT_THROW(bound.launch(), std::runtime_error);
    } else {
      try {
        bound.launch();
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("rank 0 cannot make its bound calls: enough"),
                  std::string::npos)
            << error.what();
      }
    }
    EXPECT_TRUE(test::becomes_true([&] {
      return static_cast<bool>(
          refuses([&] { communicator.barrier(); }, ErrorCode::internal, {"cannot make its bound calls"}));
    }));
  });
}

TEST(PersistentCallsBetweenHosts, EndNothingWhereAllAreRefused) {
  expect_all_right(2, [](Exchange& exchange) {
    setenv("TUTTI_HOST_ID", fmt::format("host {}", exchange.rank()).c_str(), 1);
    const Device device(exchange.rank() % device_count());
    Communicator communicator(exchange, {.devices = {device}});
    const Tensor tensor = full({8}, 3, {.device = device});
    synchronize(device);
    PersistentCollective wrong =
        communicator.persistent([&communicator, tensor] { communicator.all_reduce_add({tensor}, {}); });
    EXPECT_TRUE(refuses([&] { wrong.launch(); }, ErrorCode::invalid_argument, {"out has 0 entries"}));
    const Stream side(device.index());
    PersistentCollective right = communicator.persistent([&communicator, tensor, device, side] {
      side.wait_stream(current_stream(device.index()));
      communicator.all_reduce_add({tensor}, {tensor}, {side});
      current_stream(device.index()).wait_stream(side);
    });
    right.launch();
    EXPECT_EQ(tensor.to_vector<float>(), Floats(8, 6));
  });
}

TEST(PersistentCallsBetweenHosts, EndTheCommunicatorWhereMessagesHaveBeenMade) {
  expect_all_right(2, [](Exchange& exchange) {
    setenv("TUTTI_HOST_ID", fmt::format("host {}", exchange.rank()).c_str(), 1);
    const Device device(exchange.rank() % device_count());
    const int rank = exchange.rank();
    Communicator communicator(exchange, {.devices = {device}});
    const Tensor tensor = full({8}, 3, {.device = device});
    const Tensor out = zeros({8}, {.device = device});
    synchronize(device);
    PersistentCollective bound = communicator.persistent([&communicator, tensor, out, rank] {
      communicator.sendrecv(tensor, 1 - rank, out, 1 - rank);
      if (rank == 0) throw Error(ErrorCode::invalid_argument, "enough");
      communicator.barrier();
    });
    if (rank == 0) {
      EXPECT_THROW(bound.launch(), Error);
    }
    EXPECT_TRUE(test::becomes_true([&] {
      return static_cast<bool>(refuses([&] { rank == 0 ? communicator.barrier() : bound.launch(); },
                                       ErrorCode::invalid_argument, {"cannot make its bound calls: enough"}));
    }));
  });
}

TEST(PersistentCallsOfOneProcess, AreRefusedWithReasons) {
  expect_all_right(1, [](Exchange& /*exchange*/) {
    Communicator communicator({.devices = {Device(0)}});
    const Tensor tensor = full({8}, 1, {.device = 0});
    EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.persistent(nullptr)); },
                        ErrorCode::invalid_argument,
                        {"Communicator::persistent: calls is empty, expected a function"}));
    EXPECT_TRUE(refuses(
        [&] {
          static_cast<void>(communicator.persistent([&] { communicator.all_reduce_add({tensor}, {}); }));
        },
        ErrorCode::invalid_argument, {"all_reduce: out has 0 entries"}));
    EXPECT_THROW(static_cast<void>(communicator.persistent([] { throw std::runtime_error("no"); })),
                 std::runtime_error);
    const Stream apart(0);
    EXPECT_TRUE(refuses(
        [&] {
          static_cast<void>(
              communicator.persistent([&] { communicator.all_reduce_add({tensor}, {tensor}, {apart}); }));
        },
        ErrorCode::invalid_argument,
        {"all_reduce: streams are not part of the recording", "expected the current streams"}));
    PersistentCollective bound =
        communicator.persistent([&communicator, tensor] { communicator.all_reduce_add({tensor}, {tensor}); });
    if (device_count() > 1) {
      EXPECT_TRUE(refuses([&] { bound.launch(Stream(1)); }, ErrorCode::invalid_argument,
                          {"PersistentCollective::launch: stream is a stream of device 1, expected one of "
                           "device 0"}));
    }
    EXPECT_TRUE(
        refuses([&] { bound.launch(StreamList{}); }, ErrorCode::invalid_argument,
                {"PersistentCollective::launch: streams is empty, expected one per local member, 1"}));
    PersistentCollective of_one_process = persistent_broadcast(tensor, {tensor});
    EXPECT_TRUE(refuses([&] { of_one_process.launch(StreamList{apart}); }, ErrorCode::invalid_argument,
                        {"PersistentCollective::launch: streams", "expected one stream"}));
    bound.launch();
    EXPECT_EQ(tensor.to_vector<float>(), Floats(8, 1));
  });
}

}  // namespace
}  // namespace tutti
