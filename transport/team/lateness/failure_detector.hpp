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

/// A wait for other ranks, as seen by the waiting thread.
struct RankWait {
  std::uint64_t sequence = 0;  ///< number of the call
  std::chrono::nanoseconds lasted{};
  std::chrono::nanoseconds patience{};  ///< how long the wait may last
  /// The ranks waited for; empty if unknown: then those that have not completed the call.
  const std::vector<std::size_t>* missing = nullptr;
};

/// Decides which ranks are late, from what this rank hears of them; first it checks whether it can hear them
/// at all. It only observes; `Waiting` acts. Thread-safe.
class FailureDetector {
 public:
  struct Settings {
    std::chrono::milliseconds timeout{};  ///< for ranks that give no sign of life
    std::string network;                  ///< name of what connects hosts; empty if there is one host
  };

  /// `processes`, by rank, must outlive this: it tells whether processes of this host are gone.
  FailureDetector(const Membership& membership, const SharedState& state, const Progress& progress,
                  std::span<const PeerProcess> processes, Settings settings);
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;
  ~FailureDetector() = default;

  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return settings_.timeout; }
  /// Returns the limit that the wait has reached, if any: its patience, or, if a rank that is waited for
  /// gives no sign of life, the timeout. A rank that cannot hear other hosts itself waits somewhat longer, so
  /// that ranks that can hear decide first.
  [[nodiscard]] std::optional<std::chrono::milliseconds> limit_of(const RankWait& wait) const noexcept;
  /// Returns true if the rank's process, one of this host, has ended.
  [[nodiscard]] bool is_gone(std::size_t rank) const noexcept { return processes_[rank].is_gone(); }
  /// Returns how long the rank's process has done nothing, if that is longer than a running rank is ever
  /// silent.
  [[nodiscard]] std::optional<std::chrono::milliseconds> standstill(std::size_t rank) const noexcept;
  /// Returns true if the rank's process has done nothing for the timeout, as when it is stopped.
  [[nodiscard]] bool stands_still(std::size_t rank) const noexcept;
  /// Returns true if nothing has been seen of the rank for the timeout: its process may be stopped, or its
  /// host cut off.
  [[nodiscard]] bool gives_no_sign(std::size_t rank) const noexcept;
  /// Returns true if some rank that is waited for is known not to have made the call. A rank that has made
  /// the call, and may have queued it behind other work, is not behind.
  [[nodiscard]] bool is_anyone_behind(const RankWait& wait) const noexcept;
  /// Describes why call `sequence` is not complete, rank by rank. `missing` lists the ranks waited for; if it
  /// is empty, those that have not completed the call are described.
  [[nodiscard]] std::string who_is_late(std::uint64_t sequence,
                                        const std::vector<std::size_t>& missing) const;

 private:
  /// Returns true if a silence has lasted for the timeout.
  [[nodiscard]] bool is_too_long(const std::optional<std::chrono::milliseconds>& silence) const noexcept {
    return silence.value_or(std::chrono::milliseconds(0)) >= settings_.timeout;
  }
  /// Returns the time since `time`, if it is longer than a running rank is ever silent.
  [[nodiscard]] std::optional<std::chrono::milliseconds> silence_since(std::int64_t time) const noexcept;
  /// Returns how long the rank's host proxy has been inside the network, as far as this host knows.
  [[nodiscard]] std::optional<std::chrono::milliseconds> silence_of_proxy(std::size_t rank) const noexcept;
  /// Returns true if the rank's own reports arrive here.
  [[nodiscard]] bool is_heard(std::size_t rank) const noexcept;
  /// Returns true if the rank, or another rank on its host, has reported recently.
  [[nodiscard]] bool is_known(std::size_t rank) const noexcept;
  /// Returns the last call that the rank is known to have made.
  [[nodiscard]] std::uint64_t last_call_of(std::size_t rank) const noexcept;
  /// Returns true if the rank has made the call and is not waited for.
  [[nodiscard]] bool is_through(std::size_t rank, std::uint64_t sequence,
                                const std::vector<std::size_t>& missing) const noexcept;
  /// Describes how far the rank is with the call; empty if it has completed it.
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
