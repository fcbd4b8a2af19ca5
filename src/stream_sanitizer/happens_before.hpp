// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"
#include "stream_sanitizer/operation.hpp"
#include "stream_sanitizer/shadow_memory.hpp"
#include "stream_sanitizer/vector_clock.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

namespace tutti::stream_sanitizer {

/// Identifies a stream: handles are unique on their devices only, and one handle stands for a stream of each
/// thread.
struct StreamKey {
  backend::StreamRef stream;
  std::uint64_t thread = 0;  ///< 0: any
  friend bool operator==(const StreamKey&, const StreamKey&) = default;
};
struct StreamKeyHash {
  std::size_t operator()(const StreamKey& key) const noexcept {
    const std::size_t handle = std::hash<const void*>{}(key.stream.handle);
    return handle * 31 + static_cast<std::size_t>(key.stream.device) * 17 + key.thread;
  }
};

/// The stream of an event that was waited for, which may never have been recorded.
struct WaitSeen {
  bool was_recorded = false;
  backend::StreamRef recorded_on;
  bool is_default = false;
};

/// A stream's position in the order.
struct WatchedStream {
  StreamKey key;
  bool is_default = false;
  bool is_foreign = false;  ///< not made by the library: it may wait for its device's default stream and back
  Line line = 0;
  VectorClock clock;
  std::uint64_t host_seen = 0;  ///< the host's version at this stream's latest work
  std::optional<WaitSeen> last_wait;
};

/// An access to memory by an operation that is being queued.
struct Touch {
  Bytes bytes;
  bool writes = false;
  OperationPtr captured = nullptr;
};

/// Keeps the happens-before order of streams, by vector clocks, and their accesses to memory: of running
/// streams, or of one capture, whose operations run later, all together. Not synchronised.
class HappensBefore {
 public:
  /// Remembers about `most_pieces` pieces of memory, of some 200 bytes each.
  explicit HappensBefore(std::size_t most_pieces = std::size_t{1} << 19U) : most_pieces_(most_pieces) {}

  WatchedStream& stream(const StreamKey& key, bool is_default, bool is_foreign);
  /// Returns nullptr if nothing has been queued on the stream.
  [[nodiscard]] WatchedStream* find(const StreamKey& key);
  /// Ends a stream's identity: what it queued stays, but a stream that gets the same handle is another.
  void retire(const StreamKey& key);

  /// Notes that the host has waited for all that the clock knows.
  void host_waited(const VectorClock& clock);
  /// Orders what the host has waited for, or done, before what the stream gets next.
  void catch_up(WatchedStream& stream);
  /// Advances the host's clock for an access of its own, and returns its time.
  std::uint64_t advance_host();
  [[nodiscard]] const VectorClock& host() const noexcept { return host_; }
  /// Returns the clock of all streams of the device, including those that are gone.
  [[nodiscard]] VectorClock clock_of(int device) const;
  /// Orders the stream with its device's default stream, as legacy streams wait for each other.
  void order_legacy(WatchedStream& stream);

  [[nodiscard]] ShadowMemory& memory() noexcept { return memory_; }
  /// Forgets, from time to time, accesses that nobody can conflict with any more, and more if there are too
  /// many. Returns true if there were.
  bool tidy();
  /// Forgets all accesses so far.
  void forget_accesses() noexcept { memory_.clear(); }

 private:
  struct Retired {
    Line line;
    std::uint64_t time;
    int device;
    VectorClock clock;
  };
  [[nodiscard]] std::pair<Line, std::uint64_t> new_line();

  std::size_t most_pieces_;
  std::unordered_map<StreamKey, WatchedStream, StreamKeyHash> streams_;
  std::vector<Retired> retired_;
  Line lines_ = host_line + 1;
  VectorClock host_;
  std::uint64_t host_version_ = 1;
  std::uint64_t host_time_ = 0;
  std::size_t foreign_streams_ = 0;
  ShadowMemory memory_;
  std::size_t tidy_at_ = 4096;
};

}  // namespace tutti::stream_sanitizer
