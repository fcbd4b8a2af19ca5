// SPDX-License-Identifier: Apache-2.0
#include "device/external_streams.hpp"

#include "tutti/error.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <vector>

#include <pthread.h>

namespace tutti {
namespace {

/// Never destroyed: threads end when they like. A child that is forked off has none of its parent's.
struct ExternalStreams {
  ExternalStreams() {
    const int status = pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); },
                                      [] {
                                        get().current.clear();
                                        get().mutex.unlock();
                                      });
    if (status != 0) throw std::bad_alloc();
  }

  std::mutex mutex;  ///< guards the others, and keeps a stream that is asked from being let go of meanwhile
  std::vector<backend::StreamRef> known;
  std::vector<backend::StreamRef> current;  ///< once for each thread that it is current in

  static ExternalStreams& get() {
    static ExternalStreams& only = *new ExternalStreams;
    return only;
  }
  [[nodiscard]] bool knows(backend::StreamRef stream) const {
    return std::ranges::find(known, stream) != known.end();
  }
};

std::atomic<bool> are_there_external_streams{false};

}  // namespace

void note_external_stream(backend::StreamRef stream) {
  ExternalStreams& streams = ExternalStreams::get();
  const std::lock_guard lock(streams.mutex);
  if (!streams.knows(stream)) streams.known.push_back(stream);
  are_there_external_streams.store(true, std::memory_order_relaxed);
}

void note_current_stream(backend::StreamRef before, backend::StreamRef after) {
  if (!are_there_external_streams.load(std::memory_order_relaxed) || before == after) return;
  ExternalStreams& streams = ExternalStreams::get();
  const std::lock_guard lock(streams.mutex);
  if (streams.knows(after)) streams.current.push_back(after);
  const auto old = std::ranges::find(streams.current, before);
  if (old != streams.current.end()) streams.current.erase(old);
}

bool has_capture_on(backend::Backend& backend, int device) {
  if (backend.has_capture_on(device)) return true;
  // Virtual devices know all their streams, and others may have taken their place.
  const bool is_all_known = backend.kind() == BackendKind::host;
  if (is_all_known || !are_there_external_streams.load(std::memory_order_relaxed)) return false;
  ExternalStreams& streams = ExternalStreams::get();
  const std::lock_guard lock(streams.mutex);
  return std::ranges::any_of(streams.current, [&](backend::StreamRef stream) {
    try {
      return stream.device == device && backend.is_capturing(stream);
    } catch (const Error&) {
      return false;  // whoever waits for the device is told what is wrong with it
    }
  });
}

}  // namespace tutti
