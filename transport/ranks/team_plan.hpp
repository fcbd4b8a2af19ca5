#pragma once

#include "transport/plan.hpp"
#include "transport/ranks/team.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tutti::transport::ranks {

/// A plan over all members of a team, lane m being member m's, and what each rank needs to carry out its
/// part: marks that another process waits for become flags.
///
/// All ranks make the same plan from the same problem, so that flags can be counted instead of named: the
/// k-th mark of a lane that anybody else waits for adds one to that lane's flag.
struct TeamPlan {
  static constexpr std::uint32_t not_shared = 0;

  Plan plan;
  std::vector<LaneId> recorded_by;  ///< by mark
  std::vector<std::uint32_t>
      flag_step;  ///< by mark: from 1, counted per lane; `not_shared` without other waiters
  std::vector<std::uint32_t> flag_count;       ///< by lane: marks that are shared
  std::vector<bool> uses_staging;              ///< by lane
  std::vector<std::uint64_t> staging_offsets;  ///< by temporary
  std::uint64_t staging_bytes = 0;
};

/// Plans a problem whose lanes are the members of a team, `rank_of_member[m]` being the rank that member m
/// belongs to. Members reach one another's memory through staging memory alone. Sums come before flows, which
/// may carry what has been summed.
[[nodiscard]] std::shared_ptr<const TeamPlan> plan_for_team(const Problem& problem,
                                                            std::span<const std::size_t> rank_of_member);

/// Carries out this rank's part of plans, one after another, on the streams of its members. The callers'
/// calls come in the same order on all ranks, as `Team::post` sees to.
class TeamLauncher {
 public:
  TeamLauncher(Runtime& runtime, Team& team);
  TeamLauncher(const TeamLauncher&) = delete;
  TeamLauncher& operator=(const TeamLauncher&) = delete;
  ~TeamLauncher() = default;

  /// `addresses` by buffer of the problem, those of other ranks are not looked at; `streams` one per own
  /// member. The memory stays alive until the streams have passed.
  void launch(std::uint64_t sequence, const TeamPlan& plan, std::span<std::byte* const> addresses,
              std::span<const backend::StreamRef> streams);
  /// A call without data: later work on the streams waits until all members have come here.
  void launch_barrier(std::uint64_t sequence, std::span<const backend::StreamRef> streams);

 private:
  class Run;

  void begin(std::span<const backend::StreamRef> streams);
  void end(std::uint64_t sequence, std::span<const backend::StreamRef> streams);
  void wait_until_done(std::size_t member, std::uint64_t sequence, backend::StreamRef stream);

  Runtime& runtime_;
  Team& team_;
  std::vector<std::uint32_t> marks_;                ///< by member: its flag, when all calls so far are done
  std::vector<backend::StreamRef> latest_streams_;  ///< of own members; empty before the first call
};

}  // namespace tutti::transport::ranks
