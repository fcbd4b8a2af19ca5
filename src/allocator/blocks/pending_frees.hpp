// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "stream/event_pool.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <list>
#include <vector>

namespace tutti {

/// The part of an allocator's block that lists the other streams which have used it.
struct StreamUses {
  std::vector<backend::StreamRef> streams;  ///< each once; empties as the streams are marked
  std::uint32_t open_marks = 0;             ///< events recorded after the free, not yet complete
  StreamUses* next_unmarked = nullptr;  ///< of the list of blocks with streams still to be marked, or kept

  void add(backend::StreamRef stream);
};

/// Freed blocks that are kept because a graph may use them. Not synchronised.
class KeptFrees {
 public:
  void add(StreamUses& block) noexcept {
    block.next_unmarked = first_;
    first_ = &block;
  }
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  /// Calls `take(block)` for each block and keeps none.
  template <class Take>
  void take_all(const Take& take) {
    while (first_ != nullptr) {
      StreamUses& block = *first_;
      first_ = block.next_unmarked;
      block.next_unmarked = nullptr;
      take(block);
    }
  }

 private:
  StreamUses* first_ = nullptr;
};

/// Freed blocks that wait until the work queued on the streams that used them is done. Not synchronised: the
/// allocator that owns it holds its lock.
class PendingFrees {
 public:
  PendingFrees(backend::Backend& backend, EventPool& events) : backend_(backend), events_(events) {}

  [[nodiscard]] bool empty() const noexcept { return queues_.empty() && unmarked_ == nullptr; }
  /// Records an event on each of the block's streams. A stream that cannot be marked now, because it is being
  /// captured or its device is in trouble, keeps the block waiting and is tried again by `reap`.
  void add(StreamUses& block) noexcept;
  /// Calls `done(block)` for each block whose streams have passed their marks, or have failed. Failures stay
  /// with the backend, which reports them to the next call that synchronises with the device.
  template <class Done>
  void reap(const Done& done);
  /// Returns the events that blocks wait for. They stay valid as long as the pool; an event may mark a newer
  /// point by the time it is waited for.
  [[nodiscard]] std::vector<backend::EventHandle> open_events() const;

 private:
  struct Mark {
    StreamUses* block;
    PooledEvent event;
  };
  /// Marks of one stream, in order: if a mark is complete, those before it are, too.
  struct Queue {
    backend::StreamRef stream;
    std::uint64_t stream_id;  ///< two streams, one after the other, may have the same handle
    std::deque<Mark> marks;
  };

  /// Returns whether all streams are marked.
  [[nodiscard]] bool try_mark(StreamUses& block) noexcept;
  void mark(StreamUses& block, backend::StreamRef stream);
  void append(backend::StreamRef stream, Mark mark);
  void mark_unmarked() noexcept;
  /// Returns how many marks are complete. Asks one event if all are, else about twice the logarithm of the
  /// answer.
  [[nodiscard]] std::size_t completed(const std::deque<Mark>& marks);
  /// Removes the first mark and returns its block.
  [[nodiscard]] StreamUses& pop(Queue& queue);

  backend::Backend& backend_;
  EventPool& events_;
  std::list<Queue> queues_;  // without empty ones
  StreamUses* unmarked_ = nullptr;
};

template <class Done>
void PendingFrees::reap(const Done& done) {
  mark_unmarked();
  for (auto queue = queues_.begin(); queue != queues_.end();) {
    for (std::size_t left = completed(queue->marks); left > 0; --left) {
      StreamUses& block = pop(*queue);
      --block.open_marks;
      if (block.open_marks == 0 && block.streams.empty()) done(block);
    }
    queue = queue->marks.empty() ? queues_.erase(queue) : std::next(queue);
  }
}

}  // namespace tutti
