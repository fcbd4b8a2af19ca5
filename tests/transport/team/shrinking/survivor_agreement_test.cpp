// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shrinking/survivor_agreement.hpp"

#include "support/environment.hpp"
#include "support/fated_processes.hpp"
#include "support/shared_object.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/shared/peer_process.hpp"
#include "transport/team/shared/rank_status.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

/// Processes that are killed and stopped at any time while they agree: the others agree all the same, and
/// never two groups of them.
namespace tutti::transport::team {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t most_ranks = 5;

using test::Fate;
using test::FatedProcesses;

struct Plan {
  std::vector<Fate> fates{};  ///< by rank
  bool leaves_out_late = false;
  bool has_stops = false;
  bool fails_first = false;  ///< rank 0 cannot make the communicator the first time
  [[nodiscard]] std::size_t ranks() const { return fates.size(); }
  [[nodiscard]] std::chrono::milliseconds timeout() const {
    return has_stops ? test::patient(100ms) : test::patient(20s);
  }
};

/// Holds what the processes of a trial share.
struct Shared {
  enum class Outcome : std::uint32_t { none, survived, refused };
  struct Report {
    std::atomic<Outcome> outcome{Outcome::none};
    std::atomic<std::uint64_t> survivors{0};  ///< a bit for each
    std::atomic<int> code{0};
  };

  [[nodiscard]] SurvivorBoard board(std::size_t ranks) {
    return {.word = &word,
            .slots = std::span(slots).first(ranks),
            .mailboxes = std::span(mailboxes).first(ranks),
            .sets = sets};
  }

  std::atomic<std::uint64_t> word{0};
  std::array<ShrinkSlot, most_ranks> slots;
  std::array<Mailbox, most_ranks> mailboxes;
  std::array<std::atomic<std::uint64_t>, most_ranks * SurvivorBoard::set_count> sets;
  std::array<Report, most_ranks> reports;
};

/// One of the processes.
class Rank {
 public:
  Rank(Shared& shared, const Plan& plan, FatedProcesses::Self& fated)
      : shared_(shared), plan_(plan), fated_(fated), self_(fated.number()) {}

  void run() {
    for (std::size_t rank = 0; rank < plan_.ranks(); ++rank)
      peers_[rank] = rank == self_ ? PeerProcess() : PeerProcess(fated_.process(rank));
    const ShrinkWish wish{
        .leaving = {}, .leaves_out_late = plan_.leaves_out_late, .timeout = plan_.timeout()};
    step();
    if (plan_.fails_first) fail_together(wish);
    SurvivorAgreement agreement(shared_.board(plan_.ranks()), self_, team(), wish);
    Shared::Report& report = shared_.reports[self_];
    try {
      agreement.run([this](Exchange& exchange) { make(exchange); }, [this] { survivors_ = 0; });
      report.survivors.store(survivors_);
      report.outcome.store(Shared::Outcome::survived);
    } catch (const Error& error) {
      report.code.store(static_cast<int>(error.code()));
      report.outcome.store(Shared::Outcome::refused);
    }
  }

 private:
  ShrinkingTeam team() {
    return {.is_lost = [this](std::size_t rank, bool may_judge) { return is_lost(rank, may_judge); },
            .end = [this](const std::string& /*reason*/) { step(); },
            .wait_elsewhere = [this] { step(); },
            .timeout = plan_.timeout()};
  }
  void step() { fated_.step(); }
  bool is_lost(std::size_t rank, bool may_judge) {
    step();
    return peers_[rank].is_gone() || (may_judge && fated_.is_silent(rank, plan_.timeout()));
  }
  /// Expects the same error on all ranks, as rank 0 cannot make the communicator.
  void fail_together(const ShrinkWish& wish) {
    SurvivorAgreement agreement(shared_.board(plan_.ranks()), self_, team(), wish);
    try {
      agreement.run(
          [this](Exchange& exchange) {
            synchronize(exchange);
            if (self_ == 0) throw Error(ErrorCode::out_of_memory, "Communicator: no memory is left");
            synchronize(exchange);
          },
          [] {});
      _exit(4);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::out_of_memory) _exit(5);
      if (std::string_view(error.what()) != "Communicator::shrink: no memory is left") _exit(6);
    }
  }
  /// Gathers who survives, in messages of one chunk and of several.
  void make(Exchange& exchange) {
    survivors_ = 0;
    for (const std::uint64_t rank : gather(exchange, std::uint64_t{self_}))
      survivors_ |= std::uint64_t{1} << rank;
    step();
    const std::vector<std::uint64_t> mine(700, self_);
    const std::vector<std::uint64_t> all = gather_lists(exchange, std::span<const std::uint64_t>(mine));
    for (std::size_t i = 0; i < all.size(); ++i) {
      if ((survivors_ >> all[i] & 1U) == 0 || all[i] != all[i / mine.size() * mine.size()]) _exit(3);
    }
    step();
    synchronize(exchange);
  }

