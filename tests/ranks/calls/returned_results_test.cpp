// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/member_call.hpp"
#include "support/errors.hpp"
#include "support/memory/memory_books.hpp"
#include "support/ranks.hpp"
#include "support/stream_gate.hpp"
#include "tutti/communicator.hpp"
#include "tutti/data_parallel.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"
#include "tutti/graph.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

/// A communicator's calls that make their outputs.
namespace tutti {
namespace {

using test::expect_all_right;
using test::refuses;
using Floats = std::vector<float>;
using Sizes = std::vector<std::int64_t>;

Sizes sizes_of(const Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

/// {2, 2} of one value, member's number and one, on the device.
Tensor matrix_of(int member, int device) {
  return full({2, 2}, member + 1, {.device = device});
}

class ReturnedResults : public testing::TestWithParam<int> {};

/// Ranks with one member each, on as many hosts as the parameter says.
TEST_P(ReturnedResults, AreNewTensorsOfTheOneMember) {
  expect_all_right(2, [](Exchange& exchange) {
    setenv("TUTTI_HOST_ID", fmt::format("host {}", exchange.rank() % GetParam()).c_str(), 1);
    const int rank = exchange.rank();
    const int device = rank % device_count();
    Communicator communicator(exchange, {.devices = {Device(device)}});
    const Tensor mine = matrix_of(rank, device);

    EXPECT_EQ(communicator.all_reduce_add(mine).to_vector<float>(), Floats(4, 3));
    EXPECT_EQ(communicator.all_reduce(mine).to_vector<float>(), Floats(4, 3));
    EXPECT_EQ(communicator.all_reduce(mine, ReduceOp::max).to_vector<float>(), Floats(4, 2));
    const Tensor gathered = communicator.all_gather(mine);
    EXPECT_EQ(sizes_of(gathered), (Sizes{4, 2}));
    EXPECT_EQ(gathered.to_vector<float>(), (Floats{1, 1, 1, 1, 2, 2, 2, 2}));
    EXPECT_EQ(sizes_of(communicator.all_gather(full({}, 1, {.device = device}))), Sizes{2});
    const Tensor part = communicator.reduce_scatter_add(mine);
    EXPECT_EQ(sizes_of(part), (Sizes{1, 2}));
    EXPECT_EQ(part.to_vector<float>(), Floats(2, 3));
    EXPECT_EQ(communicator.reduce_scatter(mine, ReduceOp::min).to_vector<float>(), Floats(2, 1));

    EXPECT_EQ(communicator.all_to_all(mine).to_vector<float>(), (Floats{1, 1, 2, 2}));
    EXPECT_EQ(communicator.all_to_all_coalesced(std::vector{mine}).at(0).to_vector<float>(),
              (Floats{1, 1, 2, 2}));

    const Tensor other = communicator.sendrecv(mine, 1 - rank, 1 - rank);
    EXPECT_EQ(sizes_of(other), (Sizes{2, 2}));
    EXPECT_EQ(other.to_vector<float>(), Floats(4, static_cast<float>(2 - rank)));
    EXPECT_EQ(other.device(), Device(device));
    EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.sendrecv(mine, 2, 0)); },
                        ErrorCode::invalid_argument, {"sendrecv: to is 2"}));
    EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.sendrecv(mine, 0, -1)); },
                        ErrorCode::invalid_argument, {"sendrecv: from is -1"}));
    EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.sendrecv(Tensor(), 0, 0)); },
                        ErrorCode::invalid_argument, {"sendrecv: tensor"}));

    const std::vector<std::int64_t> sizes{1, 3};
    const Tensor long_part = full({sizes[static_cast<std::size_t>(rank)]}, rank + 1, {.device = device});
    EXPECT_EQ(communicator.all_gather(long_part, sizes).to_vector<float>(), (Floats{1, 2, 2, 2}));
    EXPECT_EQ(communicator.reduce_scatter(mine, ReduceOp::sum, sizes).to_vector<float>(),
              Floats(rank == 0 ? 1 : 3, 3));
    EXPECT_EQ(communicator
                  .all_to_all(mine, {sizes},
                              {rank == 0 ? std::vector<std::int64_t>{1, 1} : std::vector<std::int64_t>{3, 3}})
                  .to_vector<float>(),
              (rank == 0 ? Floats{1, 2} : Floats{1, 1, 1, 2, 2, 2}));
    const Tensor columns = full({2, sizes[static_cast<std::size_t>(rank)]}, rank + 1, {.device = device});
    const Tensor rows = communicator.all_gather(columns, sizes, 1);
    EXPECT_EQ(sizes_of(rows), (Sizes{2, 4}));
    EXPECT_EQ(rows.to_vector<float>(), (Floats{1, 2, 2, 2, 1, 2, 2, 2}));
    const Tensor sum_of_columns = communicator.reduce_scatter(rows, ReduceOp::sum, sizes, -1);
    EXPECT_EQ(sizes_of(sum_of_columns), (Sizes{2, sizes[static_cast<std::size_t>(rank)]}));
    EXPECT_EQ(sum_of_columns.to_vector<float>(), rank == 0 ? Floats(2, 2) : Floats(6, 4));
    const Tensor both = zeros({8}, {.device = device});
    communicator.all_gather({mine}, {both}, {});  // nothing in braces is no sizes

    const Tensor sum = communicator.reduce_add(mine, 1);
    EXPECT_EQ(sum.defined(), rank == 1);
    if (rank == 1) {
      EXPECT_EQ(sum.to_vector<float>(), Floats(4, 3));
    }
    const Tensor product = communicator.reduce(mine, ReduceOp::prod, 0);
    EXPECT_EQ(product.defined(), rank == 0);
    if (rank == 0) {
      EXPECT_EQ(product.to_vector<float>(), Floats(4, 2));
    }

    const std::vector<Tensor> list{mine, full({3}, 5 - rank, {.device = device})};
    const std::vector<Tensor> sums = communicator.all_reduce_coalesced(list);
    EXPECT_EQ(sums.at(1).to_vector<float>(), Floats(3, 9));
    EXPECT_EQ(communicator.all_reduce_add_coalesced(list).at(0).to_vector<float>(), Floats(4, 3));
    EXPECT_EQ(communicator.all_gather_coalesced(list).at(1).to_vector<float>(), (Floats{5, 5, 5, 4, 4, 4}));
    EXPECT_EQ(communicator.reduce_scatter_coalesced(std::vector{mine, mine}).at(1).to_vector<float>(),
              Floats(2, 3));
    EXPECT_EQ(communicator.reduce_add_coalesced(list, 1).size(), rank == 1 ? 2U : 0U);
    EXPECT_EQ(communicator.reduce_coalesced(list, ReduceOp::avg, 0).size(), rank == 0 ? 2U : 0U);
    EXPECT_EQ(mine.to_vector<float>(), Floats(4, static_cast<float>(rank + 1))) << "inputs stay as they are";
  });
}

