// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shrinking/survivor_agreement.hpp"

#include "support/environment.hpp"
#include "support/fated_processes.hpp"
#include "support/shared_object.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/peer_process.hpp"
#include "transport/team/shared/rank_status.hpp"
#include "transport/team/shrinking/survivor_messenger.hpp"
#include "transport/team/shrinking/survivor_network.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

/// Processes that are killed and stopped at any time while they agree, on one host or on several: the others
/// agree all the same, and never two groups of them.
namespace tutti::transport::team {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t most_ranks = 5;
constexpr std::size_t most_hosts = 3;

using test::Fate;
using test::FatedProcesses;

struct Plan {
  std::vector<Fate> fates{};         ///< by rank
  std::vector<std::size_t> hosts{};  ///< by rank, from 0 in order of first ranks; empty if there is one
  bool leaves_out_late = false;
  bool has_stops = false;
  bool fails_first = false;  ///< the last rank cannot make the communicator the first time
  [[nodiscard]] std::size_t ranks() const { return fates.size(); }
  [[nodiscard]] std::chrono::milliseconds timeout() const {
    return has_stops ? test::patient(100ms) : test::patient(20s);
  }
  [[nodiscard]] std::size_t host(std::size_t rank) const { return hosts.empty() ? 0 : hosts[rank]; }
};

/// Holds what the processes of a trial share.
struct Shared {
  enum class Outcome : std::uint32_t { none, survived, refused };
  struct Report {
    std::atomic<Outcome> outcome{Outcome::none};
    std::atomic<std::uint64_t> survivors{0};  ///< a bit for each
    std::atomic<int> code{0};
  };

  struct Host {
    std::atomic<std::uint64_t> word{0};
    std::array<ShrinkSlot, most_ranks> slots;
    std::array<Mailbox, most_ranks> mailboxes;
    std::array<std::atomic<std::uint64_t>, most_ranks * SurvivorBoard::set_count> sets;
  };
  /// Bytes from one rank to another.
  struct Pipe {
    static constexpr std::size_t capacity = 1U << 15U;
    std::atomic<std::uint64_t> written{0};
    std::atomic<std::uint64_t> read{0};
    std::array<std::byte, capacity> bytes;
  };

  [[nodiscard]] SurvivorBoard board(std::size_t host, std::size_t ranks) {
    Host& its = hosts[host];
    return {.word = &its.word,
            .slots = std::span(its.slots).first(ranks),
            .mailboxes = std::span(its.mailboxes).first(ranks),
            .sets = its.sets};
  }

  std::array<Host, most_hosts> hosts;
  std::array<std::array<Pipe, most_ranks>, most_ranks> pipes;  ///< by sender, then receiver
  std::array<Report, most_ranks> reports;
};

/// What connects hosts here. A rank that is killed has sent a message as a whole, or nothing of it.
class Pipes final : public SurvivorNetwork {
 public:
  Pipes(Shared& shared, std::size_t self, const std::array<PeerProcess, most_ranks>& peers)
      : shared_(shared), self_(self), peers_(peers) {}

  void send_to_survivor(int target, std::vector<std::byte> bytes) override {
    const auto to = static_cast<std::size_t>(target);
    if (peers_[to].is_gone()) return;
    waiting_[to].push_back(std::move(bytes));
    flush(to);
  }
  std::optional<Network::Message> receive_from_survivors() override {
    for (std::size_t to = 0; to < most_ranks; ++to) flush(to);
    for (std::size_t from = 0; from < most_ranks; ++from) {
      Shared::Pipe& pipe = shared_.pipes[from][self_];
      if (is_empty(pipe)) continue;
      std::size_t size = 0;
      std::uint64_t at = pipe.read.load();
      take(pipe, at, std::as_writable_bytes(std::span(&size, 1)));
      Network::Message message{.source = static_cast<int>(from), .bytes = std::vector<std::byte>(size)};
      take(pipe, at, message.bytes);
      pipe.read.store(at);
      return message;
    }
    return std::nullopt;
  }
  std::string loss_of(int rank) override {
    const auto from = static_cast<std::size_t>(rank);
    return peers_[from].is_gone() && is_empty(shared_.pipes[from][self_]) ? "it is gone" : "";
  }
  bool is_sending() override {
    for (std::size_t to = 0; to < most_ranks; ++to) {
      if (!waiting_[to].empty() && !peers_[to].is_gone()) return true;
    }
    return false;
  }

