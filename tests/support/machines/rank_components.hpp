// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/team/calls/call_log.hpp"
#include "transport/team/calls/links.hpp"
#include "transport/team/calls/replays.hpp"
#include "transport/team/lateness/failure_detector.hpp"
#include "transport/team/lateness/flight_record.hpp"
#include "transport/team/lateness/waiting.hpp"
#include "transport/team/progress/abort.hpp"
#include "transport/team/progress/local_news.hpp"
#include "transport/team/progress/progress.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/peer_process.hpp"
#include "transport/team/shared/shared_state.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace tutti::test {

/// Holds one rank's own part of a team, without threads, windows and other processes; the test does their
/// work. Several ranks may be in one process. Each member is device 0.
struct RankComponents {
  using Ranks = std::vector<transport::team::Membership::Rank>;

  /// Returns `count` ranks of one host, with one member each.
  [[nodiscard]] static Ranks alike(std::size_t count) {
    return Ranks(count, {.host = "here", .member_count = 1});
  }
  [[nodiscard]] static transport::team::SharedState::Shape shape_of(const Ranks& ranks) {
    std::size_t members = 0;
    for (const auto& rank : ranks) members += rank.member_count;
    return {.ranks = ranks.size(), .members = members, .has_registrations = true, .has_links = true};
  }

  /// Takes zero-filled memory with room for the ranks' shared state.
  RankComponents(std::byte* memory, const Ranks& ranks, std::size_t rank,
                 std::chrono::milliseconds timeout = std::chrono::seconds(30), int device = 0,
                 std::optional<std::chrono::milliseconds> patience = std::nullopt)
      : membership(rank, ranks, std::vector<int>(ranks[rank].member_count, device)),
        state(memory, shape_of(ranks)),
        processes(ranks.size()),
        abort(membership, state.abort_word(), news),
        progress(runtime, membership, state, abort),
        failure_detector(membership, state, progress, processes,
                         {.timeout = timeout, .network = "a network"}),
        record(membership, state, progress, failure_detector, abort),
        waiting(runtime, membership, state, progress, failure_detector, record, abort,
                patience.value_or(timeout)),
        calls(membership, state, progress, waiting, abort, news),
        links(membership, state, progress, failure_detector, record, waiting, abort, calls),
        replays(membership, state, progress, failure_detector, record, waiting, abort, calls) {}

  /// Marks the call as completed by all local members, as rounds do.
  void complete(std::uint64_t sequence) {
    for (std::size_t local = 0; local < membership.local_count(); ++local)
      backend::set_flag(*progress.flag_of_rounds(local), static_cast<std::uint32_t>(sequence));
  }
  [[nodiscard]] transport::team::RankStatus& status() const { return state.status(membership.rank()); }
  /// Marks all ranks as active.
  void activate_all() const {
    for (transport::team::RankStatus& other : state.statuses())
      other.state = transport::team::RankStatus::active;
  }
  /// Makes the rank's watchdog appear to have run a minute from now, so that the rank counts as alive for as
  /// long as a test takes.
  void let_live(std::size_t rank) const {
    state.status(rank).watched_at = transport::team::RankStatus::now() + 60'000'000'000;
  }
  void let_all_live() const {
    for (std::size_t rank = 0; rank < membership.rank_count(); ++rank) let_live(rank);
  }

  Runtime& runtime = Runtime::get();
  const transport::team::Membership membership;
  const transport::team::SharedState state;
  const std::vector<transport::team::PeerProcess> processes;  ///< none that could be gone
  transport::team::LocalNews news;
  transport::team::Abort abort;
  transport::team::Progress progress;
  const transport::team::FailureDetector failure_detector;
  const transport::team::FlightRecord record;
  transport::team::Waiting waiting;
  transport::team::CallLog calls;
  transport::team::Links links;
  transport::team::Replays replays;
};

}  // namespace tutti::test