TEST_P(ReturnedResults, OfARootAreOfTheSizesItTells) {
  expect_all_right(3, [](Exchange& exchange) {
    setenv("TUTTI_HOST_ID", fmt::format("host {}", exchange.rank() % GetParam()).c_str(), 1);
    const int rank = exchange.rank();
    const int device = rank % device_count();
    Communicator communicator(exchange, {.devices = {Device(device)}});
    Tensor roots;
    std::vector<Tensor> list;
    if (rank == 2) {
      const std::vector<std::int64_t> counted{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
      roots = tutti::tensor(counted, {5, 2}, {.device = Device(device)});
      list = {full({}, 7, {.device = device}), roots};
    }
    const std::vector<Tensor> copies = communicator.broadcast(roots, 2);
    ASSERT_EQ(copies.size(), 1U);
    EXPECT_EQ(sizes_of(copies[0]), (Sizes{5, 2}));
    EXPECT_EQ(copies[0].to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
    const std::vector<std::vector<Tensor>> lists = communicator.broadcast_coalesced(list, 2);
    EXPECT_EQ(lists.at(0).size(), 2U);
    EXPECT_EQ(lists[0][0].to_vector<float>(), Floats{7});
    EXPECT_TRUE(communicator.broadcast_coalesced(std::vector<Tensor>(), 1).at(0).empty());

    const std::vector<Tensor> parts = communicator.scatter(roots, 2);
    EXPECT_EQ(sizes_of(parts.at(0)), (Sizes{rank == 2 ? 1 : 2, 2}));
    EXPECT_EQ(parts[0].to_vector<std::int64_t>()[0], 4 * rank);
    const Tensor whole = communicator.gather(parts[0], 0);
    EXPECT_EQ(whole.defined(), rank == 0);
    if (rank == 0) {
      EXPECT_EQ(whole.to_vector<std::int64_t>(), copies[0].to_vector<std::int64_t>());
    }
    const Tensor joined = communicator.gather(full({2, rank}, rank, {.device = device}), 1, -1);
    if (rank == 1) {
      EXPECT_EQ(joined.to_vector<float>(), (Floats{1, 2, 2, 1, 2, 2}));
    }
  });
}
INSTANTIATE_TEST_SUITE_P(Hosts, ReturnedResults, testing::Values(1, 2));

/// Inputs of members 0 and 1, or of member 1 alone, where that is the root of a copy.
std::vector<std::vector<Tensor>> inputs_of(CollectiveForm form) {
  const CollectiveTraits& traits = traits_of(form.collective);
  std::vector<std::vector<Tensor>> rows;
  for (int member = 0; member < 2; ++member) {
    if (member == 0 && traits.has_root && traits.output != CollectiveOutput::one) continue;
    rows.push_back({matrix_of(member, member)});
    if (form.takes_lists) rows.back().push_back(full({4}, 7 - member, {.device = member}));
  }
  return rows;
}

TEST(ReturnedResultsOfOneProcess, AreThoseOfCallsWithOutputs) {
  expect_all_right(1, [](Exchange& /*exchange*/) {
    if (device_count() < 2) return;  // on a machine with one GPU
    Communicator communicator({.devices = {Device(0), Device(1)}});
    for (const CollectiveForm form : test::all_forms()) {
      test::MemberCall call{.inputs = inputs_of(form), .operation = ReduceOp::max, .root = 1};
      const std::vector<std::vector<Tensor>> returned = test::make_returning_call(communicator, form, call);
      for (const std::vector<Tensor>& row : returned) {
        call.out.emplace_back();
        for (const Tensor& tensor : row)
          call.out.back().push_back(full(tensor.sizes(), -1, {.device = tensor.device()}));
      }
      test::make_call(communicator, form, call);
      ASSERT_EQ(returned.size(), 2U) << name_of(form);
      for (std::size_t member = 0; member < 2; ++member) {
        for (std::size_t t = 0; t < returned[member].size(); ++t)
          EXPECT_EQ(returned[member][t].to_vector<float>(), call.out[member][t].to_vector<float>())
              << name_of(form) << ", member " << member << ", tensor " << t;
      }
    }
  });
}

TEST(ReturnedResultsOfOneProcess, AreOneForEachLocalMember) {
  expect_all_right(1, [](Exchange& /*exchange*/) {
    if (device_count() < 2) return;  // on a machine with one GPU
    Communicator communicator({.devices = {Device(0), Device(1)}});
    const std::vector<Tensor> mine{matrix_of(0, 0), matrix_of(1, 1)};
    const std::vector<Tensor> sums = communicator.all_reduce(mine);
    ASSERT_EQ(sums.size(), 2U);
    EXPECT_EQ(sums[1].device(), Device(1));
    EXPECT_EQ(sums[1].to_vector<float>(), Floats(4, 3));
    EXPECT_EQ(communicator.all_gather_coalesced(std::vector{std::vector{mine[0]}, std::vector{mine[1]}})
                  .at(1)
                  .at(0)
                  .to_vector<float>(),
              (Floats{1, 1, 1, 1, 2, 2, 2, 2}));
    EXPECT_EQ(communicator.reduce_add(mine, 1).device(), Device(1));
    EXPECT_EQ(communicator.broadcast(mine[1], 1).at(0).to_vector<float>(), Floats(4, 2));
    EXPECT_EQ(communicator.scatter(mine[0], 0, 1).at(1).to_vector<float>(), Floats(2, 1));
    EXPECT_EQ(communicator.gather(mine, 0, 1).to_vector<float>(), (Floats{1, 1, 2, 2, 1, 1, 2, 2}));
    synchronize(0);
    synchronize(1);

    // As a part of graphs, but where sizes must be learnt.
    const std::vector<Stream> streams{Stream(0), Stream(1)};
    std::vector<Tensor> replayed;
    const Graph graph =
        Graph::capture(streams, [&] { replayed = communicator.all_reduce(mine, ReduceOp::max); });
    graph.launch(streams[0]);
    streams[0].synchronize();
    EXPECT_EQ(replayed.at(0).to_vector<float>(), Floats(4, 2));
    EXPECT_TRUE(refuses(
        [&] {
          static_cast<void>(
              Graph::capture(streams, [&] { static_cast<void>(communicator.broadcast(mine[0], 0)); }));
        },
        ErrorCode::unsupported, {"broadcast", "captured"}));
  });
}

/// What is cached for a stream may still be used there, which launches of a graph do not wait for.
TEST(ReturnedResultsOfOneProcess, AreMemoryOfTheGraphOnAllDevices) {
  expect_all_right(1, [](Exchange& /*exchange*/) {
    if (device_count() < 2) return;
    Communicator communicator({.devices = {Device(0), Device(1)}});
    const std::vector<Tensor> mine{matrix_of(0, 0), matrix_of(1, 1)};
    const std::vector<std::vector<Tensor>> lists{{mine[0]}, {mine[1]}};
    const std::vector<std::int64_t> sizes{2, 2};
    using Results = std::vector<Tensor>;
    const std::vector<std::function<Results()>> calls{
        [&] { return communicator.all_reduce(mine); },
        [&] { return communicator.all_reduce_coalesced(lists).at(1); },
        [&] { return Results{communicator.reduce(mine, ReduceOp::max, 1)}; },
        [&] { return communicator.reduce_coalesced(lists, ReduceOp::max, 1); },
        [&] { return communicator.all_to_all(mine); },
        [&] {
          return communicator.all_gather(mine, {4, 4});
        },
        [&] { return communicator.reduce_scatter(mine, ReduceOp::sum, sizes); },
        [&] {
          return communicator.all_to_all(mine, {sizes, sizes}, {sizes, sizes});
        },
        [&] { return replicate(communicator, {mine[0]}, 0).at(1); }};
    synchronize(0);  // what the streams below do not follow
    synchronize(1);
    const Stream origin(0);
    const Stream joining(1);
    const StreamGuard on_first(origin);
    const StreamGuard on_second(joining);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const Results expected = calls[i]();
      origin.synchronize();
      joining.synchronize();
      test::StreamGate gate(joining);
      static_cast<void>(full_like(expected.back(), 9));  // and its memory is cached
      Results results;
      const Graph graph = Graph::capture(origin, [&] { results = calls[i](); });
      for (const Tensor& result : results)
        EXPECT_EQ(test::graph_pool_of(result), graph.pool().id()) << "call " << i;
      graph.launch(origin);
      origin.synchronize();
      gate.open();
      joining.synchronize();
      ASSERT_EQ(results.size(), expected.size());
      EXPECT_EQ(results.back().to_vector<float>(), expected.back().to_vector<float>()) << "call " << i;
    }
  });
}

TEST(ReturnedResultsOfOneProcess, AreRefusedAsTheCallsWithOutputs) {
  expect_all_right(1, [](Exchange& /*exchange*/) {
    if (device_count() < 2) return;
    Communicator communicator({.devices = {Device(0), Device(1)}});
    const std::vector<Tensor> mine{matrix_of(0, 0), matrix_of(1, 1)};
    const auto is_refused = [](const auto& call, const std::vector<std::string>& words) {
      return refuses(call, ErrorCode::invalid_argument, words);
    };
    EXPECT_TRUE(is_refused([&] { static_cast<void>(communicator.all_reduce(mine[0])); },
                           {"all_reduce: inputs has 1 entries, expected one per local member, 2"}));
    EXPECT_TRUE(is_refused(
        [&] {
          static_cast<void>(communicator.all_reduce(std::vector{mine[0], Tensor()}));
        },
        {"all_reduce: inputs[1]"}));
    EXPECT_TRUE(is_refused(
        [&] {
          static_cast<void>(communicator.all_gather(std::vector{mine[1], mine[0]}));
        },
        {"all_gather: inputs[0] is on", "member 0"}));
    const std::vector<Tensor> odd{zeros({3}, {.device = 0}), zeros({3}, {.device = 1})};
    EXPECT_TRUE(is_refused([&] { static_cast<void>(communicator.reduce_scatter_add(odd)); },
                           {"reduce_scatter: inputs[0] has sizes", "3", "2 members can share equally"}));
    EXPECT_TRUE(is_refused([&] { static_cast<void>(communicator.reduce_add(mine, 2)); },
                           {"reduce: root is 2, expected 0 to 1"}));
    EXPECT_TRUE(is_refused([&] { static_cast<void>(communicator.reduce(mine, ReduceOp::band, 0)); },
                           {"reduce", "band"}));
    EXPECT_TRUE(
        is_refused([&] { static_cast<void>(communicator.broadcast(Tensor(), 1)); }, {"broadcast: tensor"}));
    EXPECT_TRUE(is_refused([&] { static_cast<void>(communicator.broadcast(mine[0], 1)); },
                           {"broadcast: tensor is on", "member 1"}));
    EXPECT_TRUE(is_refused([&] { static_cast<void>(communicator.scatter(mine[0], 0, 2)); },
                           {"scatter: dim is 2, expected -2 to 1"}));
    EXPECT_TRUE(is_refused(
        [&] {
          static_cast<void>(communicator.gather(std::vector{mine[0], odd[1]}, 0));
        },
        {"gather: tensors[1] has sizes"}));
    EXPECT_EQ(communicator.all_reduce(mine).at(0).to_vector<float>(), Floats(4, 3)) << "it goes on";
  });
}

}  // namespace
}  // namespace tutti
