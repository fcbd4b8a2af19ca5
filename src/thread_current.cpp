#include "thread_current.hpp"

#include <deque>
#include <mutex>
#include <vector>

namespace tutti {
namespace {

thread_local constinit bool streams_are_gone = false;

/// Frees the thread's streams when it ends.
struct StreamsOwner {
  std::vector<Stream> streams;
  ~StreamsOwner() {
    thread_current_state = {};
    streams_are_gone = true;
  }
};
thread_local StreamsOwner streams_owner;

/// A vector that outlives its thread, and stays reachable, so that leak checkers know it is meant to.
std::vector<Stream>& keep_for_ever() {
  static std::mutex mutex;
  static auto* const kept = new std::deque<std::vector<Stream>>;
  const std::lock_guard lock(mutex);
  return kept->emplace_back();
}

}  // namespace

thread_local constinit ThreadCurrent thread_current_state;

void reset_thread_current(Runtime& runtime) {
  std::vector<Stream> streams;
  for (int device = 0; device < runtime.device_count(); ++device) {
    streams.push_back(StreamAccess::make(runtime.backend().default_stream(device)));
  }
  // Destructors of other thread-local and of static objects may run after the owner's: what they need is
  // never freed.
  std::vector<Stream>& kept = streams_are_gone ? keep_for_ever() : streams_owner.streams;
  kept = std::move(streams);
  thread_current_state = {runtime.generation(), 0, kept.data()};
}

backend::StreamRef current_stream_ref(Runtime& runtime, int device) {
  return StreamAccess::ref(thread_current(runtime).streams[device]);
}

}  // namespace tutti
