// SPDX-License-Identifier: Apache-2.0
#include "allocator/blocks/pending_frees.hpp"

#include "stream/event_pool.hpp"

#include <algorithm>
#include <exception>
#include <utility>

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
  for (const Queue& queue : queues_) events.push_back(queue.marks.back().event.handle());
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
  PooledEvent event(events_, stream.device);
  event.record(stream);
  append(stream, {&block, std::move(event)});
  ++block.open_marks;
}

void PendingFrees::append(backend::StreamRef stream, Mark mark) {
  const std::uint64_t id = backend_.stream_id(stream);
  const auto found = std::find_if(queues_.begin(), queues_.end(), [&](const Queue& queue) {
    return queue.stream == stream && queue.stream_id == id;
  });
  if (found != queues_.end()) {
    found->marks.push_back(std::move(mark));
  } else {
    std::list<Queue> fresh;
    fresh.push_back({stream, id, {}});
    fresh.back().marks.push_back(std::move(mark));
    queues_.splice(queues_.end(), fresh);
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

std::size_t PendingFrees::completed(const std::deque<Mark>& marks) {
  const auto is_complete = [this](const Mark& mark) { return backend_.has_passed(mark.event.handle()); };
  if (is_complete(marks.back())) return marks.size();
  // Where the host is far ahead of the device, most marks are open.
  std::size_t known = 0;
  std::size_t step = 1;
  while (known + step < marks.size() && is_complete(marks[known + step - 1])) {
    known += step;
    step *= 2;
  }
  const auto first = marks.begin() + static_cast<std::ptrdiff_t>(known);
  const auto last = marks.begin() + static_cast<std::ptrdiff_t>(std::min(known + step, marks.size()) - 1);
  return static_cast<std::size_t>(std::partition_point(first, last, is_complete) - marks.begin());
}

StreamUses& PendingFrees::pop(Queue& queue) {
  StreamUses& block = *queue.marks.front().block;
  queue.marks.pop_front();
  return block;
}

}  // namespace tutti
