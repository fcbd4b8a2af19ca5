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

/// One entry of a recorded lane: what a stream was given during a capture.
struct GraphEntry {
  std::uint32_t lane = 0;
  std::unique_ptr<Task> task;      ///< nullptr: a wait
  std::uint32_t awaited_lane = 0;  ///< of a wait
  std::uint64_t awaited = 0;       ///< how many of that lane's entries it waits for; 0: for what the launch
                                   ///< follows, on the lane that the graph begins on
};

/// What a graph keeps alive.
using Retained = std::vector<std::shared_ptr<void>>;

/// What was recorded: the work of several streams in the order of the host's calls, in which every wait comes
/// after what it waits for. Lane 0 is where the graph begins and ends.
struct Recording {
  std::vector<int> lane_devices;
  std::vector<GraphEntry> entries;
  Retained retained;
};

/// In the language DOT: a box for each entry that does work, in a frame for each lane, and arrows for what
/// comes after what.
[[nodiscard]] std::string describe(const Recording& recording);

/// A stream capture, from its beginning on one stream until it ends there. Not thread-safe: the machine's
/// lock is held.
class Capture {
 public:
  /// Where an event was recorded.
  struct Mark {
    std::uint32_t lane = 0;
    /// By lane: how many entries have come before, directly or by waits.
    std::vector<std::uint64_t> before;
  };

  /// It has to end on that thread; on any if it is none.
  Capture(std::uint64_t id, StreamWorker& origin, std::thread::id ends_on);

  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] const StreamWorker& origin() const noexcept { return *streams_.front(); }
  [[nodiscard]] std::thread::id ends_on() const noexcept { return ends_on_; }
  /// It has not ended yet; it may be invalid.
  [[nodiscard]] bool is_open() const noexcept { return is_open_; }
  [[nodiscard]] bool is_valid() const noexcept { return complaint_.empty(); }
  /// Why it is invalid.
  [[nodiscard]] const std::string& complaint() const noexcept { return complaint_; }
  [[nodiscard]] bool involves(int device) const noexcept;
  /// Streams that are part of it, the first being the one it began on; nullptr for lanes of other graphs and
  /// streams that are gone.
  [[nodiscard]] const std::vector<StreamWorker*>& streams() const noexcept { return streams_; }

  /// The first reason counts.
  void invalidate(const std::string& complaint);
  /// The stream is gone.
  void forget(const StreamWorker& stream) noexcept;
  void add(const StreamWorker& stream, std::unique_ptr<Task> task);
  [[nodiscard]] Mark mark(const StreamWorker& stream) const;
  /// `stream`, which becomes part of it if it is not yet, waits for `mark`.
  void wait(StreamWorker& stream, const Mark& mark);
  /// All that `graph` does becomes part of it.
  void add(const StreamWorker& stream, const std::shared_ptr<const Recording>& graph);
  void retain(std::shared_ptr<void> resource) { recording_.retained.push_back(std::move(resource)); }
  /// A stream whose work nothing has brought back to where the capture began; nullptr if there is none.
  [[nodiscard]] const StreamWorker* unjoined() const noexcept;
  /// What has been recorded.
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

/// What an event was recorded in, if that is a capture.
struct CapturedMark {
  std::shared_ptr<Capture> capture;
  Capture::Mark mark;
};

/// A graph that can be launched. What is launched are copies of its tasks, on streams of its own but for lane
/// 0.
struct HostGraph {
  std::shared_ptr<const Recording> recording;
  std::mutex mutex;                    ///< held by who launches
  std::vector<StreamWorker*> streams;  ///< by lane, made at the first launch; of lane 0 where that is needed
  Ticket latest;                       ///< of the launch before
};

}  // namespace tutti::backend::host
