// SPDX-License-Identifier: Apache-2.0
#include "stream/thread_streams.hpp"

#include "device/external_streams.hpp"
#include "stream/stream_access.hpp"

#include <memory>
#include <new>
#include <utility>
#include <vector>

#include <pthread.h>

namespace tutti {
namespace {

using ThreadOwned = std::vector<Stream>;

/// Takes note that a thread has these streams current no more.
void let_go_of(const ThreadOwned& streams) {
  for (const Stream& stream : streams) note_current_stream(StreamAccess::ref(stream), {});
}

void free_streams(void* streams) {
  const std::unique_ptr<ThreadOwned> owner(static_cast<ThreadOwned*>(streams));
  let_go_of(*owner);
  thread_streams_state = {};
}

/// Holds each thread's streams. No thread-local object, because destructors of others may run after its own
/// and still ask for the current stream; keys are cleared after all of them.
pthread_key_t streams_key() {
  static const pthread_key_t key = [] {
    pthread_key_t created{};
    if (pthread_key_create(&created, free_streams) != 0) throw std::bad_alloc();
    return created;
  }();
  return key;
}

ThreadOwned& streams_of_this_thread() {
  if (void* streams = pthread_getspecific(streams_key())) return *static_cast<ThreadOwned*>(streams);
  auto streams = std::make_unique<ThreadOwned>();
  if (pthread_setspecific(streams_key(), streams.get()) != 0) throw std::bad_alloc();
  return *streams.release();
}

}  // namespace

thread_local constinit ThreadStreams thread_streams_state;

void reset_thread_streams(Runtime& runtime) {
  ThreadOwned fresh;
  for (int device = 0; device < runtime.device_count(); ++device) {
    fresh.push_back(StreamAccess::make(runtime.backend().default_stream(device)));
  }
  ThreadOwned& streams = streams_of_this_thread();
  let_go_of(streams);
  streams = std::move(fresh);
  thread_streams_state = {runtime.generation(), streams.data()};
}

}  // namespace tutti
