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

/// Provides signals for launches that order one lane with many. An event between devices costs the host one
/// call to record it and a slower one for each wait. With signals the one lane waits for all others in a
/// single call, and each other lane waits and signals by a call that concerns its own device only: several
/// threads make such calls in less time than one (`launch_helpers.hpp`).
///
/// A part of the runtime; thread-safe.
class Signals {
 public:
  explicit Signals(Runtime& runtime);
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals();

  /// The most lanes that a launch may order with one.
  static constexpr std::size_t most_lanes = backend::most_signals;

  /// The flags of one launch, and the value that they reach in it.
  struct Flags {
    std::span<backend::SharedFlag> ready;  ///< one for each lane that is waited for
    backend::SharedFlag* done;             ///< the flag that the others wait for
    std::uint32_t value;
  };
  /// Takes flags for a launch, which must signal `done` at its end, after everything that waits for `ready`;
  /// once `done` is set, another launch may take them. Returns nothing if the launch that had the next ones
  /// is still under way, or failed.
  [[nodiscard]] std::optional<Flags> take(std::size_t lanes);

 private:
  struct Set {
    std::array<backend::SharedFlag, most_lanes> ready;
    backend::SharedFlag done;
  };

  Runtime& runtime_;
  std::mutex mutex_;
  std::span<Set> sets_;                ///< in pinned memory; guarded by `mutex_`, as are the next two
  std::vector<std::uint32_t> values_;  ///< of the last launch that took each set
  std::size_t next_ = 0;
};

/// Returns when launches of the plan should order its lanes by signals: as `choice` says or, if it leaves
/// that open, where events would cost more as long as threads help. `have_nvlink` tells whether NVLink
/// connects two devices.
[[nodiscard]] SignalUse choose_signals(const Plan& plan, SignalChoice choice, backend::SignalSupport support,
                                       const std::function<bool(int, int)>& have_nvlink);

}  // namespace tutti::transport
