// SPDX-License-Identifier: Apache-2.0
#include "support/values/random.hpp"
#include "transport/plan/plan_builder.hpp"
#include "transport/plan/problem_maker.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

/// The order of plans, checked without any device: which work is sure to be done before which other work,
/// derived from records and waits alone, against what each step reads and writes.
namespace tutti::transport {
namespace {

struct Interval {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// What one step does to one buffer.
struct Access {
  BufferId buffer = 0;
  bool writes = false;
  std::vector<Interval> bytes;
};

Access rows_at(Place place, bool writes, std::uint64_t row_bytes, std::uint64_t rows, std::uint64_t pitch) {
  Access access{place.buffer, writes, {}};
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::uint64_t begin = place.offset + row * (rows > 1 ? pitch : 0);
    access.bytes.push_back({begin, begin + row_bytes});
  }
  return access;
}

std::vector<Access> accesses_of(const CopyStep& step) {
  return {rows_at(step.source, false, step.row_bytes, step.rows, step.source_pitch),
          rows_at(step.target, true, step.row_bytes, step.rows, step.target_pitch)};
}

std::vector<Access> accesses_of(const FanOutStep& step) {
  std::vector<Access> result;
  for (const backend::FanOutSegment& segment : step.segments) {
    result.push_back(
        rows_at(step.pointers[segment.source], false, segment.row_bytes, segment.rows, segment.source_pitch));
    for (std::uint32_t i = 0; i < segment.target_count; ++i) {
      result.push_back(rows_at(step.pointers[segment.first_target + i], true, segment.row_bytes, segment.rows,
                               segment.target_pitch));
    }
  }
  return result;
}

std::vector<Access> accesses_of(const ReductionStep& step) {
  std::vector<Access> result;
  for (const backend::OrderedReductionSegment& segment : step.segments) {
    const std::uint64_t bytes = segment.count * size_of(step.dtype);
    for (std::uint32_t i = 0; i < step.input_count; ++i) {
      result.push_back(rows_at(step.pointers[segment.first_input + i], false, bytes, 1, 0));
    }
    result.push_back(rows_at(step.pointers[segment.first_output], true, bytes, 1, 0));
  }
  return result;
}

bool overlap(const Access& a, const Access& b) {
  return std::ranges::any_of(a.bytes, [&](const Interval& x) {
    return std::ranges::any_of(b.bytes,
                               [&](const Interval& y) { return x.begin < y.end && y.begin < x.end; });
  });
}

/// Follows a plan and reports the first thing that is not in order; empty if everything is.
class OrderChecker {
 public:
  OrderChecker(const Problem& problem, const Plan& plan) : problem_(problem), plan_(plan) {}

  /// The whole plan, on streams on which work is queued before and after.
  std::string check_launch() {
    start([](LaneId lane, LaneId other) { return lane == other; });
    run([](Phase) { return true; });
    for (const Done& done : done_) {
      for (const Access& access : done.accesses) {
        const LaneId home = plan_.homes[access.buffer];
        if (home != host_lane && !knows(home, done.event)) {
          fail("step {} touches buffer {}, but lane {} does not wait for it", done.event, access.buffer,
               home);
        }
      }
    }
    return failure_;
  }
  /// The body alone, between a fork to all lanes and a join.
  std::string check_body() {
    start([](LaneId, LaneId) { return true; });
    run([](Phase phase) { return phase == Phase::body; });
    return failure_;
  }

 private:
  using Knowledge = std::vector<bool>;  ///< by event: sure to be done
  struct Done {
    std::size_t event = 0;
    std::vector<Access> accesses;
  };

  template <class... Values>
  void fail(fmt::format_string<Values...> text, Values&&... values) {
    if (failure_.empty()) failure_ = fmt::format(text, std::forward<Values>(values)...);
  }
  [[nodiscard]] bool knows(LaneId lane, std::size_t event) const { return knowledge_[lane][event]; }