  Shared& shared_;
  const Plan& plan_;
  FatedProcesses::Self& fated_;
  const std::size_t self_;
  std::array<PeerProcess, most_ranks> peers_;
  std::uint64_t survivors_ = 0;
};

/// A trial: processes that agree while some of them meet their fates.
class Trial {
 public:
  Trial(const Plan& plan, int number)
      : plan_(plan),
        number_(number),
        processes_(plan.fates, [this](FatedProcesses::Self& fated) { Rank(*shared_, plan_, fated).run(); }) {}

  [[nodiscard]] bool is_over() { return processes_.is_over(); }
  /// Checks what the ranks report. Returns true if some were lost before the others had agreed.
  bool check() const {
    std::uint64_t survivors = 0;
    std::uint64_t reported = 0;
    std::uint64_t refused = 0;
    for (std::size_t rank = 0; rank < plan_.ranks(); ++rank) {
      const Shared::Report& report = shared_->reports[rank];
      const std::uint64_t bit = std::uint64_t{1} << rank;
      if (report.outcome.load() == Shared::Outcome::survived) {
        EXPECT_TRUE(survivors == 0 || report.survivors.load() == survivors) << describe();
        survivors = report.survivors.load();
        reported |= bit;
      } else if (report.outcome.load() == Shared::Outcome::refused) {
        EXPECT_TRUE(plan_.has_stops) << describe();
        EXPECT_EQ(report.code.load(), static_cast<int>(ErrorCode::timeout)) << describe();
        refused |= bit;
      }
    }
    EXPECT_EQ(survivors & reported, reported) << describe();
    EXPECT_EQ(survivors & refused, 0U) << "all survivors go on, or none does: " << describe();
    return survivors != (std::uint64_t{1} << plan_.ranks()) - 1;
  }
  [[nodiscard]] ShrinkStage stage() const { return ShrinkStage::of(shared_->word.load()); }

 private:
  [[nodiscard]] std::string describe() const {
    std::string text = "trial " + std::to_string(number_) + ":";
    for (std::size_t rank = 0; rank < plan_.ranks(); ++rank) {
      const Shared::Report& report = shared_->reports[rank];
      text += " rank " + std::to_string(rank) + " outcome " +
              std::to_string(static_cast<int>(report.outcome.load())) + " survivors " +
              std::to_string(report.survivors.load()) + " " + processes_.fate_of(rank) + ";";
    }
    return text + " round " + std::to_string(stage().round);
  }

  const Plan plan_;
  const int number_;
  const test::SharedObject<Shared> shared_;
  FatedProcesses processes_;
};

Plan random_plan(std::mt19937_64& random, bool has_stops) {
  const auto below = [&](std::size_t end) { return static_cast<int>(random() % end); };
  Plan plan{.fates = std::vector<Fate>(2 + random() % (most_ranks - 1)),
            .leaves_out_late = below(2) == 0,
            .has_stops = has_stops};
  const int lost = 1 + below(plan.ranks());
  for (int i = 0; i < lost; ++i) {
    Fate& fate = plan.fates[random() % plan.ranks()];
    fate.when = below(3) == 0 ? Fate::When::at_time : Fate::When::at_step;
    // Few steps are taken when all goes well: most fates are met early, some late.
    fate.step = 1 + below(std::uint64_t{1} << static_cast<unsigned>(2 + below(6)));
    fate.time = std::chrono::microseconds(below(4000));
    if (has_stops && below(2) == 0) fate.signal = SIGSTOP;
  }
  return plan;
}

/// Runs `count` trials, `at_once` of them at a time. Returns in how many of them ranks were lost in time.
int run_trials(int count, std::size_t at_once, bool has_stops) {
  std::mt19937_64 random(test::test_seed() + (has_stops ? 1 : 0));
  return test::run_trials(count, at_once, [&](int number) {
    return std::make_unique<Trial>(random_plan(random, has_stops), number);
  });
}

TEST(SurvivorAgreement, SurvivesKillsInEveryPhase) {
  EXPECT_GT(run_trials(300, 3, false), 150);
}

TEST(SurvivorAgreement, SurvivesKillsAndStopsInEveryPhase) {
  EXPECT_GT(run_trials(100, 12, true), 50);
}

TEST(SurvivorAgreement, FailsOnAllRanksAlikeAndMayBeTriedAgain) {
  Trial trial({.fates = std::vector<Fate>(3), .fails_first = true}, 0);
  while (!trial.is_over()) usleep(100);
  EXPECT_FALSE(trial.check()) << "all ranks survive";
}

}  // namespace
}  // namespace tutti::transport::team
