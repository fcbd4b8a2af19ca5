// SPDX-License-Identifier: Apache-2.0
#include "base/hash.hpp"
#include "base/patience.hpp"
#include "base/ranks_in_words.hpp"
#include "collectives/bootstrap/tcp/admission.hpp"
#include "collectives/bootstrap/tcp/entrance.hpp"
#include "collectives/call/arguments.hpp"
#include "collectives/communicator/communicator_impl.hpp"
#include "device/blocking_call.hpp"
#include "stream/thread_streams.hpp"
#include "transport/team/departure.hpp"
#include "transport/team/shrinking/newcomer.hpp"
#include "transport/team/shrinking/survivor_agreement.hpp"
#include "tutti/communicator.hpp"
#include "tutti/tcp.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <poll.h>

/// Communicators of the ranks of another one that go on, and of newcomers.
namespace tutti {
namespace {

using collectives::Arguments;
using collectives::TeamContext;
using transport::team::RankChange;
using transport::team::ShrinkWish;
using transport::team::SurvivorAgreement;
using transport::team::SurvivorBoard;

std::vector<std::size_t> checked_leaving(const Arguments& arguments, const std::vector<int>& leaving,
                                         int rank_count) {
  std::vector<std::size_t> ranks;
  for (std::size_t i = 0; i < leaving.size(); ++i) {
    if (leaving[i] < 0 || leaving[i] >= rank_count)
      arguments.fail("options.leaving[{}] is {}, expected a rank, 0 to {}", i, leaving[i], rank_count - 1);
    ranks.push_back(static_cast<std::size_t>(leaving[i]));
  }
  std::ranges::sort(ranks);
  if (const auto twice = std::ranges::adjacent_find(ranks); twice != ranks.end())
    arguments.fail("options.leaving has rank {} twice, expected it once", *twice);
  if (ranks.size() == static_cast<std::size_t>(rank_count))
    arguments.fail("options.leaving has all {} ranks, expected some to go on", rank_count);
  return ranks;
}

/// Checks what does not depend on the options. `timeout`: of the options.
void check_call(const Arguments& arguments, TeamContext& context, std::chrono::milliseconds timeout) {
  const transport::team::Membership& membership = context.team().membership();
  if (timeout.count() <= 0) arguments.fail("options.timeout is {} ms, expected more than 0", timeout.count());
  for (const int device : membership.devices()) {
    if (context.runtime().backend().is_capturing(current_stream_ref(context.runtime(), device)))
      arguments.unsupported("the current stream is being captured");
  }
}

/// Checks that ranks that may be on several hosts can shrink their communicator.
void check_hosts(const Arguments& arguments, TeamContext& context, const std::vector<std::size_t>& leaving) {
  transport::team::Team& team = context.team();
  const transport::team::Membership& membership = team.membership();
  if (!membership.spans_hosts()) return;
  if (team.survivor_messenger() == nullptr) {
    arguments.unsupported(
        "the ranks are on {} hosts, and their network, {}, does not go on without a rank: have the exchange "
        "make one over TCP, or shrink a communicator that `split` has made on each host",
        membership.hosts().size(), team.host_proxy()->network().name());
  }
  const std::vector<std::size_t>& deciding = transport::team::SurvivorMessenger::deciding(membership);
  if (std::ranges::includes(leaving, deciding)) {
    arguments.unsupported("options.leaving has all ranks of the host of rank 0, which decide who goes on: {}",
                          ranks_in_words({deciding.begin(), deciding.end()}));
  }
}

/// Checks that new ranks can come.
void require_one_host(const Arguments& arguments, TeamContext& context) {
  const transport::team::Membership& membership = context.team().membership();
  if (!membership.spans_hosts()) return;
  arguments.unsupported(
      "the ranks are on {} hosts, and new ones only join ranks of one host: `shrink` goes on without those "
      "that are lost, or change the ranks of a communicator that `split` has made on each host",
      membership.hosts().size());
}

std::chrono::milliseconds timeout_of(TeamContext& context,
                                     const std::optional<std::chrono::milliseconds>& given) {
  return std::min(given.value_or(context.team().settings().timeout), longest_limit);
}

ShrinkWish checked(TeamContext& context, const ShrinkOptions& options, const char* function) {
  const Arguments arguments(context.runtime(), function);
  const auto ranks = static_cast<int>(context.team().membership().rank_count());
  ShrinkWish wish{.leaving = checked_leaving(arguments, options.leaving, ranks),
                  .leaves_out_late = options.late == LateRanks::leave_out,
                  .timeout = timeout_of(context, options.timeout),
                  .place = {}};
  arguments.enumerator(options.late, LateRanks::leave_out, "options.late");
  check_call(arguments, context, wish.timeout);
  check_hosts(arguments, context, wish.leaving);
  return wish;
}

ShrinkWish checked(TeamContext& context, const GrowOptions& options) {
  const Arguments arguments(context.runtime(), "Communicator::grow");
  constexpr int most = SurvivorBoard::most_newcomers;
  const int fewest = options.fewest.value_or(options.most);
  if (options.most < 1 || options.most > most)
    arguments.fail("options.most is {}, expected 1 to {}", options.most, most);
  if (fewest < 1 || fewest > options.most)
    arguments.fail("options.fewest is {}, expected 1 to options.most, {}", fewest, options.most);
  if (options.new_rank_timeout && options.new_rank_timeout->count() < 0) {
    arguments.fail("options.new_rank_timeout is {} ms, expected 0 or more",
                   options.new_rank_timeout->count());
  }
  ShrinkWish wish{.leaving = {},
                  .timeout = timeout_of(context, options.timeout),
                  .change = RankChange::grow,
                  .fewest_new = static_cast<std::size_t>(fewest),
                  .most_new = static_cast<std::size_t>(options.most),
                  .newcomer_timeout = options.new_rank_timeout,
                  .place = {}};
  check_call(arguments, context, wish.timeout);
  require_one_host(arguments, context);
  return wish;
}

/// Adds where newcomers come. The secret is left out: others need not guess at it.
void add_place(const MeetingPoint& point, const tcp::Rendezvous& rendezvous, ShrinkWish& wish) {
  std::uint64_t digest = mix(point.address.size(), static_cast<std::uint64_t>(point.port));
  for (const std::string_view text : {std::string_view(point.address), std::string_view(point.job)}) {
    for (const char character : text) digest = mix(digest, static_cast<unsigned char>(character));
  }
  wish.meeting_point = digest;
  wish.place = tcp::place_of(rendezvous);
}

/// `is_over`: the end of the team leaves no work undone, and waits for the devices need not report it.
transport::team::ShrinkingTeam shrinking(transport::team::Team& team, bool is_over) {
  return {
      .is_lost =
          [&team](std::size_t rank, bool may_judge) {
            const transport::team::FailureDetector& detector = team.failure_detector();
            // Of other hosts nothing more may be told, once the team has ended.
            const bool may_judge_it = may_judge && team.membership().is_on_this_host(rank);
            return detector.is_gone(rank) ||
                   team.state().status(rank).state.load() >= transport::team::RankStatus::leaving ||
                   (may_judge_it && detector.stands_still(rank));
          },
      .end =
          [&team, is_over](const std::string& reason) {
            if (is_over) team.take_ends();
            team.abort().set(ErrorCode::aborted, reason);
          },
      .wait_elsewhere = [&team] { team.runtime().backend().wait_elsewhere(); },
      .timeout = team.settings().timeout,
      .messenger = team.survivor_messenger(),
      .network = [&team](std::span<const int> ranks,
                         Exchange& exchange) { return team.host_proxy()->network().part(ranks, exchange); }};
}

/// Lets processes open the memory of a team while they come.
class OpenMemory {
 public:
  explicit OpenMemory(transport::team::Team& team) : team_(team), handle_(team.share_state()) {}
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
  ~OpenMemory() { team_.withdraw_state(); }