  /// Events: what was queued on each lane before, then the steps.
  void start(const std::function<bool(LaneId, LaneId)>& knows_before) {
    const auto lanes = static_cast<LaneId>(plan_.lane_devices.size());
    for (LaneId lane = 0; lane < lanes; ++lane) {
      knowledge_.emplace_back(plan_.lane_devices.size() + plan_.steps.size());
      for (LaneId other = 0; other < lanes; ++other) knowledge_[lane][other] = knows_before(lane, other);
    }
  }

  void run(const std::function<bool(Phase)>& takes_part) {
    for (std::size_t index = 0; index < plan_.steps.size(); ++index) {
      if (!takes_part(plan_.steps[index].phase)) continue;
      event_ = plan_.lane_devices.size() + index;
      std::visit([this](const auto& step) { take(step); }, plan_.steps[index].step);
    }
  }

  void take(const RecordStep& step) { marks_[step.mark] = knowledge_[step.lane]; }
  void take(const WaitStep& step) {
    const auto mark = marks_.find(step.mark);
    if (mark == marks_.end())
      return fail("lane {} waits for mark {} before it is recorded", step.lane, step.mark);
    Knowledge& knowledge = knowledge_[step.lane];
    for (std::size_t event = 0; event < knowledge.size(); ++event) {
      if (mark->second[event]) knowledge[event] = true;
    }
  }
  void take(const AcceleratedStep&) { fail("no such step is expected here"); }
  void take(const RoundsStep&) { fail("no such step is expected here"); }
  template <class Work>
  void take(const Work& step) {
    std::vector<Access> accesses = accesses_of(step);
    for (const Access& access : accesses) {
      if (access.buffer < plan_.operand_count && plan_.homes[access.buffer] != host_lane &&
          !knows(step.lane, problem_.ready[access.buffer])) {
        fail("step {} touches buffer {} before lane {} is waited for", event_, access.buffer,
             problem_.ready[access.buffer]);
      }
      for (const Done& done : done_) {
        if (knows(step.lane, done.event)) continue;
        for (const Access& earlier : done.accesses) {
          if (earlier.buffer == access.buffer && (earlier.writes || access.writes) &&
              overlap(earlier, access)) {
            fail("steps {} and {} use the same bytes of buffer {} and are not in order", done.event, event_,
                 access.buffer);
          }
        }
      }
    }
    done_.push_back({event_, std::move(accesses)});
    knowledge_[step.lane][event_] = true;
  }

  const Problem& problem_;
  const Plan& plan_;
  std::vector<Knowledge> knowledge_;  ///< by lane
  std::map<MarkId, Knowledge> marks_;
  std::vector<Done> done_;
  std::size_t event_ = 0;
  std::string failure_;
};

TEST(PlanOrder, HoldsForEveryKindOfProblem) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    test::Random random(seed);
    const auto pick = [&random](int low, int high) { return static_cast<int>(random.between(low, high)); };
    const int devices = pick(2, 6);
    const auto root = static_cast<LaneId>(pick(0, devices - 1));
    ProblemMaker make(devices, root);
    const int columns = pick(1, 4);
    const int kind = pick(0, 3);
    const bool from_host = pick(0, 3) == 0;
    const LaneId home = from_host ? host_lane : root;
    const LaneId ready = pick(0, 1) == 0 && !from_host ? root : host_lane;
    const bool has_copy_at_home = pick(0, 1) == 0;
    for (int column = 0; column < (kind == 1 || kind == 2 ? 1 : columns); ++column) {
      const std::uint64_t bytes = (std::uint64_t{1} << random.between(0, 26)) * 4;
      const auto rows = static_cast<std::uint64_t>(pick(0, 1) == 0 ? 1 : pick(2, 9));
      switch (kind) {
        case 0:
          make.broadcast(home, bytes, ready, has_copy_at_home);
          break;
        case 1:
          make.scatter(home, bytes / rows + 4, rows, ready);
          break;
        case 2:
          make.gather(home, bytes / rows + 4, rows);
          break;
        default:
          make.reduce(bytes / 4, pick(0, 1) == 0);
          break;
      }
    }
    Problem& problem = make.problem();
    problem.mode = pick(0, 1) == 0 ? LaunchMode::eager : LaunchMode::persistent;
    if (from_host && kind != 3) problem.root = host_lane;
    const int islands = pick(1, devices);
    const Plan plan = lower(problem, [islands](int device, int peer) {
      return device == peer || device % islands == peer % islands;
    });
    const auto trace = [&] {
      return fmt::format("seed {}: {} devices, kind {}, {} islands: {}", seed, devices, kind, islands,
                         plan.summary.algorithm);
    };
    ASSERT_EQ(OrderChecker(problem, plan).check_launch(), "") << trace();
    ASSERT_EQ(OrderChecker(problem, plan).check_body(), "") << trace();
  }
}

