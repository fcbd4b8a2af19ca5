// SPDX-License-Identifier: Apache-2.0
#include "shared_object.hpp"

#include "tutti/error.hpp"
#include "tutti/event.hpp"
#include "tutti/graph.hpp"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <utility>

#include <pthread.h>

namespace tutti::python {
namespace {

/// Python objects that other threads have dropped.
struct Graveyard {
  std::mutex mutex;
  std::vector<PyObject*> objects;
  std::atomic<bool> has_some = false;
};
Graveyard& graveyard() {
  static auto* const graveyard = new Graveyard;  // kept for threads that outlive static objects
  // A child that is forked off has none of the threads that may hold the lock.
  static const int status =
      ::pthread_atfork([] { python::graveyard().mutex.lock(); }, [] { python::graveyard().mutex.unlock(); },
                       [] { python::graveyard().mutex.unlock(); });
  static_cast<void>(status);
  return *graveyard;
}

void bury_dropped() {
  if (!graveyard().has_some) return;
  std::vector<PyObject*> objects;
  {
    const std::lock_guard lock(graveyard().mutex);
    objects.swap(graveyard().objects);
    graveyard().has_some = false;
  }
  for (PyObject* const object : objects) nb::handle(object).dec_ref();
}

/// A share that is kept until the events are reached.
struct Kept {
  std::shared_ptr<void> share;
  std::vector<Event> events;
};
std::vector<Kept>& all_kept() {
  static auto* const kept = new std::vector<Kept>;  // kept: it holds Python objects
  return *kept;
}

/// Returns whether work before the event is over, as failed work is, too.
bool is_reached(const Event& event) {
  try {
    return event.query();
  } catch (const Error&) {
    return true;
  }
}

bool is_used(const Kept& kept) {
  return !std::ranges::all_of(kept.events, is_reached);
}

void bury_unused() {
  if (all_kept().empty()) return;
  std::vector<Kept> looked_at = std::exchange(all_kept(), {});  // dropping objects may come back here
  const auto unused = std::ranges::partition(looked_at, is_used);
  std::vector<Kept> dropped(std::move_iterator(unused.begin()), std::move_iterator(unused.end()));
  looked_at.erase(unused.begin(), unused.end());
  std::ranges::move(looked_at, std::back_inserter(all_kept()));
}

}  // namespace

std::shared_ptr<void> shared_object(nb::handle object) {
  return {nb::borrow(object).release().ptr(), [](void* last) {
            const std::lock_guard lock(graveyard().mutex);
            graveyard().objects.push_back(static_cast<PyObject*>(last));
            graveyard().has_some = true;
          }};
}

bool is_captured(const Stream& stream) {
  // The default stream of a GPU cannot be captured. Calls ask this of a current stream nearly always.
  if (stream.native_handle() == nullptr) return false;
  if (stream.device() == current_device() && stream == current_stream(stream.device()))
    return is_current_stream_capturing();
  const StreamGuard guard(stream);
  return is_current_stream_capturing();
}

void keep_while_used(std::shared_ptr<void> share, const std::vector<Stream>& streams) {
  Kept kept{.share = std::move(share), .events = {}};
  for (const Stream& stream : streams) {
    if (!is_captured(stream)) kept.events.push_back(stream.record_event());
  }
  all_kept().push_back(std::move(kept));
}

void bury() {
  bury_dropped();
  bury_unused();
}

}  // namespace tutti::python
