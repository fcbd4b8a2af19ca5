// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/fork_mark.hpp"
#include "diagnostics/stream_times.hpp"
#include "diagnostics/trace_file.hpp"
#include "diagnostics/watching.hpp"

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

/// The trace that TUTTI_TRACE asks for: slices of time on tracks, one for each thread, each rank and each
/// stream. Thread-safe. What it has been told is in the file, whatever ends the process.
class Trace {
 public:
  /// Throws Error(invalid_argument) while a variable of the environment is wrong.
  [[nodiscard]] static bool is_wanted();
  /// nullptr where none is wanted, or none can be written.
  [[nodiscard]] static Trace* get();

  /// `parents`: of the process that this one was forked from, to which it is left, if there is one.
  Trace(TraceFile file, Trace* parents);
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace() = default;

  // Of the calling thread.

  void mark(std::string_view message);
  void push(std::string_view message);
  void pop();

  /// A call that has been queued, from `start` until now. It is written with what is told next.
  void add(const Slice& slice, Microseconds start, const std::optional<WatchedMember>& member);
  /// What streams have done.
  void add(Runtime& runtime, const std::vector<TimedSlice>& slices);

  /// What has been timed when times end. Nothing fails of it.
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
  [[maybe_unused]] Trace* parents_;  ///< so that it does not look lost
};

/// The part of a trace that one call is. See CallRange.
class TracedCall {
 public:
  TracedCall(Trace& trace, const WatchedCall& call);
  TracedCall(const TracedCall&) = delete;
  TracedCall& operator=(const TracedCall&) = delete;
  ~TracedCall();

 private:
  Trace& trace_;
  Runtime& runtime_;
  std::optional<WatchedMember> member_;
  std::shared_ptr<Slice> slice_;
  int exceptions_;  ///< that were under way
  Microseconds start_ = 0;
  std::vector<StreamTimes::Begun> begun_;
};

}  // namespace tutti::watching
