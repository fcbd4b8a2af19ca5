// SPDX-License-Identifier: Apache-2.0
#include "work.hpp"

#include "interrupts.hpp"

#include <algorithm>
#include <utility>

namespace tutti::python {
namespace {

thread_local Work* current_work = nullptr;

}  // namespace

Work* Work::current() noexcept {
  return current_work;
}

void Work::enter() {
  outer_ = std::exchange(current_work, this);
}

void Work::leave() {
  current_work = std::exchange(outer_, nullptr);
  for (const Stream& stream : streams_) events_.push_back(std::make_shared<Event>(stream.record_event()));
  streams_.clear();
}

void Work::add(Device device) {
  const Stream stream = current_stream(device);
  if (std::ranges::find(streams_, stream) == streams_.end()) streams_.push_back(stream);
}

void Work::wait() const {
  for (const std::shared_ptr<Event>& event : events_) wait_interruptibly([event] { event->synchronize(); });
}

bool Work::is_done() const {
  return std::ranges::all_of(events_, [](const std::shared_ptr<Event>& event) { return event->query(); });
}

}  // namespace tutti::python
