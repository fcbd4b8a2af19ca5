// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/ended_work.hpp"
#include "device/runtime.hpp"
#include "transport/team/calls/call_log.hpp"
#include "transport/team/progress/abort.hpp"
#include "transport/team/progress/progress.hpp"
#include "transport/team/shared/membership.hpp"
#include "tutti/error.hpp"

#include <atomic>
#include <cstddef>
#include <optional>
#include <vector>

namespace tutti::transport::team {

/// Reports, once to a waiter on each local device, that the team has been ended with calls under way there,
/// whose outputs may hold anything. Needed for devices that go on as if nothing had happened. Thread-safe.
class EndedCalls final : public EndedWork::Source {
 public:
  EndedCalls(Runtime& runtime, const Membership& membership, const CallLog& calls, Progress& progress,
             const Abort& abort)
      : runtime_(runtime),
        membership_(membership),
        calls_(calls),
        progress_(progress),
        abort_(abort),
        has_told_(membership.local_count()) {}
  EndedCalls(const EndedCalls&) = delete;
  EndedCalls& operator=(const EndedCalls&) = delete;
  ~EndedCalls() { stop(); }

  void start() { runtime_.part<EndedWork>().add(*this, membership_.devices()); }
  void stop() noexcept { runtime_.part<EndedWork>().remove(*this); }

  [[nodiscard]] std::optional<Error> take_end(int device) override;
  /// Counts the end as told to those who wait for the device.
  void drop_end(int device) noexcept { has_told_[local_of(device)].store(true); }

 private:
  [[nodiscard]] std::size_t local_of(int device) const noexcept;

  Runtime& runtime_;
  const Membership& membership_;
  const CallLog& calls_;
  Progress& progress_;
  const Abort& abort_;
  std::vector<std::atomic<bool>> has_told_;  ///< by local index
};

}  // namespace tutti::transport::team