  [[nodiscard]] transport::team::Ticket ticket() const {
    return {.build = transport::team::BuildMark::own(), .memory = handle_, .shape = team_.state().shape()};
  }

 private:
  transport::team::Team& team_;
  SharedMemory::Handle handle_;
};

/// Maps the ranks' memory. Returns nothing if it is gone as they have gone on without this process, or as the
/// rank that has let it in is lost: another may let it in.
std::unique_ptr<transport::team::Newcomer> newcomer_of(tcp::Admission& admission) {
  try {
    return std::make_unique<transport::team::Newcomer>(admission.ticket);
  } catch (const Error&) {
    // Then the rank has closed the connection, or the system does while its process ends.
    admission.line.expect(0);
    const tcp::Exchange::Watch no_watch;
    const tcp::Wait wait(std::chrono::milliseconds(200), no_watch);
    while (admission.line.receive() == tcp::Progress::halfway) {
      if (wait.is_over()) throw;
      wait.until_ready(admission.line.socket(), POLLIN);
    }
    return nullptr;
  }
}

}  // namespace

class Communicator::Successor {
 public:
  /// `beside`: inside a call of another communicator.
  Successor(const CommunicatorOptions& options, bool beside) : options_(options), beside_(beside) {}

  /// Agrees with the other ranks of a communicator on who goes on, and with newcomers, who come to `place` if
  /// that is given. Returns the communicator of those; an empty one to a rank that leaves.
  [[nodiscard]] static Communicator of(Impl& impl, const ShrinkWish& wish, const tcp::Place* place);

