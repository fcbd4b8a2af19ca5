// SPDX-License-Identifier: Apache-2.0
#include "allocator/pinned_allocator.hpp"

#include "allocator/uncached_growth.hpp"
#include "base/format_bytes.hpp"
#include "device/runtime.hpp"
#include "stream/event_pool.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <exception>

#include <fmt/format.h>

namespace tutti {

namespace {

constexpr std::size_t smallest_bytes = 4096;
constexpr int smallest_shift = std::countr_zero(smallest_bytes);
constexpr std::size_t steps_per_doubling = 4;
constexpr std::size_t largest_bytes = std::size_t{1} << 62;

/// Class 0 holds `smallest_bytes`; each doubling from there on is four equal steps.
constexpr std::size_t class_of(std::size_t bytes) noexcept {
  if (bytes <= smallest_bytes) return 0;
  const std::size_t below = std::bit_floor(bytes - 1);
  const std::size_t step = below / steps_per_doubling;
  const auto doublings = static_cast<std::size_t>(std::countr_zero(below) - smallest_shift);
  return steps_per_doubling * doublings + (bytes - below + step - 1) / step;
}

constexpr std::size_t bytes_of(std::size_t size_class) noexcept {
  if (size_class == 0) return smallest_bytes;
  const std::size_t below = smallest_bytes << ((size_class - 1) / steps_per_doubling);
  return below + below / steps_per_doubling * ((size_class - 1) % steps_per_doubling + 1);
}

constexpr std::size_t class_count = class_of(largest_bytes) + 1;

static_assert(class_of(4097) == 1 && bytes_of(1) == 5120);
static_assert(class_of(8192) == 4 && bytes_of(4) == 8192);
static_assert(class_of(8193) == 5 && bytes_of(5) == 10240);
static_assert(bytes_of(class_count - 1) == largest_bytes);

void count_more(MemoryCounter& counter, std::size_t amount) noexcept {
  counter.current += static_cast<std::int64_t>(amount);
  counter.allocated += static_cast<std::int64_t>(amount);
  counter.peak = std::max(counter.peak, counter.current);
}

void count_less(MemoryCounter& counter, std::size_t amount) noexcept {
  counter.current -= static_cast<std::int64_t>(amount);
  counter.freed += static_cast<std::int64_t>(amount);
}

constexpr std::array pinned_counters = {
    &PinnedMemoryStats::allocation,      &PinnedMemoryStats::active,       &PinnedMemoryStats::segment,
    &PinnedMemoryStats::allocated_bytes, &PinnedMemoryStats::active_bytes, &PinnedMemoryStats::reserved_bytes,
};

void count_taken(PinnedMemoryStats& stats, std::size_t bytes) noexcept {
  count_more(stats.allocation, 1);
  count_more(stats.active, 1);
  count_more(stats.allocated_bytes, bytes);
  count_more(stats.active_bytes, bytes);
}

}  // namespace

/// One request on its way through `grow`.
struct PinnedAllocator::Source {
  PinnedAllocator& allocator;
  GrowthLock& growth;
  std::size_t size_class;

