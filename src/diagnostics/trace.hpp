// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/fork_mark.hpp"
#include "diagnostics/stream_times.hpp"
#include "diagnostics/trace_file.hpp"
#include "diagnostics/watched_call.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::watching {

struct Slice {
  std::string_view name;
  std::string arguments;  ///< members of a JSON object
};

/// The times of streams for the trace: a part of the runtime.
class TracedTimes final : public StreamTimes {
 public:
  using StreamTimes::StreamTimes;
  TracedTimes(const TracedTimes&) = delete;
  TracedTimes& operator=(const TracedTimes&) = delete;
  /// Waits a moment for calls under way, and writes their times.
  ~TracedTimes() override;
};

/// Writes the trace that TUTTI_TRACE asks for: slices of time on tracks, one for each thread, each rank and
/// each stream. Thread-safe. What has been written stays in the file, however the process ends.
class Trace {
 public:
  /// Returns true if a trace is asked for. Throws Error(invalid_argument) while an environment variable is
  /// wrong.
  [[nodiscard]] static bool is_wanted();
  /// Returns nullptr if no trace is asked for, or none can be written.
  [[nodiscard]] static Trace* get();

  /// `parents` is the trace of the process that this one was forked from, if there is one; that process keeps
  /// it.
  Trace(TraceFile file, Trace* parents);
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace() = default;

  // These act on the track of the calling thread.

  void mark(std::string_view message);
  void push(std::string_view message);
  void pop();

  /// Adds a call that has been queued, from `start` until now. It is written together with the next entry.
  void add(const Slice& slice, Microseconds start, const std::optional<WatchedMember>& member);
  /// Adds the executions of calls on streams.
  void add(Runtime& runtime, const std::vector<TimedSlice>& slices);

  /// Writes the last times before `times` is destroyed. Never fails.
  static void write_last_of(StreamTimes& times, std::chrono::milliseconds patience) noexcept;

 private:
  using TrackId = std::int64_t;

  static void close_at_exit() noexcept;
  void close();
  void add_event(std::string_view phase, TrackId track, Microseconds time, std::string_view rest);
  [[nodiscard]] TrackId thread_track();
  [[nodiscard]] TrackId stream_track(Runtime& runtime, backend::StreamRef stream);
  [[nodiscard]] TrackId rank_track(const WatchedMember& member);
  void name_by_rank(const WatchedMember& member);
  void name_track(TrackId track, std::string_view name);

  const ForkMark fork_mark_;
  std::atomic<bool> is_closed_ = false;
  std::mutex mutex_;
  TraceFile file_;
  std::set<TrackId> named_;
  std::map<TrackId, std::uint64_t> open_;  ///< ranges of threads
  std::map<std::pair<int, backend::StreamHandle>, TrackId> streams_;
  TrackId last_stream_ = 0;
  std::map<int, int> streams_of_device_;
  bool has_called_as_member_ = false;
  std::uint64_t left_out_ = 0;
  [[maybe_unused]] Trace* parents_;  ///< keeps it reachable for leak checkers
};

/// Traces one call. See CallRange.
class TracedCall {
 public:
  TracedCall(Trace& trace, const WatchedCall& call);
  TracedCall(const TracedCall&) = delete;
  TracedCall& operator=(const TracedCall&) = delete;
  ~TracedCall();
  void note_stand_ins();

 private:
  Trace& trace_;
  Runtime& runtime_;
  std::optional<WatchedMember> member_;
  std::shared_ptr<Slice> slice_;
  int exceptions_;  ///< number of exceptions that were under way
  Microseconds start_ = 0;
  std::vector<StreamTimes::Begun> begun_;
};

}  // namespace tutti::watching
