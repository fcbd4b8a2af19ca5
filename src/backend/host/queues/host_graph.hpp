// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/host/queues/task.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tutti::backend::host {

class StreamWorker;

/// One entry of a recorded lane: a piece of a stream's work during a capture.
struct GraphEntry {
  std::uint32_t lane = 0;
  std::unique_ptr<Task> task;      ///< nullptr: a wait
  std::uint32_t awaited_lane = 0;  ///< of a wait
  std::uint64_t awaited = 0;  ///< how many of that lane's entries it waits for; 0: for the work before the
                              ///< launch, on the lane that the graph begins on
};

/// Resources that a graph keeps alive.
using Retained = std::vector<std::shared_ptr<void>>;

/// The recorded work of several streams in the order of the host's calls, in which every wait comes after
/// what it waits for. The graph begins and ends in lane 0.
struct Recording {
  std::vector<int> lane_devices;
  std::vector<GraphEntry> entries;
  Retained retained;
};

/// Describes the recording in the language DOT: a box for each entry that does work, in a frame for each
/// lane, and arrows for the order.
[[nodiscard]] std::string describe(const Recording& recording);

/// A stream capture, from its beginning on one stream until it ends there. Not thread-safe: the machine's
/// lock is held.
class Capture {
 public:
  /// The point at which an event was recorded.
  struct Mark {
    std::uint32_t lane = 0;
    /// The number of entries that come before, directly or by waits, by lane.
    std::vector<std::uint64_t> before;
  };

  /// Begins a capture that must end on thread `ends_on`, or may end on any if that is none.
  Capture(std::uint64_t id, StreamWorker& origin, std::thread::id ends_on);

  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] const StreamWorker& origin() const noexcept { return *streams_.front(); }
  [[nodiscard]] std::thread::id ends_on() const noexcept { return ends_on_; }
  /// Returns true if it has not ended yet; it may be invalid.
  [[nodiscard]] bool is_open() const noexcept { return is_open_; }
  [[nodiscard]] bool is_valid() const noexcept { return complaint_.empty(); }
  /// Returns why it is invalid.
  [[nodiscard]] const std::string& complaint() const noexcept { return complaint_; }
  [[nodiscard]] bool involves(int device) const noexcept;
  /// Returns the streams that are part of it, first the one it began on; nullptr for lanes of other graphs
  /// and streams that are gone.
  [[nodiscard]] const std::vector<StreamWorker*>& streams() const noexcept { return streams_; }

  /// Makes the capture invalid; the first reason is kept.
  void invalidate(const std::string& complaint);
  /// Forgets a stream that is gone.
  void forget(const StreamWorker& stream) noexcept;
  void add(const StreamWorker& stream, std::unique_ptr<Task> task);
  [[nodiscard]] Mark mark(const StreamWorker& stream) const;
  /// Makes `stream`, which becomes part of it if it is not yet, wait for `mark`.
  void wait(StreamWorker& stream, const Mark& mark);
  /// Adds all entries of `graph`.
  void add(const StreamWorker& stream, const std::shared_ptr<const Recording>& graph);
  void retain(std::shared_ptr<void> resource) { recording_.retained.push_back(std::move(resource)); }
  /// Returns a stream whose work has not been joined to the stream that the capture began on; nullptr if
  /// there is none.
  [[nodiscard]] const StreamWorker* unjoined() const noexcept;
  /// Ends the capture and returns what has been recorded.
  [[nodiscard]] Recording end();

 private:
  [[nodiscard]] std::uint32_t lane_of(const StreamWorker& stream) const;
  [[nodiscard]] std::uint32_t add_lane(int device, StreamWorker* stream);
  void push(GraphEntry entry);
  void merge(std::uint32_t lane, const std::vector<std::uint64_t>& before);
  [[nodiscard]] static std::uint64_t at(const std::vector<std::uint64_t>& counts,
                                        std::uint32_t lane) noexcept {
    return lane < counts.size() ? counts[lane] : 0;
  }

  const std::uint64_t id_;
  const std::thread::id ends_on_;
  bool is_open_ = true;
  std::string complaint_;
  Recording recording_;
  std::vector<StreamWorker*> streams_;              ///< by lane
  std::vector<std::vector<std::uint64_t>> clocks_;  ///< by lane, as `Mark::before`
  std::vector<std::uint64_t> latest_work_;          ///< by lane: number of the last entry that is no wait
};

/// An event's mark in a capture.
struct CapturedMark {
  std::shared_ptr<Capture> capture;
  Capture::Mark mark;
};

/// A graph that can be launched. A launch queues copies of its tasks, on streams of the graph's own except
/// for lane 0.
struct HostGraph {
  std::shared_ptr<const Recording> recording;
  std::mutex mutex;                    ///< held by a launch
  std::vector<StreamWorker*> streams;  ///< by lane, made at the first launch; for lane 0 where that is needed
  Ticket latest;                       ///< of the previous launch
};

}  // namespace tutti::backend::host
