// SPDX-License-Identifier: Apache-2.0
#include "allocator/caching_allocator.hpp"

#include "allocator/blocks/shareable_memory.hpp"
#include "device/host_waits.hpp"

#include <exception>
#include <mutex>
#include <vector>

namespace tutti {

CachingAllocator::CachingAllocator(backend::Backend& backend, EventPool& events, int device,
                                   SegmentIndex* index, const AllocatorSettings& settings)
    : backend_(backend),
      device_(device),
      is_watched_(backend.is_watched()),
      settings_(settings),
      pool_(device, index, settings.max_split_bytes),
      pending_(backend, events) {}

CachingAllocator::~CachingAllocator() {
  try {
    empty_cache();
  } catch (const std::exception&) {
    // The device is in trouble, or going away: so is its memory.
  }
}

void* CachingAllocator::address(const Block* block) noexcept {
  return block->address;
}

Block* CachingAllocator::allocate(std::size_t bytes, backend::StreamRef stream, GraphPool graph_pool) {
  Block* const block = take(bytes, stream, graph_pool);
  if (is_watched_) [[unlikely]]
    backend_.memory_taken(block->address, block->bytes);
  return block;
}

Block* CachingAllocator::take(std::size_t bytes, backend::StreamRef stream, GraphPool graph_pool) {
  if (bytes > BlockPool::max_bytes) throw_out_of_memory(bytes, 0);
  if (!settings_.has_expandable_segments) graph_pool = unmarked(graph_pool);
  {
    const std::lock_guard lock(mutex_);
    if (may_take_unasked(bytes)) {
      if (Block* block = pool_.take(bytes, stream, graph_pool)) return block;
    }
    // Asking for events is not allowed while this thread captures.
    if (!pending_.empty() && !backend_.is_capturing(stream)) reap_locked();
    if (Block* block = pool_.take(bytes, stream, graph_pool)) return block;
  }
  return allocate_grown(bytes, stream, graph_pool);
}

bool CachingAllocator::may_take_unasked(std::size_t bytes) noexcept {
  if (pending_.empty()) return true;
  constexpr std::size_t requests_per_reap = 64;
  return BlockPool::pool_of(bytes) == MemoryPool::small_pool && waits_at_reap_ == HostWaits::counted() &&
         ++small_requests_ % requests_per_reap != 0;
}

void CachingAllocator::free(Block* block, GraphPool keeper) noexcept {
  if (fork_mark_.is_in_child()) return;
  const std::lock_guard lock(mutex_);
  free_locked(*block, keeper);
}

bool CachingAllocator::free_raw(Segment& segment, const void* address, GraphPool keeper) noexcept {
  if (fork_mark_.is_in_child()) return true;
  const std::lock_guard lock(mutex_);
  Block* const block = BlockPool::find_start(segment, address);
  if (block == nullptr || !block->is_raw) return false;
  free_locked(*block, keeper);
  return true;
}

void CachingAllocator::free_locked(Block& block, GraphPool keeper) noexcept {
  if (is_watched_) [[unlikely]]
    backend_.memory_given_back(block.address, block.bytes);
  if (keeper != GraphPool::none && unmarked(block.segment->graph_pool) != keeper) [[unlikely]] {
    if (const auto graph = graph_pools_.find(keeper); graph != graph_pools_.end()) {
      pool_->release(block);
      return graph->second.kept.add(block);
    }
  }
  if (block.streams.empty()) [[likely]] {
    pool_.free(block);
  } else {
    pool_->release(block);
    pending_.add(block);
  }
}

void CachingAllocator::add_graph_pool(GraphPool graph_pool) {
  const std::lock_guard lock(mutex_);
  graph_pools_.try_emplace(graph_pool);
}

void CachingAllocator::close_graph_pool(GraphPool graph_pool, GraphWork work) noexcept {
  if (fork_mark_.is_in_child()) return;
  const std::lock_guard lock(mutex_);
  const auto graph = graph_pools_.find(graph_pool);
  if (graph == graph_pools_.end()) return;
  const bool is_used = pool_->has_segments_of(graph_pool) || !graph->second.kept.empty();
  if (is_used && work == GraphWork::unknown) {
    graph->second.is_gone = true;
  } else {
    dissolve_locked(graph);
  }
}

void CachingAllocator::dissolve_locked(GraphPools::iterator graph) noexcept {
  pool_->dissolve(graph->first);
  graph->second.kept.take_all([this](StreamUses& block) {
    if (block.streams.empty()) {
      pool_->give_back(static_cast<Block&>(block));
    } else {
      pending_.add(block);
    }
  });
  graph_pools_.erase(graph);
}

void CachingAllocator::record_stream(Block* block, backend::StreamRef stream) {
  if (stream == block->segment->stream) return;  // its own order keeps that one safe
  if (fork_mark_.is_in_child()) return;
  const std::lock_guard lock(mutex_);
  block->add(stream);
}

Block* CachingAllocator::find(const void* address) {
  const std::lock_guard lock(mutex_);
  return pool_->find(address);
}

std::optional<CachingAllocator::Extent> CachingAllocator::block_around(const void* address) {
  const std::lock_guard lock(mutex_);
  if (pool_->segment_around(address) == nullptr) return std::nullopt;
  const Block* const block = pool_->find(address);
  return block == nullptr ? Extent{} : Extent{block->address, block->bytes};
}

CachingAllocator::Extent CachingAllocator::segment_of(const void* address) {
  const std::lock_guard lock(mutex_);
  const Block* const block = pool_->find(address);
  if (block == nullptr) return {};
  const Segment& segment = *block->segment;
  if (segment.is_expandable) {
    return {.address = block->address,
            .bytes = block->bytes,
            .origin = backend::MemoryOrigin::piece,
            .is_block = true,
            .is_of_graphs = segment.graph_pool != GraphPool::none};
  }
  return {.address = segment.address, .bytes = segment.bytes};
}

void CachingAllocator::add_observer(SegmentObserver& observer) {
  const GrowthLock lock(growth_);
  observers_.push_back(&observer);
}

void CachingAllocator::remove_observer(SegmentObserver& observer) noexcept {
  const GrowthLock lock(growth_);
  std::erase(observers_, &observer);
}

void CachingAllocator::free_when_let_go(Extent memory) {
  const GrowthLock lock(growth_);
  held_.push_back({.memory = memory, .pool = std::nullopt});
}

void CachingAllocator::free_let_go() noexcept {
  GrowthLock growth(growth_);
  free_let_go(growth);
}

void CachingAllocator::finish_pending() {
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

MemoryStats CachingAllocator::stats() {
  const std::lock_guard lock(mutex_);
  reap_locked();
  return pool_->stats();
}

std::vector<MemorySegment> CachingAllocator::snapshot() {
  const std::lock_guard lock(mutex_);
  reap_locked();
  return pool_->snapshot();
}

CachingAllocator::Books CachingAllocator::books() {
  const std::lock_guard lock(mutex_);
  reap_locked();
  return {pool_->stats(), pool_->snapshot()};
}

void CachingAllocator::reset_peak_stats() {
  const std::lock_guard lock(mutex_);
  reap_locked();
  pool_->counts().reset_peaks();
}

void CachingAllocator::reset_accumulated_stats() {
  const std::lock_guard lock(mutex_);
  reap_locked();
  pool_->counts().reset_accumulated();
}

std::size_t CachingAllocator::bytes_active() {
  const std::lock_guard lock(mutex_);
  reap_locked();
  return pool_->counts().current(Quantity::active_bytes);
}

void CachingAllocator::reap_locked() {
  if (pending_.empty()) return;
  waits_at_reap_ = HostWaits::counted();  // before the events are asked: what comes later is asked for again
  pending_.reap([this](StreamUses& block) { pool_->give_back(static_cast<Block&>(block)); });
}

void CachingAllocator::set_memory_fraction(double fraction) {
  const std::size_t total = backend_.memory_info(device_).total;
  const std::lock_guard lock(mutex_);
  fraction_ = fraction;
  most_bytes_ = fraction >= 1 ? SIZE_MAX : static_cast<std::size_t>(fraction * static_cast<double>(total));
}

double CachingAllocator::memory_fraction() {
  const std::lock_guard lock(mutex_);
  return fraction_;
}

}  // namespace tutti