  void make(Exchange& exchange) { impl_ = std::make_unique<Impl>(exchange, options_, beside_); }
  void discard() {
    if (impl_ == nullptr) return;
    impl_->context->team().abort().set(ErrorCode::aborted, "another rank was lost while it was made");
    impl_.reset();
  }
  [[nodiscard]] Communicator take() { return Communicator(std::move(impl_)); }

 private:
  const CommunicatorOptions options_;
  const bool beside_;
  std::unique_ptr<Impl> impl_;
};

Communicator Communicator::Successor::of(Impl& impl, const ShrinkWish& wish, const tcp::Place* place) {
  transport::team::Team& team = impl.context->team();
  transport::team::free_deferred(team.runtime(), team.membership().devices());
  const std::lock_guard lock(team.calls().mutex());
  const bool is_over = impl.settle_calls(wish.timeout);
  if (std::ranges::binary_search(wish.leaving, team.membership().rank())) {
    if (is_over) team.take_ends();  // the others' end of it leaves no work undone
    return {};
  }

  transport::team::ShrinkingTeam shrinking_team = shrinking(team, is_over);
  std::optional<OpenMemory> memory;
  if (place != nullptr) {
    memory.emplace(team);
    shrinking_team.open_entrance = [place] { return tcp::open_entrance(*place); };
    shrinking_team.holds_entrance = tcp::is_held_open(*place);
    shrinking_team.ticket = [&memory] { return memory->ticket(); };
  }
  Successor successor(impl.options(), true);
  transport::team::SurvivorMessenger* const messenger = shrinking_team.messenger;
  if (messenger != nullptr) messenger->begin();
  SurvivorAgreement agreement(messenger == nullptr ? team.state().survivors() : messenger->board(),
                              team.membership().rank(), std::move(shrinking_team), wish);
  agreement.run([&](Exchange& exchange) { successor.make(exchange); }, [&] { successor.discard(); });
  // What waits there no longer waits, and takes no room.
  team.live_teams().stop_counting(team.calls());
  team.note_successor();
  return successor.take();
}

Communicator Communicator::shrink(const ShrinkOptions& options) {
  const BlockingCall blocks("Communicator::shrink");
  const ShrinkWish wish = checked(impl().context->require_own_process(), options, "Communicator::shrink");
  return Successor::of(*impl_, wish, nullptr);
}

Communicator Communicator::grow(const GrowOptions& options) {
  const BlockingCall blocks("Communicator::grow");
  ShrinkWish wish = checked(impl().context->require_own_process(), options);
  const tcp::Place place = tcp::place_at(options.meeting_point, wish.timeout, "Communicator::grow");
  add_place(options.meeting_point, place.rendezvous, wish);
  return Successor::of(*impl_, wish, &place);
}

Communicator Communicator::replace(const ReplaceOptions& options) {
  const BlockingCall blocks("Communicator::replace");
  TeamContext& context = impl().context->require_own_process();
  require_one_host(Arguments(context.runtime(), "Communicator::replace"), context);
  ShrinkWish wish = checked(context, ShrinkOptions{options.leaving, options.late, options.timeout},
                            "Communicator::replace");
  wish.change = RankChange::replace;
  const tcp::Place place = tcp::place_at(options.meeting_point, wish.timeout, "Communicator::replace");
  add_place(options.meeting_point, place.rendezvous, wish);
  return Successor::of(*impl_, wish, &place);
}

Communicator Communicator::join(const JoinOptions& options, const CommunicatorOptions& own) {
  const BlockingCall blocks("Communicator::join");
  Runtime& runtime = Runtime::get();
  const std::chrono::milliseconds timeout = std::min(options.timeout, longest_limit);
  const tcp::Place place = tcp::place_at(options.meeting_point, timeout, "Communicator::join");
  Impl::check(own);
  const tcp::Wait wait(timeout, options.watch);
  for (int losses = 0;;) {
    tcp::Admission admission = tcp::await_admission(place, wait, losses);
    Successor successor(own, false);
    const std::unique_ptr<transport::team::Newcomer> newcomer = newcomer_of(admission);
    ++losses;
    if (newcomer == nullptr) continue;
    if (newcomer->run([&runtime] { runtime.backend().wait_elsewhere(); },
                      [&](Exchange& exchange) { successor.make(exchange); }, [&] { successor.discard(); }))
      return successor.take();
  }
}

}  // namespace tutti