  PinnedBlock* from_cache() {
    const std::lock_guard lock(allocator.mutex_);
    return allocator.take(size_class);
  }
  PinnedBlock* from_system() {
    std::list<PinnedBlock> fresh(1);
    void* address = allocator.backend_.allocate_pinned(bytes_of(size_class));
    if (address == nullptr) return nullptr;
    PinnedBlock& block = fresh.front();
    block.address = address;
    block.size_class = size_class;
    block.self = fresh.begin();
    const std::lock_guard lock(allocator.mutex_);
    allocator.blocks_.splice(allocator.blocks_.end(), fresh);
    count_more(allocator.stats_.segment, 1);
    count_more(allocator.stats_.reserved_bytes, bytes_of(size_class));
    count_taken(allocator.stats_, bytes_of(size_class));
    ++allocator.stats_.num_host_alloc;
    return &block;
  }
  bool may_wait() const { return true; }
  void count_retry() const {}
  void reap() {
    const std::lock_guard lock(allocator.mutex_);
    allocator.reap_locked();
  }
  void return_cached() { allocator.return_cached(growth); }
  void finish_pending() {
    growth.let_go([this] { allocator.finish_pending(); });
  }
};

PinnedAllocator::PinnedAllocator(Runtime& runtime)
    : PinnedAllocator(runtime.backend(), runtime.part<EventPool>()) {}

PinnedAllocator::PinnedAllocator(backend::Backend& backend, EventPool& events)
    : backend_(backend), is_watched_(backend.is_watched()), cached_(class_count), pending_(backend, events) {}

PinnedAllocator::~PinnedAllocator() {
  try {
    empty_cache();
  } catch (const std::exception&) {
    // The system is in trouble, or going away: so is its memory.
  }
}

void* PinnedAllocator::address(const PinnedBlock* block) noexcept {
  return block->address;
}

PinnedBlock* PinnedAllocator::allocate(std::size_t bytes) {
  PinnedBlock* const block = allocate_unwatched(bytes);
  if (is_watched_) backend_.memory_taken(block->address, bytes_of(block->size_class));
  return block;
}

PinnedBlock* PinnedAllocator::allocate_unwatched(std::size_t bytes) {
  if (bytes > largest_bytes) throw_out_of_memory(bytes);
  const std::size_t size_class = class_of(bytes);
  {
    const std::lock_guard lock(mutex_);
    if (PinnedBlock* block = take(size_class)) return block;
    // Only now, as asking for events costs more than a hit.
    if (!pending_.empty()) reap_locked();
    if (PinnedBlock* block = take(size_class)) return block;
  }
  GrowthLock growth(growth_);
  Source source{*this, growth, size_class};
  if (PinnedBlock* block = grow(source)) return block;
  throw_out_of_memory(bytes);
}

void* PinnedAllocator::allocate_uncached(std::size_t bytes) {
  GrowthLock growth(growth_);
  Source source{*this, growth, 0};
  return grow_uncached(source, [this, bytes] { return backend_.allocate_pinned(bytes); });
}

void PinnedAllocator::free(PinnedBlock* block, GraphPool keeper) noexcept {
  if (fork_mark_.is_in_child()) return;
  const std::lock_guard lock(mutex_);
  if (is_watched_) backend_.memory_given_back(block->address, bytes_of(block->size_class));
  count_less(stats_.allocation, 1);
  count_less(stats_.allocated_bytes, bytes_of(block->size_class));
  if (const auto graph = kept_.find(keeper); graph != kept_.end()) return graph->second.add(*block);
  if (block->streams.empty()) {
    give_back(*block);
  } else {
    pending_.add(*block);
  }
}

void PinnedAllocator::add_graph_pool(GraphPool graph_pool) {
  const std::lock_guard lock(mutex_);
  kept_.try_emplace(graph_pool);
}

void PinnedAllocator::close_graph_pool(GraphPool graph_pool) noexcept {
  if (fork_mark_.is_in_child()) return;
  const std::lock_guard lock(mutex_);
  const auto graph = kept_.find(graph_pool);
  if (graph == kept_.end()) return;
  graph->second.take_all([this](StreamUses& block) {
    if (block.streams.empty()) {
      give_back(static_cast<PinnedBlock&>(block));
    } else {
      pending_.add(block);
    }
  });
  kept_.erase(graph);
}

void PinnedAllocator::record_stream(PinnedBlock* block, backend::StreamRef stream) {
  if (fork_mark_.is_in_child()) return;
  const std::lock_guard lock(mutex_);
  block->add(stream);
}

void PinnedAllocator::empty_cache() {
  GrowthLock growth(growth_);
  Source source{*this, growth, 0};
  return_all(source);
}

void PinnedAllocator::finish_pending() {
  std::vector<backend::EventHandle> events;
  {
    const std::lock_guard lock(mutex_);
    reap_locked();
    events = pending_.open_events();
  }
  for (const backend::EventHandle event : events) backend_.synchronize_event(event);
  const std::lock_guard lock(mutex_);
  reap_locked();
}

PinnedMemoryStats PinnedAllocator::stats() {
  const std::lock_guard lock(mutex_);
  if (!pending_.empty()) reap_locked();
  return stats_;
}

void PinnedAllocator::reset_peak_stats() {
  const std::lock_guard lock(mutex_);
  if (!pending_.empty()) reap_locked();
  for (const auto counter : pinned_counters) (stats_.*counter).peak = (stats_.*counter).current;
}

void PinnedAllocator::reset_accumulated_stats() {
  const std::lock_guard lock(mutex_);
  if (!pending_.empty()) reap_locked();
  for (const auto counter : pinned_counters) {
    (stats_.*counter).allocated = 0;
    (stats_.*counter).freed = 0;
  }
  stats_.num_host_alloc = 0;
  stats_.num_host_free = 0;
}

std::size_t PinnedAllocator::bytes_active() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(stats_.active_bytes.current);
}

