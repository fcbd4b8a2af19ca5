// SPDX-License-Identifier: Apache-2.0
#include "support/environment.hpp"
#include "support/fated_processes.hpp"
#include "support/idle_process.hpp"
#include "support/shared_object.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/shared/peer_process.hpp"
#include "transport/team/shared/rank_status.hpp"
#include "transport/team/shrinking/survivor_agreement.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

/// Ranks that let processes in, some of which are killed and stopped at any time: all agree on who goes on,
/// or nobody does.
namespace tutti::transport::team {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t most_ranks = 4;
constexpr std::size_t most_newcomers = 4;
constexpr std::size_t most_processes = most_ranks + most_newcomers;

using test::Fate;
using test::FatedProcesses;

struct Plan {
  std::size_t ranks = 0;
  std::size_t newcomers = 0;  ///< that come
  std::size_t wanted = 0;
  RankChange change = RankChange::grow;
  bool leaves_out_late = false;
  std::vector<Fate> fates{};  ///< by process
  [[nodiscard]] std::size_t processes() const { return ranks + newcomers; }
  [[nodiscard]] static std::chrono::milliseconds timeout() { return test::patient(100ms); }
};

/// Holds what the processes of a trial share.
struct Shared {
  enum class Outcome : std::uint32_t { none, goes_on, refused, not_needed };
  struct Report {
    std::atomic<Outcome> outcome{Outcome::none};
    std::atomic<std::uint64_t> going_on{0};  ///< a bit for each process
    std::atomic<int> place{-1};
    std::atomic<int> size{0};
    std::atomic<int> code{-1};
  };
  struct Application {
    std::atomic<pid_t> applicant{0};
    std::atomic<std::size_t> participant{0};  ///< 0 until it has been let in
    std::atomic<std::uint32_t> attempt{0};
  };
  static constexpr std::size_t participants = most_ranks + SurvivorBoard::most_newcomers;

  [[nodiscard]] SurvivorBoard board(std::size_t ranks) {
    const std::size_t count = ranks + SurvivorBoard::most_newcomers;
    return {.word = &word,
            .slots = std::span(slots).first(count),
            .mailboxes = std::span(mailboxes).first(count),
            .sets = sets,
            .newcomers = SurvivorBoard::most_newcomers};
  }

  std::atomic<std::uint64_t> word{0};
  std::array<ShrinkSlot, participants> slots;
  std::array<Mailbox, participants> mailboxes;
  std::array<std::atomic<std::uint64_t>, participants * SurvivorBoard::set_count> sets;
  std::array<Application, most_newcomers> applications;
  std::array<Report, most_processes> reports;
};

/// Lets those in who have left word in shared memory.
class WordOfMouth final : public Entrance {
 public:
  WordOfMouth(Shared& shared, const std::function<void()>& step) : shared_(shared), step_(step) {}

  void look(const Host& host) override {
    step_();
    for (Shared::Application& application : shared_.applications) {
      const pid_t applicant = application.applicant.load();
      if (applicant == 0 || application.participant.load() != 0) continue;
      const auto ticket =
          host.admit({.build = BuildMark::own(), .process = applicant, .process_space = process_space()});
      if (!ticket) continue;
      application.attempt.store(ticket->attempt);
      step_();
      application.participant.store(ticket->participant);
    }
  }
  [[nodiscard]] std::string account() const override { return {}; }

 private:
  Shared& shared_;
  const std::function<void()>& step_;
};

/// One of the processes: a rank or, behind these, a newcomer.
class Process {
 public:
  Process(Shared& shared, const Plan& plan, FatedProcesses::Self& fated)
      : shared_(shared), plan_(plan), fated_(fated), self_(fated.number()) {}

