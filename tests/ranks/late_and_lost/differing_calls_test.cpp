// SPDX-License-Identifier: Apache-2.0
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "support/collectives/compiled_reduction.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/shared/rank_status.hpp"
#include "tutti/communicator.hpp"
#include "tutti/reduce_op.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Ranks of one host that call something else than the others: all must hear of it, and nobody takes the
/// data.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

TEST(DifferingCalls, PartsAreNotCutByTheirLengths) {
  expect_all_right(2, [](Exchange& exchange) {
    const int rank = exchange.rank();
    for (int repetition = 0; repetition < 20; ++repetition) {
      Communicator communicator = make(exchange);
      const Tensor whole = rank == 0 ? some_tensor(100) : Tensor();
      const Tensor part = some_tensor(rank == 0 ? 70 : 30);
      communicator.scatter(whole, {part}, 0);
      // Until what the scatter has left would be overwritten.
      for (std::size_t call = 1; call < transport::team::RankStatus::history; ++call) communicator.barrier();
      const auto differ = [&] {
        if (rank == 0) return communicator.scatter(whole, {part}, 0);
        communicator.broadcast({part}, 0);
        for (;;) communicator.barrier();
      };
      EXPECT_TRUE(refuses(differ, ErrorCode::invalid_argument, {"does not match", "scatter", "broadcast"}));
    }
  });
}

struct Difference {
  const char* name;
  std::function<void(Communicator&, int rank)> call;
  std::vector<std::string> mentions;
};

