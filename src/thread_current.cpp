#include "thread_current.hpp"

#include <memory>
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

}  // namespace

thread_local constinit ThreadCurrent thread_current_state;

void reset_thread_current(Runtime& runtime) {
  std::vector<Stream> streams;
  for (int device = 0; device < runtime.device_count(); ++device) {
    streams.push_back(StreamAccess::make(runtime.backend().default_stream(device)));
  }
  // Destructors of other thread-local and of static objects may run after the owner's: what they need is
  // never freed.
  std::vector<Stream>& kept = streams_are_gone ? *new std::vector<Stream> : streams_owner.streams;
  kept = std::move(streams);
  thread_current_state = {runtime.generation(), 0, kept.data()};
}

backend::StreamRef current_stream_ref(Runtime& runtime, int device) {
  return StreamAccess::ref(thread_current(runtime).streams[device]);
}

}  // namespace tutti