  void run() {
    for (std::size_t rank = 0; rank < plan_.ranks; ++rank)
      peers_[rank] = rank == self_ ? PeerProcess() : PeerProcess(fated_.process(rank));
    Shared::Report& report = shared_.reports[self_];
    try {
      step_();
      agree();
      report.going_on.store(going_on_);
      report.outcome.store(Shared::Outcome::goes_on);
    } catch (const Error& error) {
      report.code.store(static_cast<int>(error.code()));
      report.outcome.store(Shared::Outcome::refused);
    } catch (const SurvivorAgreement::NotNeeded&) {
      report.outcome.store(Shared::Outcome::not_needed);
    }
  }

 private:
  void agree() {
    ShrinkWish wish{.leaving = {},
                    .leaves_out_late = plan_.leaves_out_late,
                    .timeout = plan_.timeout(),
                    .change = plan_.change,
                    .fewest_new = plan_.wanted,
                    .most_new = plan_.wanted,
                    .place = "a place"};
    const auto make = [this](Exchange& exchange) { this->make(exchange); };
    const auto discard = [this] { going_on_ = 0; };
    if (self_ < plan_.ranks) {
      SurvivorAgreement(shared_.board(plan_.ranks), self_, team(), wish).run(make, discard);
      return;
    }
    Shared::Application& application = shared_.applications[self_ - plan_.ranks];
    application.applicant.store(getpid());
    const auto began = Clock::now();
    while (application.participant.load() == 0) {
      if (Clock::now() - began > 4 * plan_.timeout()) throw Error(ErrorCode::timeout, "nobody lets it in");
      step_();
      usleep(100);
    }
    const std::size_t participant = application.participant.load();
    const struct Leaving {
      ShrinkSlot& slot;
      ~Leaving() {
        pid_t own = getpid();
        slot.process.compare_exchange_strong(own, 0);
      }
    } leaving{shared_.slots[participant]};
    SurvivorAgreement(shared_.board(plan_.ranks), participant, team(), wish, application.attempt.load())
        .run(make, discard);
  }
  ShrinkingTeam team() {
    return {.is_lost = [this](std::size_t rank, bool may_judge) { return is_lost(rank, may_judge); },
            .end = [this](const std::string& /*reason*/) { step_(); },
            .wait_elsewhere = step_,
            .timeout = plan_.timeout(),
            .open_entrance = [this] { return std::make_unique<WordOfMouth>(shared_, step_); },
            .ticket = [] { return Ticket{}; }};
  }
  bool is_lost(std::size_t rank, bool may_judge) {
    step_();
    return peers_[rank].is_gone() || (may_judge && fated_.is_silent(rank, plan_.timeout()));
  }
  void make(Exchange& exchange) {
    going_on_ = 0;
    for (const std::uint64_t process : gather(exchange, std::uint64_t{self_}))
      going_on_ |= std::uint64_t{1} << process;
    step_();
    synchronize(exchange);
    shared_.reports[self_].place.store(exchange.rank());
    shared_.reports[self_].size.store(exchange.size());
    step_();
  }

  Shared& shared_;
  const Plan& plan_;
  FatedProcesses::Self& fated_;
  const std::size_t self_;
  const std::function<void()> step_ = [this] { fated_.step(); };
  std::array<PeerProcess, most_ranks> peers_;
  std::uint64_t going_on_ = 0;
};

/// Processes that agree while some of them meet their fates.
class Trial {
 public:
  Trial(const Plan& plan, int number)
      : plan_(plan), number_(number), processes_(plan.fates, [this](FatedProcesses::Self& fated) {
          Process(*shared_, plan_, fated).run();
        }) {}

  [[nodiscard]] bool is_over() { return processes_.is_over(); }

  /// Checks what the processes report. Returns true if some go on together.
  bool check() const {
    std::uint64_t going_on = 0;
    std::uint64_t reported = 0;
    std::uint64_t refused = 0;
    for (std::size_t each = 0; each < plan_.processes(); ++each) {
      const Shared::Report& report = shared_->reports[each];
      const std::uint64_t bit = std::uint64_t{1} << each;
      if (report.outcome.load() == Shared::Outcome::goes_on) {
        EXPECT_TRUE(going_on == 0 || report.going_on.load() == going_on) << describe();
        going_on = report.going_on.load();
        reported |= bit;
        check_place(each);
      } else if (report.outcome.load() != Shared::Outcome::none) {
        refused |= bit;
        const auto code = static_cast<ErrorCode>(report.code.load());
        EXPECT_TRUE(report.outcome.load() == Shared::Outcome::not_needed || code == ErrorCode::timeout ||
                    code == ErrorCode::peer_unavailable)
            << describe();
      }
    }
    EXPECT_EQ(going_on & reported, reported) << describe();
    EXPECT_EQ(going_on & refused, 0U) << "all go on, or none does: " << describe();
    return going_on != 0;
  }

