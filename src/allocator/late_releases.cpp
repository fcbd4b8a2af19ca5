// SPDX-License-Identifier: Apache-2.0
#include "allocator/late_releases.hpp"

#include "allocator/graph_pools/graph_captures.hpp"

#include <exception>
#include <iterator>
#include <utility>

namespace tutti {

void LateReleases::add(Ones&& ones) noexcept {
  const std::lock_guard lock(mutex_);
  ones_.splice(ones_.end(), ones);
  has_any_.store(!ones_.empty(), std::memory_order_release);
}

void LateReleases::add_marked(Ones&& ones) noexcept {
  for (One& one : ones)
    std::erase_if(one.streams, [&](backend::StreamRef stream) { return try_mark(one, stream); });
  add(std::move(ones));
}

void LateReleases::release_all() {
  Ones released;  // destroyed outside the lock: their destructors may come back here
  const std::lock_guard lock(mutex_);
  released.swap(ones_);
  has_any_.store(false, std::memory_order_relaxed);
}

bool LateReleases::release_some() {
  // They are no part of what this thread captures.
  const GraphCaptures::Thread of_no_graph(GraphPool::none);
  Ones released;  // as above
  const std::lock_guard lock(mutex_);
  for (auto one = ones_.begin(); one != ones_.end();) {
    const auto next = std::next(one);
    if (has_come(*one)) released.splice(released.end(), ones_, one);
    one = next;
  }
  has_any_.store(!ones_.empty(), std::memory_order_relaxed);
  return !released.empty();
}

bool LateReleases::has_come(One& one) {
  std::erase_if(one.streams, [&](backend::StreamRef stream) { return try_mark(one, stream); });
  std::erase_if(one.marks, [this](const PooledEvent& mark) { return backend_.has_passed(mark.handle()); });
  return one.streams.empty() && one.marks.empty();
}

bool LateReleases::try_mark(One& one, backend::StreamRef stream) {
  try {
    if (backend_.is_capturing(stream)) return false;  // the mark would become part of that graph
    PooledEvent mark(events_, stream.device);
    mark.record(stream);
    one.marks.push_back(std::move(mark));
    return true;
  } catch (const std::exception&) {
    return false;  // the failure itself is reported by the calls that synchronise with the device
  }
}

}  // namespace tutti
