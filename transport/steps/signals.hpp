// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "os/shared_flag.hpp"
#include "settings/environment.hpp"
#include "transport/plan/plan.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace tutti::transport {

/// Signals for launches that order one lane with many. An event between devices costs the host one call to
/// record it and a slower one for each wait. With signals the one lane waits for all others in a single call,
/// and each of the others is told, and tells, by a call that is about its own device alone: several threads
/// make such calls in less time than one (`launch_helpers.hpp`).
///
/// A runtime extension; thread-safe.
class Signals {
 public:
  explicit Signals(Runtime& runtime);
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals();

  /// How many lanes a launch may order with one.
  static constexpr std::size_t most_lanes = backend::most_signals;

  /// The flags of one launch, and what they come to in it.
  struct Flags {
    std::span<backend::SharedFlag> ready;  ///< one for each lane that is waited for
    backend::SharedFlag* done;             ///< what the others wait for
    std::uint32_t value;
  };
  /// Flags for a launch that must signal `done` at last, behind everything that waits for `ready`: once
  /// `done` is there, they are another launch's. Nothing if the launch that had the next ones is still under
  /// way, or failed.
  [[nodiscard]] std::optional<Flags> take(std::size_t lanes);

 private:
  struct Set {
    std::array<backend::SharedFlag, most_lanes> ready;
    backend::SharedFlag done;
  };

  Runtime& runtime_;
  std::mutex mutex_;
  std::span<Set> sets_;                ///< in pinned memory; guarded by `mutex_`, as are the next two
  std::vector<std::uint32_t> values_;  ///< of the launch that took each set last
  std::size_t next_ = 0;
};

/// When launches of the plan should order its lanes by signals: as `choice` says or, if it leaves that open,
/// where events would cost more as long as threads help. `have_nvlink` tells of two devices.
[[nodiscard]] SignalUse choose_signals(const Plan& plan, SignalChoice choice, backend::SignalSupport support,
                                       const std::function<bool(int, int)>& have_nvlink);

}  // namespace tutti::transport