 private:
  /// Ranks keep their numbers, and there are as many as are wanted.
  void check_place(std::size_t each) const {
    const Shared::Report& report = shared_->reports[each];
    const std::size_t size = plan_.ranks + (plan_.change == RankChange::grow ? plan_.wanted : 0);
    EXPECT_EQ(static_cast<std::size_t>(report.size.load()), size) << describe();
    const auto place = static_cast<std::size_t>(report.place.load());
    if (each < plan_.ranks) {
      EXPECT_EQ(place, each) << describe();
    } else if (plan_.change == RankChange::grow) {
      EXPECT_GE(place, plan_.ranks) << describe();
    }
  }
  [[nodiscard]] std::string describe() const {
    std::string text = "trial " + std::to_string(number_) + ", " + std::to_string(plan_.ranks) + " ranks:";
    for (std::size_t each = 0; each < plan_.processes(); ++each) {
      const Shared::Report& report = shared_->reports[each];
      text += " process " + std::to_string(each) + " outcome " +
              std::to_string(static_cast<int>(report.outcome.load())) + " of " +
              std::to_string(report.going_on.load()) + " code " + std::to_string(report.code.load()) + " " +
              processes_.fate_of(each) + ";";
    }
    return text;
  }

  const Plan plan_;
  const int number_;
  const test::SharedObject<Shared> shared_;
  FatedProcesses processes_;
};

Plan random_plan(std::mt19937_64& random, bool has_stops) {
  const auto below = [&](std::size_t end) { return random() % end; };
  Plan plan{.ranks = 1 + below(most_ranks),
            .newcomers = 1 + below(most_newcomers),
            .wanted = 1 + below(2),
            .change = below(2) == 0 ? RankChange::grow : RankChange::replace,
            .leaves_out_late = below(2) == 0};
  if (plan.change == RankChange::grow) plan.leaves_out_late = false;
  plan.fates.resize(plan.processes());
  const std::size_t lost = below(plan.processes());
  for (std::size_t i = 0; i < lost; ++i) {
    Fate& fate = plan.fates[below(plan.processes())];
    fate.when = Fate::When::at_step;
    // Few steps are taken when all goes well: most fates are met early, some late.
    fate.step = static_cast<int>(1 + below(std::size_t{1} << (2 + below(6))));
    if (has_stops && below(2) == 0) fate.signal = SIGSTOP;
  }
  return plan;
}

/// Runs `count` trials, 16 of them at a time. Returns in how many of them processes go on.
int run_trials(int count, bool has_stops) {
  std::mt19937_64 random(test::test_seed() + (has_stops ? 1 : 0));
  return test::run_trials(
      count, 16, [&](int number) { return std::make_unique<Trial>(random_plan(random, has_stops), number); });
}

TEST(Newcomers, AgreeWithRanksWhoeverIsKilled) {
  EXPECT_GT(run_trials(120, false), 30);
}

TEST(Newcomers, AgreeWithRanksWhoeverIsStopped) {
  EXPECT_GT(run_trials(60, true), 10);
}

/// A process that does nothing until it is killed.
class IdleProcess {
 public:
  IdleProcess() {
    if (number_ == 0) test::idle_until_killed();
  }
  IdleProcess(const IdleProcess&) = delete;
  IdleProcess& operator=(const IdleProcess&) = delete;
  ~IdleProcess() {
    kill(number_, SIGKILL);
    waitpid(number_, nullptr, 0);
  }
  [[nodiscard]] pid_t number() const { return number_; }

