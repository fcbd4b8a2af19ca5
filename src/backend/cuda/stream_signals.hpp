#pragma once

#include "backend/backend.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace tutti::backend::cuda {

/// Signals between streams through words in pinned memory, which every device reaches: a stream counts in a
/// word of its own what it has signalled, and others wait until the count has come so far. The front ends of
/// the GPUs do both (the driver's stream memory operations); no kernel waits.
///
/// As with events, nobody waits for what has not been enqueued yet: a wait is enqueued after the signal it is
/// for. So streams that share a hardware queue do not hold up what they wait for.
///
/// Thread-safe.
class StreamSignals {
 public:
  explicit StreamSignals(int device_count);
  StreamSignals(const StreamSignals&) = delete;
  StreamSignals& operator=(const StreamSignals&) = delete;
  ~StreamSignals();

  /// A stream keeps its word for good, so a device gives out no more than so many.
  static constexpr std::size_t most_streams = 256;

  /// `id` tells the streams of a device apart for good. None if there are no more words, or no such
  /// operations.
  [[nodiscard]] Signal send(StreamRef stream, std::uint64_t id);
  static void wait(StreamRef stream, std::span<const Signal> signals);

 private:
  /// Front ends write and poll it.
  struct alignas(64) Word {
    std::uint32_t sent;
  };
  struct Source {
    Word* word;
    std::uint32_t sent;  ///< by what has been enqueued
  };
  struct PerDevice {
    std::mutex mutex;  ///< a stream's signals are enqueued in the order of their values
    Word* words = nullptr;
    std::map<std::uint64_t, Source> sources;
  };

  [[nodiscard]] static Source* source_of(PerDevice& device, std::uint64_t id);

  std::vector<std::unique_ptr<PerDevice>> devices_;
};

}  // namespace tutti::backend::cuda
