// SPDX-License-Identifier: Apache-2.0
#include "device/current_device.hpp"

#include "stream/external_streams.hpp"

#include <memory>
#include <new>
#include <utility>
#include <vector>

#include <pthread.h>

namespace tutti {
namespace {

using Streams = std::vector<Stream>;

/// They are no thread's current ones any more.
void let_go_of(const Streams& streams) {
  for (const Stream& stream : streams) note_current_stream(StreamAccess::ref(stream), {});
}

void free_streams(void* streams) {
  const std::unique_ptr<Streams> owner(static_cast<Streams*>(streams));
  let_go_of(*owner);
  thread_current_state = {};
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

Streams& streams_of_this_thread() {
  if (void* streams = pthread_getspecific(streams_key())) return *static_cast<Streams*>(streams);
  auto streams = std::make_unique<Streams>();
  if (pthread_setspecific(streams_key(), streams.get()) != 0) throw std::bad_alloc();
  return *streams.release();
}

}  // namespace

thread_local constinit ThreadCurrent thread_current_state;

void reset_thread_current(Runtime& runtime) {
  Streams fresh;
  for (int device = 0; device < runtime.device_count(); ++device) {
    fresh.push_back(StreamAccess::make(runtime.backend().default_stream(device)));
  }
  Streams& streams = streams_of_this_thread();
  let_go_of(streams);
  streams = std::move(fresh);
  thread_current_state = {runtime.generation(), 0, streams.data()};
}

backend::StreamRef current_stream_ref(Runtime& runtime, int device) {
  return StreamAccess::ref(thread_current(runtime).streams[device]);
}

}  // namespace tutti
