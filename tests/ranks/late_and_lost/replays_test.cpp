// SPDX-License-Identifier: Apache-2.0
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/communicator.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"
#include "tutti/graph.hpp"
#include "tutti/persistent.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

/// Launches of bound calls and of captured graphs whose ranks are late, leave, stop, die, or launch something
/// else.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

enum class Kind : std::uint8_t { bound, captured };

/// Calls of a communicator, to be launched many times on the current stream.
class Launches {
 public:
  Launches(Kind kind, Communicator& communicator, const std::function<void()>& calls) {
    if (kind == Kind::bound) {
      bound_.emplace(communicator.persistent(calls));
    } else {
      graph_.emplace(Graph::capture(Stream(0), calls));
    }
  }
  void launch() {
    if (bound_) {
      bound_->launch();
    } else {
      graph_->launch(current_stream(0));
    }
  }

 private:
  std::optional<PersistentCollective> bound_;
  std::optional<Graph> graph_;
};

struct ReplayShape {
  Kind kind;
  std::int64_t count;  ///< of elements: by slots and inboxes, or read where they lie
};

class Replays : public testing::TestWithParam<ReplayShape> {
 protected:
  [[nodiscard]] static Launches launches_of(Communicator& communicator, const Tensor& in, const Tensor& out) {
    return {GetParam().kind, communicator,
            [&communicator, in, out] { communicator.all_reduce({in}, {out}, ReduceOp::sum); }};
  }
  [[nodiscard]] static Tensor filled(float value) {
    Tensor tensor = full({GetParam().count}, value, {.device = 0});
    synchronize(0);
    return tensor;
  }
  /// Returns when all ranks' first launches are done: what ends the team after that ends none of these.
  static void launch_first(Exchange& exchange, Launches& launches) {
    launches.launch();
    synchronize(0);
    transport::team::synchronize(exchange);
  }
  /// What the calls, or waiting for them, end with; "nothing fails" if they do not.
  [[nodiscard]] static std::string end_of(const std::function<void()>& calls) {
    try {
      calls();
      synchronize(0);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing fails";
  }
};
INSTANTIATE_TEST_SUITE_P(
    Kinds, Replays,
    testing::Values(ReplayShape{Kind::bound, 1000}, ReplayShape{Kind::bound, 300'000},
                    ReplayShape{Kind::captured, 1000}, ReplayShape{Kind::captured, 300'000}),
    [](const auto& shape) {
      return fmt::format("{}Of{}", shape.param.kind == Kind::bound ? "Bound" : "Captured", shape.param.count);
    });

TEST_P(Replays, ThatWaitForARankThatLeavesEndAtOnce) {
  expect_all_right(3, [](Exchange& exchange) {
    std::optional<Communicator> communicator = make(exchange, hang_limit());
    const Tensor tensor = filled(1);
    std::optional<Launches> launches = launches_of(*communicator, tensor, tensor);
    launch_first(exchange, *launches);
    const Stopwatch watch;
    if (exchange.rank() == 1) {
      launches.reset();
      communicator.reset();
    } else {
      const std::string text = end_of([&] { launches->launch(); });
      EXPECT_TRUE(mentions(text, {"rank 1 has left", "in a replay of all_reduce of", "(#1)"}));
      EXPECT_TRUE(refuses([&] { communicator->check(); }, ErrorCode::peer_unavailable, {"rank 1 has left"}));
      EXPECT_TRUE(refuses([&] { communicator->barrier(); }, ErrorCode::peer_unavailable, {"rank 1"}));
    }
    EXPECT_LT(watch.elapsed(), slack);
  });
}

TEST_P(Replays, ThatWaitForAStoppedRankNameIt) {
  Ranks ranks(3, [](Exchange& exchange) {
    Communicator communicator = make_patient(exchange);
    const Tensor tensor = filled(1);
    Launches launches = launches_of(communicator, tensor, tensor);
    launch_first(exchange, launches);
    if (exchange.rank() == 1) std::raise(SIGSTOP);
    const std::string text = end_of([&] { launches.launch(); });
    EXPECT_TRUE(mentions(text, {"a replay of all_reduce", within_timeout, "rank 1 has not begun it",
                                "its process has done nothing for"}));
    EXPECT_EQ(text.find("rank 2 has"), std::string::npos) << text;
    EXPECT_TRUE(refuses([&] { communicator.check(); }, ErrorCode::timeout, {"rank 1"}));
  });
  ranks.resume_after_others(timeout + slack, 1);
  expect_endings(ranks, {all_right, all_right, all_right});
}

TEST_P(Replays, ThatWaitForAKilledRankNameIt) {
  Ranks ranks(3, [](Exchange& exchange) {
    Communicator communicator = make_patient(exchange);
    const Tensor tensor = filled(1);
    Launches launches = launches_of(communicator, tensor, tensor);
    launch_first(exchange, launches);
    if (exchange.rank() == 1) std::raise(SIGKILL);
    EXPECT_TRUE(mentions(end_of([&] { launches.launch(); }), {"rank 1 (process", "is gone"}));
  });
  expect_endings(ranks, {all_right, killed, all_right});
}

TEST_P(Replays, AreAsPatientAsTheirCommunicator) {
  expect_all_right(2, [](Exchange& exchange) {
    const std::chrono::milliseconds patience = patient(500ms);
    Communicator communicator(exchange,
                              {.devices = {Device(0)}, .timeout = hang_limit(), .patience = patience});
    const Tensor tensor = filled(1);
    Launches launches = launches_of(communicator, tensor, tensor);
    launches.launch();
    synchronize(0);
    const Stopwatch watch;
    if (exchange.rank() == 1) {
      EXPECT_TRUE(becomes_true([&] { return !communicator.is_running(); }));
    } else {
      const std::string text = end_of([&] { launches.launch(); });
      EXPECT_TRUE(mentions(text, {within(patience), "rank 1 has not begun it, its last call is all_reduce"}));
      EXPECT_GE(watch.elapsed(), patience);
    }
    EXPECT_LT(watch.elapsed(), patience + slack);
  });
}

TEST_P(Replays, WaitForLateRanksInTime) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const Tensor in = filled(static_cast<float>(exchange.rank() + 1));
    const Tensor out = filled(0);
    Launches launches = launches_of(communicator, in, out);
    // More than the notes have room for, and what is made at once in between.
    for (int round = 0; round < 40; ++round) {
      if (round % 20 == 10 && exchange.rank() == 1) std::this_thread::sleep_for(100ms);
      launches.launch();
      if (round % 7 == 0) communicator.barrier();
    }
    synchronize(0);
    communicator.check();
    const std::vector<float> sums = out.to_vector<float>();
    EXPECT_EQ(std::ranges::count(sums, 3.0F), GetParam().count);
  });
}

/// Rank 0 and rank 1 do different things, of which neither is satisfied by the other's.
void expect_difference(Communicator& communicator, const std::string& text,
                       const std::vector<std::string>& fragments) {
  EXPECT_TRUE(mentions(text, {"calls do not match"}));
  EXPECT_TRUE(mentions(text, fragments));
  EXPECT_TRUE(refuses([&] { communicator.check(); }, ErrorCode::invalid_argument, fragments));
}

TEST_P(Replays, SatisfyNoCallThatIsMadeAtOnce) {
  for (const bool is_barrier : {true, false}) {
    SCOPED_TRACE(is_barrier ? "barrier" : "all_reduce");
    expect_all_right(2, [is_barrier](Exchange& exchange) {
      Communicator communicator = make(exchange, hang_limit());
      const Tensor in = filled(1);
      const Tensor out = filled(0);
      Launches launches = launches_of(communicator, in, out);
      launches.launch();
      synchronize(0);
      const std::string text = end_of([&] {
        if (exchange.rank() == 1) return launches.launch();
        if (is_barrier) return communicator.barrier();
        communicator.all_reduce({in}, {out}, ReduceOp::sum);
      });
      expect_difference(communicator, text, {"is in a replay of all_reduce", "(#1)", "(#2)"});
    });
  }
}

TEST_P(Replays, OfDifferentCallsAreToldApart) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const Tensor in = filled(static_cast<float>(exchange.rank() + 1));
    const Tensor first_out = filled(0);
    const Tensor second_out = filled(0);
    Launches first = launches_of(communicator, in, first_out);
    Launches second = launches_of(communicator, in, second_out);
    const std::string text = end_of([&] { (exchange.rank() == 0 ? first : second).launch(); });
    expect_difference(communicator, text, {"a replay of all_reduce", "(#1)", "(#2)"});
    EXPECT_EQ(first_out.to_vector<float>().front(), 0) << "nothing of another call";
    EXPECT_EQ(second_out.to_vector<float>().front(), 0) << "nothing of another call";
  });
}

