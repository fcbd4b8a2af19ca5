// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/team/progress/progress.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/peer_process.hpp"
#include "transport/team/shared/shared_state.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::transport::team {

/// A wait for other ranks, as the thread that waits has it.
struct RankWait {
  std::uint64_t sequence = 0;  ///< of the call
  std::chrono::nanoseconds lasted{};
  std::chrono::nanoseconds patience{};  ///< how long it may last
  /// The ranks that are waited for; empty if that is not known: those that have not completed the call.
  const std::vector<std::size_t>* missing = nullptr;
};

/// Who is late, as far as a rank can tell: it judges others by what it hears of them, and asks first whether
/// it can hear them at all. It only looks; `Waiting` acts. Thread-safe.
class FailureDetector {
 public:
  struct Settings {
    std::chrono::milliseconds timeout{};  ///< for ranks that give no sign of life
    std::string network;                  ///< the name of what connects hosts; empty if there is one host
  };

  /// `processes`, by rank, stay where they are: those of other ranks of this host, which may be gone.
  FailureDetector(const Membership& membership, const SharedState& state, const Progress& progress,
                  std::span<const PeerProcess> processes, Settings settings);
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;
  ~FailureDetector() = default;

  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return settings_.timeout; }
  /// The limit that the wait has come to: its patience; or before, if a rank that is waited for gives no sign
  /// of life, the timeout. A rank that cannot hear other hosts itself waits somewhat longer, so that those
  /// who can judge first.
  [[nodiscard]] std::optional<std::chrono::milliseconds> limit_of(const RankWait& wait) const noexcept;
  /// Whether the rank's process, one of this host, is over.
  [[nodiscard]] bool is_gone(std::size_t rank) const noexcept { return processes_[rank].is_gone(); }
  /// How long the rank's process has done nothing, as far as is known here, if that is remarkable.
  [[nodiscard]] std::optional<std::chrono::milliseconds> standstill(std::size_t rank) const noexcept;
  /// Whether nothing has been seen of the rank for the timeout: its process has been stopped, say, or its
  /// host is cut off.
  [[nodiscard]] bool gives_no_sign(std::size_t rank) const noexcept;
  /// Whether it is known of a rank that the wait is for that it has not come so far: it is not known of one
  /// that has made the call, and may have queued it behind other work.
  [[nodiscard]] bool is_anyone_behind(const RankWait& wait) const noexcept;
  /// What ranks have to do with call `sequence` not being complete, in words. `missing`: the ranks that are
  /// waited for, if that is known; else those that have not completed the call.
  [[nodiscard]] std::string who_is_late(std::uint64_t sequence,
                                        const std::vector<std::size_t>& missing) const;

 private:
  /// How long ago that was, if it is remarkable: no rank that goes on is silent for so long.
  [[nodiscard]] std::optional<std::chrono::milliseconds> silence_since(std::int64_t time) const noexcept;
  /// How long the rank's host proxy, of which this host has word, has not come back from the network.
  [[nodiscard]] std::optional<std::chrono::milliseconds> silence_of_proxy(std::size_t rank) const noexcept;
  /// Whether what the rank itself says arrives here.
  [[nodiscard]] bool is_heard(std::size_t rank) const noexcept;
  /// Whether it does, or others of its host say what they know of it.
  [[nodiscard]] bool is_known(std::size_t rank) const noexcept;
  /// The last call that the rank is known to have made.
  [[nodiscard]] std::uint64_t last_call_of(std::size_t rank) const noexcept;
  /// Whether the rank has made the call, and is not waited for.
  [[nodiscard]] bool is_through(std::size_t rank, std::uint64_t sequence,
                                const std::vector<std::size_t>& missing) const noexcept;
  /// How far the rank is with the call, in words; empty if it has completed it.
  [[nodiscard]] std::string how_far(std::size_t rank, std::uint64_t sequence,
                                    const std::vector<std::size_t>& missing) const;

  const Membership& membership_;
  const SharedState state_;
  const Progress& progress_;
  const std::span<const PeerProcess> processes_;
  const Settings settings_;
  const std::int64_t started_at_ = RankStatus::now();
};

}  // namespace tutti::transport::team