TEST(PlanOrder, ACheckThatFindsNothingWouldBeWorthless) {
  ProblemMaker make(4, 0);
  make.scatter(0, std::uint64_t{8} << 20U, 1, host_lane);
  const Plan plan = lower(make.problem(), reaches_all);
  ASSERT_EQ(OrderChecker(make.problem(), plan).check_launch(), "");
  std::size_t waits = 0;
  for (std::size_t index = 0; index < plan.steps.size(); ++index) {
    if (!std::holds_alternative<WaitStep>(plan.steps[index].step)) continue;
    ++waits;
    Plan damaged = plan;
    damaged.steps.erase(damaged.steps.begin() + static_cast<std::ptrdiff_t>(index));
    EXPECT_NE(OrderChecker(make.problem(), damaged).check_launch(), "") << "without step " << index;
  }
  EXPECT_EQ(waits, 8U);  // three targets and the side lane, before and after
}

TEST(PlanOrder, MoreRowsThanAKernelCanCountTakeSeveralPieces) {
  constexpr std::uint64_t rows = (std::uint64_t{1} << 32U) + 8;
  ProblemMaker make(2, 0);
  make.gather(0, 1, rows);
  const Plan plan = lower(make.problem(), reaches_all);
  std::uint64_t bytes = 0;
  for (const PlannedStep& planned : plan.steps) {
    const auto* const kernel = std::get_if<FanOutStep>(&planned.step);
    if (kernel == nullptr) continue;
    for (const backend::FanOutSegment& segment : kernel->segments) bytes += segment.row_bytes * segment.rows;
  }
  EXPECT_EQ(bytes, 2 * rows);
}

/// The root's link carries what goes out; nothing of it comes back for the root's own copy.
TEST(PlanOrder, ASplitBroadcastCopiesAtHomeWhatStaysThere) {
  constexpr std::uint64_t bytes = std::uint64_t{16} << 20U;
  constexpr LaneId root = 1;
  ProblemMaker make(4, root);
  make.broadcast(root, bytes, host_lane, true);
  const Plan plan = lower(make.problem(), reaches_all);
  EXPECT_EQ(plan.summary.algorithm, "split and fan out");
  std::map<std::pair<LaneId, LaneId>, std::uint64_t> written;  // by the kernel's lane and the target's
  std::set<LaneId> first_targets;
  for (const PlannedStep& planned : plan.steps) {
    const auto* const kernel = std::get_if<FanOutStep>(&planned.step);
    if (kernel == nullptr) continue;
    for (const backend::FanOutSegment& segment : kernel->segments) {
      first_targets.insert(plan.homes[kernel->pointers[segment.first_target].buffer]);
      for (std::uint32_t i = 0; i < segment.target_count; ++i) {
        const LaneId home = plan.homes[kernel->pointers[segment.first_target + i].buffer];
        written[{kernel->lane, home}] += segment.row_bytes * segment.rows;
      }
    }
  }
  for (LaneId target = 0; target < 4; ++target) {
    std::uint64_t total = 0;
    for (LaneId lane = 0; lane < 4; ++lane) {
      const std::uint64_t part = written[{lane, target}];
      EXPECT_EQ(part != 0, (lane == root) == (target == root)) << lane << " to " << target;
      total += part;
    }
    EXPECT_EQ(total, bytes) << "at " << target;
  }
  EXPECT_EQ(first_targets.size(), 4U) << "each kernel begins with another one";
}

