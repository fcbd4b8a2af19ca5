// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "stream_sanitizer/happens_before.hpp"
#include "stream_sanitizer/memory_lives.hpp"
#include "tutti/stream_sanitizer_reports.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::stream_sanitizer {

/// A race, not yet described in words.
struct Finding {
  RaceKind kind = RaceKind::read_after_write;
  Bytes bytes;
  Access first;
  bool first_writes = false;
  Access second;
  bool second_writes = false;
  OperationPtr release = nullptr;  ///< of the memory, for accesses after it
  std::string missing = {};
};

/// Follows what is queued, and finds accesses that are not ordered. Thread-safe; independent of the backend;
/// returns its findings to the caller.
///
/// The host is a single line: whatever one thread has waited for comes before all that any thread does next,
/// as it is not visible how threads make one another wait.
class Watcher {
 public:
  /// Identifies a capture, or `live`: the operations that run as they are queued.
  using CaptureId = std::uint64_t;
  static constexpr CaptureId live = 0;
  /// A stream and the capture that it is in.
  struct Place {
    CaptureId capture = live;
    StreamKey key;
    bool is_default = false;
    bool is_foreign = false;
  };

  /// Records an operation that is about to be queued. Adds the races that it would be part of to `findings`;
  /// if there are any and `stops_at_races`, the operation is not recorded.
  [[nodiscard]] OperationPtr enqueue(const Place& place, std::string_view name,
                                     std::span<const Touch> touches, bool stops_at_races,
                                     std::vector<Finding>& findings);
  /// Removes an operation that has not been queued after all.
  void take_back(const Place& place, const OperationPtr& operation, std::span<const Touch> touches);
  /// Checks an access of the host itself.
  void host_touches(std::string_view name, std::span<const Touch> touches, bool stops_at_races,
                    std::vector<Finding>& findings);

  // Orders.
  [[nodiscard]] VectorClock clock_of(const Place& place);
  [[nodiscard]] VectorClock clock_of_device(int device);
  [[nodiscard]] VectorClock clock_of_event(backend::EventHandle event);
  void host_waited(const VectorClock& clock);
  /// Notes that the library has seen that this is done, for its own use: for memory that it hands out again,
  /// which no later work of the program relies on.
  void own_poll_saw(const VectorClock& clock);
  void record_event(backend::EventHandle event, const Place& place);
  /// Makes the stream wait for the event, in the capture that recorded it, which the stream may join by that.
  void wait_event(backend::EventHandle event, const Place& place);
  void share_event(backend::EventHandle event);
  void forget_event(backend::EventHandle event);
  void signal(const backend::SharedFlag& flag, const Place& place);
  void wait_signals(std::span<backend::SharedFlag> flags, const Place& place);
  void order(const Place& earlier, const Place& later);
  [[nodiscard]] std::shared_ptr<void> begin_meeting(std::span<const Place> places);
  void end_meeting(const std::shared_ptr<void>& meeting, std::span<const backend::MeetingOrder> orders);
  void retire(const StreamKey& key);

  // Memory.
  void memory_taken(Bytes bytes);
  void memory_given_back(Bytes bytes);
  /// Forgets memory that is nobody's, or the backend's own.
  void forget(Bytes bytes);

  // Captures.
  void begin_capture(CaptureId capture);
  [[nodiscard]] bool is_known(CaptureId capture);
  void end_capture(CaptureId capture, backend::GraphHandle graph);  ///< no graph: it has failed
  [[nodiscard]] std::vector<Touch> touches_of(backend::GraphHandle graph);
  void forget_graph(backend::GraphHandle graph);
  /// Orders launches of one graph, which run one after another, on whatever streams.
  void follow_launches(backend::GraphHandle graph, const Place& place);
  void note_launch(backend::GraphHandle graph, const Place& place);

  /// Returns true if this pair of places in the program has not been reported yet, and marks it as reported.
  [[nodiscard]] bool is_news(const Finding& finding);
  /// Forgets all accesses and reports.
  void forget_all();
  /// Returns true if accesses were forgotten for lack of room since the last call.
  [[nodiscard]] bool take_has_forgotten() noexcept {
    return has_forgotten_.load(std::memory_order_relaxed) && has_forgotten_.exchange(false);
  }

 private:
  struct Capture {
    HappensBefore history;
    std::vector<Touch> touches;
  };
  struct Mark {
    CaptureId capture = live;
    bool was_recorded = false;
    bool is_shared = false;
    VectorClock clock;
    backend::StreamRef recorded_on;
    bool is_default = false;
  };
  struct Meeting;

  [[nodiscard]] HappensBefore* history_of(CaptureId capture);
  [[nodiscard]] WatchedStream* stream_at(const Place& place);
  [[nodiscard]] OperationPtr describe(std::string_view name, backend::StreamRef stream, bool is_default);
  void find(HappensBefore& history, const Access& access, std::span<const Touch> touches,
            const VectorClock& clock, const WatchedStream* stream, std::vector<Finding>& findings);
  void join(const Place& place, const VectorClock& clock);

  std::mutex mutex_;
  HappensBefore live_;
  std::map<CaptureId, Capture> captures_;
  std::unordered_map<backend::GraphHandle, std::vector<Touch>> graphs_;
  std::unordered_map<backend::GraphHandle, VectorClock> launches_;  ///< the latest of each graph
  std::unordered_map<backend::EventHandle, Mark> marks_;
  std::map<const backend::SharedFlag*, VectorClock> signals_;
  VectorClock seen_by_library_;
  VectorClock foreign_;  ///< known to other processes by shared events
  MemoryLives lives_;
  std::uint64_t numbers_ = 0;
  std::set<std::pair<std::size_t, std::size_t>> told_;
  std::atomic<bool> has_forgotten_ = false;
};

}  // namespace tutti::stream_sanitizer
