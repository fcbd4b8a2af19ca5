#include "pending_frees.hpp"

#include "runtime.hpp"

#include <algorithm>
#include <exception>

namespace tutti {

void StreamUses::add(backend::StreamRef stream) {
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
}

void PendingFrees::add(StreamUses& block) noexcept {
  if (try_mark(block)) return;
  block.next_unmarked = unmarked_;
  unmarked_ = &block;
}

std::vector<backend::EventHandle> PendingFrees::open_events() const {
  std::vector<backend::EventHandle> events;
  for (const Queue& queue : queues_) events.push_back(queue.marks.back().event);
  return events;
}

bool PendingFrees::try_mark(StreamUses& block) noexcept {
  try {
    while (!block.streams.empty()) {
      const backend::StreamRef stream = block.streams.back();
      // An event recorded during a capture becomes part of the graph and cannot be asked whether it is
      // complete.
      if (backend_.is_capturing(stream)) return false;
      mark(block, stream);
      block.streams.pop_back();
    }
    return true;
  } catch (const std::exception&) {
    return false;  // the failure itself is reported by the calls that synchronise with the device
  }
}

void PendingFrees::mark(StreamUses& block, backend::StreamRef stream) {
  const backend::EventHandle event = events_.acquire(stream.device);
  try {
    backend_.record_event(event, stream);
    append(stream, {&block, event});
  } catch (...) {
    events_.release(stream.device, event);
    throw;
  }
  ++block.open_marks;
}

void PendingFrees::append(backend::StreamRef stream, Mark mark) {
  const auto found = std::find_if(queues_.begin(), queues_.end(),
                                  [&](const Queue& queue) { return queue.stream == stream; });
  if (found != queues_.end()) {
    found->marks.push_back(mark);
  } else {
    queues_.push_back({stream, {mark}});
  }
}

void PendingFrees::mark_unmarked() noexcept {
  StreamUses** link = &unmarked_;
  while (StreamUses* block = *link) {
    if (try_mark(*block)) {
      *link = block->next_unmarked;
    } else {
      link = &block->next_unmarked;
    }
  }
}

StreamUses* PendingFrees::next_completed(std::size_t& queue) {
  for (; queue < queues_.size(); ++queue) {
    auto& [stream, marks] = queues_[queue];
    const Mark mark = marks.front();
    if (!backend_.query_event(mark.event)) continue;
    events_.release(stream.device, mark.event);
    marks.pop_front();
    if (marks.empty()) queues_.erase(queues_.begin() + static_cast<std::ptrdiff_t>(queue));
    return mark.block;
  }
  return nullptr;
}

}  // namespace tutti