 private:
  static bool is_empty(const Shared::Pipe& pipe) { return pipe.written.load() == pipe.read.load(); }
  static void take(const Shared::Pipe& pipe, std::uint64_t& at, std::span<std::byte> bytes) {
    for (std::byte& byte : bytes) byte = pipe.bytes[at++ % Shared::Pipe::capacity];
  }
  static void put(Shared::Pipe& pipe, std::uint64_t& at, std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) pipe.bytes[at++ % Shared::Pipe::capacity] = byte;
  }
  void flush(std::size_t to) {
    Shared::Pipe& pipe = shared_.pipes[self_][to];
    for (std::deque<std::vector<std::byte>>& queue = waiting_[to]; !queue.empty(); queue.pop_front()) {
      const std::size_t size = queue.front().size();
      std::uint64_t at = pipe.written.load();
      if (at + sizeof(size) + size - pipe.read.load() > Shared::Pipe::capacity) return;
      put(pipe, at, std::as_bytes(std::span(&size, 1)));
      put(pipe, at, queue.front());
      pipe.written.store(at);
    }
  }

  Shared& shared_;
  const std::size_t self_;
  const std::array<PeerProcess, most_ranks>& peers_;
  std::array<std::deque<std::vector<std::byte>>, most_ranks> waiting_;  ///< by receiver
};

/// Returns what a rank knows of hosts. Each rank has a device.
Membership membership_of(const Plan& plan, std::size_t self) {
  std::vector<Membership::Rank> ranks(plan.ranks());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    ranks[rank] = {.host = std::to_string(plan.host(rank)), .member_count = 1};
  return {self, ranks, {0}};
}

/// One of the processes.
class Rank {
 public:
  Rank(Shared& shared, const Plan& plan, FatedProcesses::Self& fated)
      : shared_(shared),
        plan_(plan),
        fated_(fated),
        self_(fated.number()),
        membership_(membership_of(plan, self_)),
        board_(shared.board(plan.host(self_), plan.ranks())) {
    if (membership_.spans_hosts()) messenger_.emplace(membership_, board_, pipes_);
  }

  void run() {
    for (std::size_t rank = 0; rank < plan_.ranks(); ++rank)
      peers_[rank] = rank == self_ ? PeerProcess() : PeerProcess(fated_.process(rank));
    const ShrinkWish wish{
        .leaving = {}, .leaves_out_late = plan_.leaves_out_late, .timeout = plan_.timeout()};
    step();
    if (plan_.fails_first) fail_together(wish);
    Shared::Report& report = shared_.reports[self_];
    try {
      agree(wish, [this](Exchange& exchange) { make(exchange); });
      report.survivors.store(survivors_);
      report.outcome.store(Shared::Outcome::survived);
    } catch (const Error& error) {
      report.code.store(static_cast<int>(error.code()));
      report.outcome.store(Shared::Outcome::refused);
    }
  }