TEST(DifferingCalls, EndOnAllRanksWithBothSignatures) {
  const std::vector<Difference> differences{
      {"operation",
       [](Communicator& communicator, int rank) {
         const Tensor tensor = some_tensor();
         if (rank == 1) return communicator.broadcast({tensor}, 0);
         communicator.all_reduce_add({tensor}, {tensor});
       },
       {"broadcast", "all_reduce"}},
      {"element type",
       [](Communicator& communicator, int rank) {
         const Tensor tensor = zeros({8}, {.dtype = rank == 1 ? DType::float16 : DType::int16, .device = 0});
         communicator.all_reduce_add({tensor}, {tensor});
       },
       {"float16", "int16"}},
      {"count",
       [](Communicator& communicator, int rank) {
         const Tensor tensor = some_tensor(rank == 1 ? 10 : 20);
         communicator.broadcast({tensor}, 0);
       },
       {"10 float32", "20 float32"}},
      {"operation on elements",
       [](Communicator& communicator, int rank) {
         const Tensor tensor = some_tensor();
         communicator.all_reduce({tensor}, {tensor}, rank == 1 ? ReduceOp::max : ReduceOp::avg);
       },
       {"by max", "by avg"}},
      {"factors",
       [](Communicator& communicator, int rank) {
         const Tensor tensor = some_tensor();
         communicator.all_reduce_coalesced({{tensor}}, {{tensor}},
                                           ReduceOp::premul_sum(rank == 1 ? 2.0 : 3.0));
       },
       {"all_reduce_coalesced", "by premul_sum with factor 2 ", "by premul_sum with factor 3 "}},
      {"source texts",
       [](Communicator& communicator, int rank) {
         const Tensor tensor = some_tensor();
         communicator.all_reduce(
             {tensor}, {tensor},
             ReduceOp::compiled(rank == 1 ? "template <class T> T f(T a, T b) { return a - b; }"
                                          : "template <class T> T f(T a, T b) { return a + b; }"));
       },
       {"all_reduce", "by compiled f (text "}},
      {"factors of each member",
       [](Communicator& communicator, int rank) {
         const Tensor tensor = some_tensor();
         communicator.all_reduce({tensor}, {tensor}, ReduceOp::premul_sum({1, rank == 1 ? 2.5 : 2, 0.5}));
       },
       {"with factors 1, 2.5, 0.5 ", "with factors 1, 2, 0.5 "}},
      {"root",
       [](Communicator& communicator, int rank) {
         communicator.broadcast({some_tensor()}, rank == 1 ? 1 : 0);
       },
       {"root 0", "root 1"}},
      {"order",
       [](Communicator& communicator, int rank) {
         const Tensor tensor = some_tensor();
         if (rank == 1) communicator.barrier();
         communicator.broadcast({tensor}, 0);
         if (rank != 1) communicator.barrier();
       },
       {"broadcast", "barrier"}},
      {"a list of none",
       [](Communicator& communicator, int rank) {
         std::vector<std::vector<Tensor>> lists(1);
         if (rank != 1) lists[0].push_back(some_tensor(8));
         communicator.broadcast_coalesced(lists, 0);
       },
       {"broadcast_coalesced", "0 tensors", "8 float32"}},
      {"sizes of a list",
       [](Communicator& communicator, int rank) {
         const std::vector<std::vector<Tensor>> lists{
             {some_tensor(rank == 1 ? 3 : 5), some_tensor(rank == 1 ? 5 : 3)}};
         communicator.broadcast_coalesced(lists, 0);
       },
       {"broadcast_coalesced", "in 2 tensors of 3, 5, root 0", "in 2 tensors of 5, 3, root 0"}},
      {"element types of a list",
       [](Communicator& communicator, int rank) {
         const auto of = [&](DType dtype) { return zeros({4}, {.dtype = dtype, .device = 0}); };
         communicator.broadcast_coalesced(
             {{of(DType::float32), of(rank == 1 ? DType::int32 : DType::float32)}}, 0);
       },
       {"in 2 tensors of 4, 4 int32", "in 2 tensors of 4, 4, root"}},
      {"other dimensions than the one that is cut",
       [](Communicator& communicator, int rank) {
         const Tensor part = some_tensor(12).view(rank == 1 ? std::vector<std::int64_t>{2, 2, 3}
                                                            : std::vector<std::int64_t>{2, 3, 2});
         communicator.gather({part}, rank == 0 ? some_tensor(36).view({6, 3, 2}) : Tensor(), 0);
       },
       {"of sizes [1, 2, 3]", "of sizes [1, 3, 2]"}},
      {"equal numbers in unequal parts",
       [](Communicator& communicator, int rank) {
         const std::vector<std::int64_t> sizes{5, rank == 1 ? 7 : 6, rank == 1 ? 4 : 5};
         communicator.all_gather({some_tensor(sizes[static_cast<std::size_t>(rank)])}, {some_tensor(16)},
                                 sizes);
       },
       {"in parts of sizes 5, 7, 4", "in parts of sizes 5, 6, 5"}},
      {"sum of the parts",
       [](Communicator& communicator, int rank) {
         communicator.scatter(rank == 0 ? some_tensor(100) : Tensor(), {some_tensor(30)}, 0);
       },
       {"scatter", "90 long in all", "is 100"}},
      {"sizes of parts",
       [](Communicator& communicator, int rank) {
         const std::vector<std::int64_t> sizes{5, rank == 1 ? 9 : 7, 5};
         communicator.all_gather({some_tensor(sizes[static_cast<std::size_t>(rank)])},
                                 {some_tensor(rank == 1 ? 19 : 17)}, sizes);
       },
       {"all_gather of 19 float32", "17 float32", "in parts of sizes 5, 9, 5", "in parts of sizes 5, 7, 5"}},
      {"dimension of parts",
       [](Communicator& communicator, int rank) {
         const Tensor column = some_tensor(3).view({3, 1});
         const Tensor row = some_tensor(3).view({1, 3});
         communicator.all_gather({rank == 1 ? column : row}, {some_tensor(9).view({3, 3})}, {1, 1, 1},
                                 rank == 1 ? 1 : 0);
       },
       {"all_gather of 9 float32 in parts of sizes 3, 3, 3 along dimension 1"}},
      {"dimension of parts that are combined by what is compiled",
       [](Communicator& communicator, int rank) {
         const Tensor column = some_tensor(3).view({3, 1});
         const Tensor row = some_tensor(3).view({1, 3});
         communicator.reduce_scatter({some_tensor(9).view({3, 3})}, {rank == 1 ? column : row},
                                     compiled_difference(), {1, 1, 1}, rank == 1 ? 1 : 0);
       },
       {"reduce_scatter of 9 float32 by compiled difference (text ",
        "in parts of sizes 3, 3, 3 along dimension 1"}},
      {"sizes that not all give",
       [](Communicator& communicator, int rank) {
         const Tensor out = some_tensor(12);
         if (rank == 1) return communicator.all_gather({some_tensor(4)}, {out}, {4, 4, 4});
         communicator.all_gather({some_tensor(4)}, {out});
       },
       {"all_gather of 12 float32 in parts of sizes 4, 4, 4", "all_gather of 4 float32"}},
      {"an exchange of which not all give sizes",
       [](Communicator& communicator, int rank) {
         const Tensor input = some_tensor(6);
         const Tensor out = some_tensor(6);
         if (rank != 1) return communicator.all_to_all({input}, {out}, {{2, 2, 2}}, {{2, 2, 2}});
         communicator.all_to_all({input}, {out});
       },
       {"all_to_all of float32 in parts of given sizes", "all_to_all of 6 float32"}},
      {"sizes of an exchange",
       [](Communicator& communicator, int rank) {
         const Tensor input = some_tensor(6);
         const Tensor out = some_tensor(rank == 2 ? 7 : 6);
         communicator.all_to_all({input}, {out}, {{2, 2, 2}}, {{2, rank == 2 ? 3 : 2, 2}});
       },
       {"all_to_all #1: member 1 sends 2 elements to member 2, which expects 3 of it"}},
  };
  for (const Difference& difference : differences) {
    SCOPED_TRACE(difference.name);
    expect_all_right(3, [&](Exchange& exchange) {
      Communicator communicator = make(exchange);
      const Stopwatch watch;
      const std::string text = failure_of(0, [&] { difference.call(communicator, exchange.rank()); });
      EXPECT_LT(watch.elapsed(), timeout + slack);
      EXPECT_TRUE(mentions(text, difference.mentions));
      EXPECT_TRUE(refuses([&] { communicator.barrier(); }, ErrorCode::invalid_argument, difference.mentions));
    });
  }
}

TEST(DifferingCalls, DoNothingWhoeverIsStillToCome) {
  expect_all_right(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    if (exchange.rank() != 1) {
      const Tensor tensor = some_tensor(exchange.rank() == 2 ? 20 : 10);
      tensor.fill_(exchange.rank());
      const std::string text = failure_of(0, [&] { communicator.broadcast({tensor}, 0); });
      EXPECT_TRUE(mentions(text, {"does not match", "rank 0", "10 float32", "rank 2", "20 float32"}));
      EXPECT_EQ(std::ranges::count(tensor.to_vector<float>(), static_cast<float>(exchange.rank())),
                tensor.numel());
    }
    transport::team::synchronize(exchange);
    EXPECT_TRUE(refuses([&] { communicator.barrier(); }, ErrorCode::invalid_argument, {"does not match"}));
  });
}

}  // namespace
}  // namespace tutti::test::ranks