std::size_t PinnedAllocator::bytes_reserved() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(stats_.reserved_bytes.current);
}

PinnedBlock* PinnedAllocator::take(std::size_t size_class) noexcept {
  PinnedBlock* block = cached_[size_class];
  if (block == nullptr) return nullptr;
  cached_[size_class] = block->next_cached;
  count_taken(stats_, bytes_of(size_class));
  return block;
}

void PinnedAllocator::give_back(PinnedBlock& block) noexcept {
  count_less(stats_.active, 1);
  count_less(stats_.active_bytes, bytes_of(block.size_class));
  block.next_cached = cached_[block.size_class];
  cached_[block.size_class] = &block;
}

void PinnedAllocator::reap_locked() {
  pending_.reap([this](StreamUses& block) { give_back(static_cast<PinnedBlock&>(block)); });
}

void PinnedAllocator::return_cached(GrowthLock& growth) {
  std::list<PinnedBlock> returned;
  {
    const std::lock_guard lock(mutex_);
    for (PinnedBlock*& first : cached_) {
      for (; first != nullptr; first = first->next_cached) {
        count_less(stats_.segment, 1);
        count_less(stats_.reserved_bytes, bytes_of(first->size_class));
        ++stats_.num_host_free;
        returned.splice(returned.end(), blocks_, first->self);
      }
    }
  }
  growth.let_go_to_return([&] {
    for (const PinnedBlock& block : returned) backend_.free_pinned(block.address);
  });
  growth.await_returns();
}

void PinnedAllocator::throw_out_of_memory(std::size_t bytes) {
  OutOfMemoryError::Figures figures;
  {
    const std::lock_guard lock(mutex_);
    figures.reserved = static_cast<std::size_t>(stats_.reserved_bytes.current);
    figures.allocated = static_cast<std::size_t>(stats_.allocated_bytes.current);
  }
  figures.requested = bytes;
  throw OutOfMemoryError(
      fmt::format(
          "out of pinned host memory: requested {}, reserved by tutti {}, of which allocated {}. Free pinned "
          "tensors that are no longer needed, or raise the limit on locked memory.",
          format_bytes(bytes), format_bytes(figures.reserved), format_bytes(figures.allocated)),
      figures);
}

void PinnedAllocator::require_unused() {
  try {
    finish_pending();
  } catch (const Error&) {
    // Failures of work on devices that are about to be replaced.
  }
  if (const std::size_t active = bytes_active(); active != 0) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("virtual_devices::start: {} bytes of pinned memory are still allocated, expected none: "
                    "destroy all tensors first",
                    active));
  }
}

}  // namespace tutti