 private:
  void agree(const ShrinkWish& wish, const std::function<void(Exchange&)>& make) {
    if (messenger_) messenger_->begin();
    SurvivorAgreement agreement(messenger_ ? messenger_->board() : board_, self_, team(), wish);
    agreement.run(make, [this] { survivors_ = 0; });
  }
  ShrinkingTeam team() {
    return {.is_lost = [this](std::size_t rank, bool may_judge) { return is_lost(rank, may_judge); },
            .end = [this](const std::string& /*reason*/) { step(); },
            .wait_elsewhere = [this] { step(); },
            .timeout = plan_.timeout(),
            .messenger = messenger_ ? &*messenger_ : nullptr};
  }
  void step() { fated_.step(); }
  bool is_lost(std::size_t rank, bool may_judge) {
    step();
    if (!membership_.is_on_this_host(rank)) return false;
    return peers_[rank].is_gone() || (may_judge && fated_.is_silent(rank, plan_.timeout()));
  }
  /// Expects the same error on all ranks, as the last one cannot make the communicator.
  void fail_together(const ShrinkWish& wish) {
    try {
      agree(wish, [this](Exchange& exchange) {
        synchronize(exchange);
        if (self_ == plan_.ranks() - 1)
          throw Error(ErrorCode::out_of_memory, "Communicator: no memory is left");
        synchronize(exchange);
      });
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
  const Membership membership_;
  const SurvivorBoard board_;
  std::array<PeerProcess, most_ranks> peers_;
  Pipes pipes_{shared_, self_, peers_};
  std::optional<SurvivorMessenger> messenger_;
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
        const auto code = static_cast<ErrorCode>(report.code.load());
        if (code == ErrorCode::peer_unavailable) {
          EXPECT_TRUE(plan_.host(rank) != 0 && (plan_.has_stops || may_lose_deciding_ranks())) << describe();
        } else {
          EXPECT_TRUE(plan_.has_stops && code == ErrorCode::timeout) << describe();
        }
        // Where those who decide may all be lost, they may have gone on before.
        if (plan_.host(rank) == 0 || !may_lose_deciding_ranks()) refused |= bit;
      } else {
        EXPECT_EQ(plan_.fates[rank].signal, SIGKILL) << "a stopped rank goes on: " << describe();
        EXPECT_NE(plan_.fates[rank].when, Fate::When::never) << describe();
      }
    }
    EXPECT_EQ(survivors & reported, reported) << describe();
    EXPECT_EQ(survivors & refused, 0U) << "all survivors go on, or none does: " << describe();
    return survivors != (std::uint64_t{1} << plan_.ranks()) - 1;
  }
  [[nodiscard]] ShrinkStage stage() const { return ShrinkStage::of(shared_->hosts[0].word.load()); }

 private:
  /// Returns true if each rank of the first host meets a fate.
  [[nodiscard]] bool may_lose_deciding_ranks() const {
    for (std::size_t rank = 0; rank < plan_.ranks(); ++rank) {
      if (plan_.host(rank) == 0 && plan_.fates[rank].when == Fate::When::never) return false;
    }
    return true;
  }
  [[nodiscard]] std::string describe() const {
    std::string text = "trial " + std::to_string(number_) + ":";
    for (std::size_t rank = 0; rank < plan_.ranks(); ++rank) {
      const Shared::Report& report = shared_->reports[rank];
      text += " rank " + std::to_string(rank) + " on host " + std::to_string(plan_.host(rank)) + " outcome " +
              std::to_string(static_cast<int>(report.outcome.load())) + " survivors " +
              std::to_string(report.survivors.load()) + " " + processes_.fate_of(rank) + ";";
    }
    return text + " round " + std::to_string(stage().round) + " phase " +
           std::to_string(static_cast<int>(stage().phase)) + (plan_.leaves_out_late ? " leaves out" : "");
  }

  const Plan plan_;
  const int number_;
  const test::SharedObject<Shared> shared_;
  FatedProcesses processes_;
};

/// Spreads ranks over hosts.
std::vector<std::size_t> random_hosts(std::mt19937_64& random, std::size_t ranks) {
  std::vector<std::size_t> hosts(ranks);
  std::size_t count = 1;
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    hosts[rank] = random() % std::min(count + 1, most_hosts);
    count = std::max(count, hosts[rank] + 1);
  }
  return hosts;
}

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
int run_trials(int count, std::size_t at_once, bool has_stops, bool has_hosts = false) {
  std::mt19937_64 random(test::test_seed() + (has_stops ? 1 : 0) + (has_hosts ? 2 : 0));
  return test::run_trials(count, at_once, [&](int number) {
    Plan plan = random_plan(random, has_stops);
    if (has_hosts) plan.hosts = random_hosts(random, plan.ranks());
    return std::make_unique<Trial>(plan, number);
  });
}

TEST(SurvivorAgreement, SurvivesKillsInEveryPhase) {
  EXPECT_GT(run_trials(300, 3, false), 150);
}

TEST(SurvivorAgreement, SurvivesKillsAndStopsInEveryPhase) {
  EXPECT_GT(run_trials(100, 12, true), 50);
}

TEST(SurvivorAgreement, SurvivesKillsOnSeveralHosts) {
  EXPECT_GT(run_trials(300, 3, false, true), 150);
}

TEST(SurvivorAgreement, SurvivesKillsAndStopsOnSeveralHosts) {
  EXPECT_GT(run_trials(100, 12, true, true), 50);
}

TEST(SurvivorAgreement, FailsOnAllRanksAlikeAndMayBeTriedAgain) {
  for (const std::vector<std::size_t>& hosts : {std::vector<std::size_t>{}, {0, 1, 0}, {0, 1, 2}}) {
    Trial trial({.fates = std::vector<Fate>(3), .hosts = hosts, .fails_first = true}, 0);
    while (!trial.is_over()) usleep(100);
    EXPECT_FALSE(trial.check()) << "all ranks survive";
  }
}

}  // namespace
}  // namespace tutti::transport::team