/// The root's link carries the result; a share for the root would nearly double what it has to carry.
TEST(PlanOrder, ASplitSumIsMadeByAllButTheRoot) {
  constexpr std::uint64_t count = std::uint64_t{4} << 20U;
  for (const bool in_place : {false, true}) {
    ProblemMaker make(4, 2);
    make.reduce(count, in_place);
    const Plan plan = lower(make.problem(), reaches_all);
    EXPECT_EQ(plan.summary.algorithm, "split sums");
    std::map<LaneId, std::uint64_t> shares;
    for (const PlannedStep& planned : plan.steps) {
      const auto* const sum = std::get_if<ReductionStep>(&planned.step);
      if (sum == nullptr) continue;
      EXPECT_EQ(sum->input_count, 4U);
      for (const backend::OrderedReductionSegment& segment : sum->segments)
        shares[sum->lane] += segment.count;
    }
    ASSERT_EQ(shares.size(), 3U);
    EXPECT_FALSE(shares.contains(2));
    std::uint64_t total = 0;
    for (const auto& [lane, share] : shares) {
      EXPECT_NEAR(static_cast<double>(share), count / 3.0, 256) << "lane " << lane;
      total += share;
    }
    EXPECT_EQ(total, count);
  }
}

/// Some outputs at home are the source itself, others are not: what goes abroad is split all the same.
TEST(PlanOrder, ASplitBroadcastOfAListMayStayHomeInPart) {
  ProblemMaker make(4, 0);
  make.broadcast(0, std::uint64_t{4} << 20U, host_lane, true);
  make.broadcast(0, std::uint64_t{4} << 20U, host_lane, false);
  const Plan plan = lower(make.problem(), reaches_all);
  EXPECT_EQ(plan.summary.algorithm, "split and fan out");
  EXPECT_EQ(OrderChecker(make.problem(), plan).check_launch(), "");
}

/// With one other device there is nothing to split.
TEST(PlanOrder, TheRootAddsWhatOneOtherDeviceGives) {
  ProblemMaker make(2, 0);
  make.reduce(std::uint64_t{4} << 20U, false);
  EXPECT_EQ(lower(make.problem(), reaches_all).summary.algorithm, "root sum");
}

/// The receivers' waits stand between the copies, so that the next call finds the first of them done.
TEST(PlanOrder, AScatterReleasesEachReceiverAfterItsOwnCopy) {
  ProblemMaker make(3, 0);
  make.scatter(0, std::uint64_t{8} << 20U, 1, host_lane);
  const Plan plan = lower(make.problem(), reaches_all);
  EXPECT_EQ(plan.summary.algorithm, "copy engines");
  EXPECT_EQ(plan.beside, std::vector<LaneId>{0});
  std::vector<std::string> order;
  for (const PlannedStep& planned : plan.steps) {
    if (const auto* copy = std::get_if<CopyStep>(&planned.step)) {
      order.push_back(fmt::format("copy on {} to {}", copy->lane, plan.homes[copy->target.buffer]));
    } else if (const auto* wait = std::get_if<WaitStep>(&planned.step)) {
      order.push_back(fmt::format("{} waits", wait->lane));
    }
  }
  EXPECT_EQ(order, (std::vector<std::string>{"3 waits", "copy on 3 to 0", "0 waits", "copy on 0 to 1",
                                             "1 waits", "0 waits", "copy on 0 to 2", "2 waits", "0 waits"}));
}

}  // namespace
}  // namespace tutti::transport
