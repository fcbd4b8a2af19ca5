// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"
#include "tutti/collectives.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti {
class Runtime;
}

/// What is told to tools that watch the program: to profilers through NVTX, and to the trace. Where nobody
/// watches, which is found out once, all of it costs one load and one branch, which goes the same way every
/// time. Thread-safe; nothing of it fails a call.
namespace tutti::watching {

enum class Watchers : std::uint8_t { not_asked, none, some };
inline std::atomic<Watchers> watchers{Watchers::not_asked};

/// What `is_watched` does where not everything is known, and nobody, to be quick about.
[[nodiscard]] bool look_for_watchers() noexcept;
[[nodiscard]] inline bool is_watched() noexcept {
  if (watchers.load(std::memory_order_relaxed) == Watchers::none) [[likely]]
    return false;
  return look_for_watchers();
}

// What the program tells; only where it is watched.

void mark(std::string_view message) noexcept;
void push(std::string_view message) noexcept;
void pop() noexcept;

/// Who makes a call of a team's.
struct WatchedMember {
  std::uint64_t team = 0;  ///< `number_team` gave it
  std::size_t rank = 0;
  std::size_t rank_count = 1;
  std::uint64_t sequence = 0;  ///< of the call; 0: it has none
};
/// A number that no other team of the process has.
[[nodiscard]] std::uint64_t number_team() noexcept;

/// One launch of a collective, or of messages between members.
struct WatchedCall {
  Runtime* runtime = nullptr;
  Collective collective = Collective::barrier;
  std::string_view
      messages_by{};       ///< of messages: the function that was called, for as long as the program runs
  std::string messages{};  ///< of messages: from and to whom they are, in words
  std::uint64_t bytes = 0;
  PlanSummary plan{};
  /// The plan in words; asked during the construction of the range only.
  std::function<std::string()> explain{};
  /// The streams that the call is queued on, each once or more; those without a device are other processes'.
  std::span<const backend::StreamRef> streams{};
  std::optional<WatchedMember> member{};  ///< of a team's
};

/// What a call is called.
[[nodiscard]] std::string_view name_of(const WatchedCall& call) noexcept;

/// The time while a collective is queued, and on its streams the time that it takes there. To be made before
/// the first of its work is queued, by the thread that queues it, and destroyed after the last.
class CallRange {
 public:
  /// `describe` returns the WatchedCall, and is called only where somebody watches.
  template <class Describe>
  explicit CallRange(const Describe& describe) {
    if (is_watched()) [[unlikely]]
      open_ = open(describe);
  }

  class Open;

 private:
  struct End {
    void operator()(Open* range) const noexcept;
  };
  using OpenPtr = std::unique_ptr<Open, End>;
  static OpenPtr open(const std::function<WatchedCall()>& describe) noexcept;

  OpenPtr open_;
};

}  // namespace tutti::watching