/// What one rank does in a trial, in order; each has tensors of its own, of a length of its own.
enum class Deed : std::uint8_t { bound_sum, captured_sum, captured_broadcast, sum, barrier };
constexpr std::size_t deeds = 6;

/// Whether ranks with these orders are in the same calls at the same time: barriers are all alike.
bool are_alike(const std::vector<std::vector<std::size_t>>& orders, const std::vector<Deed>& kinds) {
  const auto identity = [&](std::size_t deed) { return kinds[deed] == Deed::barrier ? deeds : deed; };
  return std::ranges::all_of(orders, [&](const std::vector<std::size_t>& order) {
    return std::ranges::equal(order, orders[0], {}, identity, identity);
  });
}

std::vector<std::vector<std::size_t>> random_orders(int rank_count, std::mt19937& random) {
  std::vector<std::size_t> order(deeds);
  for (std::size_t i = 0; i < deeds; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  std::vector orders(static_cast<std::size_t>(rank_count), order);
  if (random() % 3 == 0) return orders;
  const std::size_t place = random() % (deeds - 1);
  std::vector<std::size_t>& other = orders[random() % orders.size()];
  std::swap(other[place], other[place + 1]);
  return orders;
}

/// One trial of a rank with deeds that are numbered alike by all.
class Trial {
 public:
  Trial(Communicator& communicator, const std::vector<Deed>& kinds) : communicator_(communicator) {
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const auto value = static_cast<float>(communicator.rank() + 1 + 10 * static_cast<int>(i));
      ins_.push_back(full({count_of(i)}, value, {.device = 0}));
      outs_.push_back(zeros({count_of(i)}, {.device = 0}));
    }
    synchronize(0);
    for (std::size_t i = 0; i < kinds.size(); ++i) prepare(i, kinds[i]);
  }

  /// What it ends with; empty if it does not.
  std::string carry_out(const std::vector<std::size_t>& order) {
    try {
      for (const std::size_t deed : order) deeds_[deed]();
      synchronize(0);
      communicator_.check();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
  void expect_right_results() const {
    const int ranks = communicator_.rank_count();
    for (std::size_t i = 0; i < outs_.size(); ++i) {
      if (kinds_[i] == Deed::barrier) continue;
      const int base = 10 * static_cast<int>(i);
      const int sum =
          kinds_[i] == Deed::captured_broadcast ? base + 1 : ranks * base + ranks * (ranks + 1) / 2;
      const std::vector<float> values = outs_[i].to_vector<float>();
      EXPECT_EQ(std::ranges::count(values, static_cast<float>(sum)), count_of(i)) << "deed " << i;
    }
  }

 private:
  /// Calls that are made at once are told apart by it.
  [[nodiscard]] static std::int64_t count_of(std::size_t deed) {
    return 3000 + 16 * static_cast<std::int64_t>(deed);
  }

  void prepare(std::size_t i, Deed kind) {
    kinds_.push_back(kind);
    const Tensor& in = ins_[i];
    const Tensor& out = outs_[i];
    const auto sum = [this, in, out] { communicator_.all_reduce({in}, {out}, ReduceOp::sum); };
    const auto broadcast = [this, in, out] { communicator_.broadcast({in}, {out}, 0); };
    const auto launch = [this](Kind of, const std::function<void()>& calls) {
      const auto launches = std::make_shared<Launches>(of, communicator_, calls);
      deeds_.emplace_back([launches] { launches->launch(); });
    };
    switch (kind) {
      case Deed::bound_sum:
        return launch(Kind::bound, sum);
      case Deed::captured_sum:
        return launch(Kind::captured, sum);
      case Deed::captured_broadcast:
        return launch(Kind::captured, broadcast);
      case Deed::sum:
        return deeds_.push_back(sum);
      case Deed::barrier:
        deeds_.emplace_back([this] { communicator_.barrier(); });
    }
  }

  Communicator& communicator_;
  std::vector<Deed> kinds_;
  std::vector<Tensor> ins_;
  std::vector<Tensor> outs_;
  std::vector<std::function<void()>> deeds_;
};

TEST(ReplaysInAnyOrder, AreRightOrEnd) {
  expect_all_right(3, [](Exchange& exchange) {
    std::mt19937 random(static_cast<std::uint32_t>(test_seed()));  // the same on all ranks
    for (int trial = 0; trial < 8; ++trial) {
      SCOPED_TRACE(trial);
      std::vector<Deed> kinds;
      for (std::size_t i = 0; i < deeds; ++i) kinds.push_back(static_cast<Deed>(random() % 5));
      const auto orders = random_orders(exchange.size(), random);
      Communicator communicator = make(exchange, hang_limit());
      Trial mine(communicator, kinds);
      transport::team::synchronize(exchange);
      const std::string end = mine.carry_out(orders[static_cast<std::size_t>(exchange.rank())]);
      if (end.empty()) mine.expect_right_results();
      if (are_alike(orders, kinds)) {
        EXPECT_EQ(end, "");
      } else {
        EXPECT_TRUE(becomes_true([&] { return !communicator.is_running(); }));
      }
      transport::team::synchronize(exchange);
    }
  });
}

}  // namespace
}  // namespace tutti::test::ranks