 private:
  const pid_t number_ = fork();
};

/// Has processes that wait already, as many as may come at a time. All arrive when they are let in, but for
/// the first, which does `delay` later.
class WaitingCrowd final : public Entrance {
 public:
  WaitingCrowd(const SurvivorBoard& board, pid_t process, std::chrono::nanoseconds delay)
      : board_(board), process_(process), delay_(delay) {}
  WaitingCrowd(const WaitingCrowd&) = delete;
  WaitingCrowd& operator=(const WaitingCrowd&) = delete;
  ~WaitingCrowd() override { are_let_in_.store(true); }

  void look(const Host& host) override {
    if (are_let_in_.load()) return;
    for (std::size_t i = 0; i < board_.newcomers; ++i) {
      const auto ticket =
          host.admit({.build = BuildMark::own(), .process = process_, .process_space = process_space()});
      if (i > 0) board_.slots[ticket.value().participant].arrived.store(1);
    }
    are_let_in_.store(true);
  }
  [[nodiscard]] std::string account() const override { return {}; }

 private:
  void arrive_last() {
    while (!are_let_in_.load()) std::this_thread::yield();
    for (const auto began = Clock::now(); Clock::now() - began < delay_;) continue;
    board_.slots[board_.ranks()].arrived.store(1);
  }

  const SurvivorBoard board_;
  const pid_t process_;
  const std::chrono::nanoseconds delay_;
  std::atomic<bool> are_let_in_{false};
  std::jthread first_{[this] { arrive_last(); }};
};

/// Returns how many processes a lone rank takes that takes those who wait already.
int count_taken(pid_t process, std::chrono::nanoseconds delay) {
  const auto shared = std::make_unique<Shared>();
  const SurvivorBoard board = shared->board(1);
  const ShrinkWish wish{.leaving = {},
                        .timeout = test::patient(60s),
                        .change = RankChange::grow,
                        .fewest_new = 1,
                        .most_new = board.newcomers,
                        .newcomer_timeout = 0ms,
                        .place = "a place"};
  int taken = 0;
  SurvivorAgreement agreement(
      board, 0,
      {.is_lost = {},
       .end = [](const std::string& /*reason*/) {},
       .wait_elsewhere = [] {},
       .timeout = wish.timeout,
       .open_entrance = [&] { return std::make_unique<WaitingCrowd>(board, process, delay); },
       .ticket = [] { return Ticket{}; }},
      wish);
  const auto make = [&](Exchange& exchange) {
    taken = exchange.size() - 1;
    for (ShrinkSlot& slot : board.slots) slot.made.store(1);
  };
  agreement.run(make, [] {});
  return taken;
}

TEST(Newcomers, AreAllTakenWhoWaitedAlready) {
  const IdleProcess process;
  std::mt19937_64 random(test::test_seed());
  const std::int64_t trials = test::scaled(2000);
  for (std::int64_t trial = 0; trial < trials; ++trial) {
    const std::chrono::nanoseconds delay(random() % 20'000);
    ASSERT_EQ(count_taken(process.number(), delay), 16)
        << "trial " << trial << ", " << delay.count() << " ns";
  }
}

TEST(Newcomers, TakeTheNumbersOfThoseWhoDoNotGoOn) {
  using Numbers = std::vector<std::size_t>;
  EXPECT_EQ(in_new_order({0, 1, 2}, 3), (Numbers{0, 1, 2}));
  EXPECT_EQ(in_new_order({0, 2}, 3), (Numbers{0, 2}));
  EXPECT_EQ(in_new_order({0, 2, 4}, 3), (Numbers{0, 4, 2}));
  EXPECT_EQ(in_new_order({0, 1, 2, 3, 5}, 3), (Numbers{0, 1, 2, 3, 5}));
  EXPECT_EQ(in_new_order({1, 3, 4, 5}, 3), (Numbers{3, 1, 4, 5}));
}

}  // namespace
}  // namespace tutti::transport::team
