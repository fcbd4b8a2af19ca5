// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "diagnostics/watched_call.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

/// Reports calls to tools that watch the program: to profilers through NVTX, and to the trace. If nobody
/// watches, which is found out once, a report costs one load and one well-predicted branch. Thread-safe;
/// never makes a call fail.
namespace tutti::watching {

enum class Watchers : std::uint8_t { not_asked, none, some };
inline std::atomic<Watchers> watchers{Watchers::not_asked};

/// Slow path of `is_watched`: asks the profiler and the trace.
[[nodiscard]] bool look_for_watchers() noexcept;
[[nodiscard]] inline bool is_watched() noexcept {
  if (watchers.load(std::memory_order_relaxed) == Watchers::none) [[likely]]
    return false;
  return look_for_watchers();
}

// These pass on the program's own marks and ranges; call them only if `is_watched`.

void mark(std::string_view message) noexcept;
void push(std::string_view message) noexcept;
void pop() noexcept;

/// Marks the time in which a collective is queued, and on its streams the time that it takes there. Construct
/// it before the first of the call's work is queued, on the same thread, and destroy it after the last.
class CallRange {
 public:
  /// `describe` returns the WatchedCall; it is called only if somebody watches.
  template <class Describe>
  explicit CallRange(const Describe& describe) {
    if (is_watched()) [[unlikely]]
      open_ = open(describe);
  }
  /// Notes that the call copies operands to memory that others can open.
  void note_stand_ins() const noexcept {
    if (open_ != nullptr) [[unlikely]]
      note_stand_ins(*open_);
  }

  class Open;

 private:
  struct End {
    void operator()(Open* range) const noexcept;
  };
  using OpenPtr = std::unique_ptr<Open, End>;
  static void note_stand_ins(Open& range) noexcept;
  static OpenPtr open(const std::function<WatchedCall()>& describe) noexcept;

  OpenPtr open_;
};

}  // namespace tutti::watching
