// SPDX-License-Identifier: Apache-2.0
#include "caching_allocator.hpp"

#include "format_bytes.hpp"
#include "host_waits.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>

#include <fmt/format.h>

namespace tutti {

namespace {

/// How long memory that others have open is waited for.
constexpr std::chrono::seconds patience{1};
/// The same where they seem to keep it: what is known of them may be some milliseconds old.
constexpr std::chrono::milliseconds short_patience{20};
constexpr std::chrono::microseconds asks_every{50};

}  // namespace

/// One request on its way through `grow`.
struct CachingAllocator::Source {
  CachingAllocator& allocator;
  GrowthLock& growth;
  std::size_t bytes;
  backend::StreamRef stream;
  GraphPool graph_pool = GraphPool::none;

  Block* from_cache() {
    const std::lock_guard lock(allocator.mutex_);
    return allocator.pool_.take(bytes, stream, graph_pool);
  }
  Block* from_system() {
    const std::size_t segment_bytes = BlockPool::segment_bytes(bytes);
    if (Block* block = from_held(2 * segment_bytes)) return block;
    void* address = allocator.backend_.allocate_device(allocator.device_, segment_bytes);
    if (address == nullptr) return nullptr;
    const std::lock_guard lock(allocator.mutex_);
    try {
      allocator.pool_.add_segment(static_cast<std::byte*>(address), segment_bytes, BlockPool::pool_of(bytes),
                                  stream, graph_pool);
    } catch (...) {
      allocator.backend_.free_device(allocator.device_, address);
      throw;
    }
    return allocator.pool_.take(bytes, stream, graph_pool);
  }
  /// The best fit of what waits to be freed, which no queued work uses: `most` bytes at most.
  Block* from_held(std::size_t most) {
    std::vector<Held>& held = allocator.held_;
    const MemoryPool pool = BlockPool::pool_of(bytes);
    auto best = held.end();
    for (auto one = held.begin(); one != held.end(); ++one) {
      if (one->pool != pool || one->memory.bytes < bytes || one->memory.bytes > most) continue;
      if (best == held.end() || one->memory.bytes < best->memory.bytes) best = one;
    }
    if (best == held.end()) return nullptr;
    const std::lock_guard lock(allocator.mutex_);
    allocator.pool_.add_segment(best->memory.address, best->memory.bytes, pool, stream, graph_pool);
    *best = held.back();
    held.pop_back();
    return allocator.pool_.take(bytes, stream, graph_pool);
  }
  bool may_wait() { return !allocator.backend_.is_capturing(stream); }
  void count_retry() {
    const std::lock_guard lock(allocator.mutex_);
    ++allocator.pool_.stats().num_alloc_retries;
  }
  void reap() {
    const std::lock_guard lock(allocator.mutex_);
    allocator.reap_locked();
  }
  void return_cached() { allocator.return_cached(growth); }
  void finish_pending() {
    growth.let_go([this] { allocator.finish_pending(); });
  }
};

/// The same for memory that the cache has nothing to do with, but to make room for it.
struct CachingAllocator::UncachedSource {
  Source& source;

  [[nodiscard]] static void* from_cache() noexcept { return nullptr; }
  void* from_system() {
    return source.allocator.backend_.allocate_device(source.allocator.device_, source.bytes);
  }
  bool may_wait() { return source.may_wait(); }
  void count_retry() { source.count_retry(); }
  void reap() { source.reap(); }
  void return_cached() { source.return_cached(); }
  void finish_pending() { source.finish_pending(); }
};

CachingAllocator::CachingAllocator(backend::Backend& backend, EventPool& events, int device)
    : backend_(backend), device_(device), pool_(device), pending_(backend, events) {}

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
  if (bytes > BlockPool::max_bytes) throw_out_of_memory(bytes, 0);
  {
    const std::lock_guard lock(mutex_);
    if (may_take_unasked(bytes)) {
      if (Block* block = pool_.take(bytes, stream, graph_pool)) return block;
    }
    // Asking for events is not allowed while this thread captures.
    if (!pending_.empty() && !backend_.is_capturing(stream)) reap_locked();
    if (Block* block = pool_.take(bytes, stream, graph_pool)) return block;
  }
  GrowthLock growth(growth_);
  Source source{*this, growth, bytes, stream, graph_pool};
  if (Block* block = grow(source)) return block;
  if (Block* block = source.from_held(BlockPool::max_bytes)) return block;
  throw_out_of_memory(bytes, held_bytes());
}

void* CachingAllocator::allocate_uncached(std::size_t bytes) {
  GrowthLock growth(growth_);
  Source source{*this, growth, bytes, backend_.default_stream(device_)};
  UncachedSource uncached{source};
  return grow(uncached);
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
  pool_.release(*block);
  if (keeper != GraphPool::none && block->segment->graph_pool != keeper) {
    if (const auto graph = graph_pools_.find(keeper); graph != graph_pools_.end())
      return graph->second.kept.add(*block);
  }
  if (block->streams.empty()) {
    pool_.give_back(*block);
  } else {
    pending_.add(*block);
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
  const bool is_used = pool_.has_segments_of(graph_pool) || !graph->second.kept.empty();
  if (is_used && work == GraphWork::unknown) {
    graph->second.is_gone = true;
  } else {
    dissolve_locked(graph);
  }
}

void CachingAllocator::dissolve_locked(GraphPools::iterator graph) noexcept {
  pool_.dissolve(graph->first);
  graph->second.kept.take_all([this](StreamUses& block) {
    if (block.streams.empty()) {
      pool_.give_back(static_cast<Block&>(block));
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
  return pool_.find(address);
}

std::optional<CachingAllocator::Extent> CachingAllocator::block_around(const void* address) {
  const std::lock_guard lock(mutex_);
  if (pool_.segment_around(address) == nullptr) return std::nullopt;
  const Block* const block = pool_.find(address);
  return block == nullptr ? Extent{} : Extent{block->address, block->bytes};
}

CachingAllocator::Extent CachingAllocator::segment_of(const void* address) {
  const std::lock_guard lock(mutex_);
  const Block* const block = pool_.find(address);
  return block == nullptr ? Extent{} : Extent{block->segment->address, block->segment->bytes};
}

void CachingAllocator::add_observer(SegmentObserver& observer) {
  const GrowthLock lock(growth_);
  observers_.push_back(&observer);
}

void CachingAllocator::remove_observer(SegmentObserver& observer) noexcept {
  const GrowthLock lock(growth_);
  std::erase(observers_, &observer);
}

void CachingAllocator::free_held(GrowthLock& growth) noexcept {
  // All are told of all before anybody waits.
  for (const Held& held : held_) {
    for (SegmentObserver* const observer : observers_) observer->will_free(held.memory.address);
  }
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    const bool is_one_passing = free_let_go(growth);
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (held_.empty() || waited > (is_one_passing ? patience : short_patience)) return;
    // Others may close it only after a call of this process that another thread needs memory for.
    growth.let_go([this] {
      backend_.wait_elsewhere();
      std::this_thread::sleep_for(asks_every);
    });
  }
}

bool CachingAllocator::free_let_go(GrowthLock& growth) noexcept {
  bool is_one_passing = false;
  for (std::size_t i = 0; i < held_.size();) {
    const Extent segment = held_[i].memory;
    auto hold = SegmentObserver::Hold::none;
    for (SegmentObserver* const observer : observers_)
      hold = std::max(hold, observer->hold_on(segment.address));
    is_one_passing |= hold == SegmentObserver::Hold::passing;
    if (hold != SegmentObserver::Hold::none) {
      ++i;
      continue;
    }
    held_[i] = held_.back();
    held_.pop_back();
    growth.let_go_to_return([&] { backend_.free_device(device_, segment.address); });
  }
  return is_one_passing;
}

void CachingAllocator::free_when_let_go(Extent memory) {
  const GrowthLock lock(growth_);
  held_.push_back({.memory = memory, .pool = std::nullopt});
}

void CachingAllocator::free_let_go() noexcept {
  GrowthLock growth(growth_);
  free_let_go(growth);
}

void CachingAllocator::empty_cache() {
  GrowthLock growth(growth_);
  Source source{*this, growth, 0, {}};
  return_all(source);
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
  return pool_.stats();
}

std::vector<MemorySegment> CachingAllocator::snapshot() {
  const std::lock_guard lock(mutex_);
  reap_locked();
  return pool_.snapshot();
}

void CachingAllocator::reset_peak_stats() {
  const std::lock_guard lock(mutex_);
  reap_locked();
  pool_.reset_peak_stats();
}

std::size_t CachingAllocator::bytes_active() {
  const std::lock_guard lock(mutex_);
  reap_locked();
  return static_cast<std::size_t>(pool_.stats().active_bytes.all.current);
}

void CachingAllocator::reap_locked() {
  if (pending_.empty()) return;
  waits_at_reap_ = HostWaits::counted();  // before the events are asked: what comes later is asked for again
  pending_.reap([this](StreamUses& block) { pool_.give_back(static_cast<Block&>(block)); });
}

void CachingAllocator::return_cached(GrowthLock& growth) {
  // A cached block may still be in use by work queued on its stream, which freeing does not wait for. The
  // stream itself may be one of the user's and gone by now; its device is not. Meanwhile the cache serves
  // others: what they free after this moment is not waited for here, and stays.
  std::vector<int> devices;
  BlockPool::Moment moment{};
  std::vector<GraphPool> gone;
  {
    const std::lock_guard lock(mutex_);
    moment = pool_.now();
    devices = pool_.devices_of_cached_segments();
    for (const auto& [graph_pool, graph] : graph_pools_) {
      if (graph.is_gone) gone.push_back(graph_pool);
    }
  }
  if (!gone.empty()) {  // their last launches may be on any of them
    devices.resize(static_cast<std::size_t>(backend_.device_count()));
    std::iota(devices.begin(), devices.end(), 0);
  }
  std::exception_ptr failure;
  growth.let_go([&] {
    for (const int device : devices) {
      try {
        backend_.synchronize_device(device);
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
    }
  });
  {
    const std::lock_guard lock(mutex_);
    for (const GraphPool graph_pool : gone) {
      const auto graph = graph_pools_.find(graph_pool);  // unless another thread has been faster
      if (!failure && graph != graph_pools_.end()) dissolve_locked(graph);
    }
    // Devices that could not be waited for, as during a capture, may still have work that uses it.
    const auto may_serve = [&failure](const Segment& segment) {
      return failure ? std::nullopt : std::optional(segment.pool);
    };
    held_.reserve(held_.size() + pool_.segment_count());  // nothing may fail between here and there
    for (const Segment& segment : pool_.remove_segments_cached_before(moment))
      held_.push_back({.memory = {segment.address, segment.bytes}, .pool = may_serve(segment)});
  }
  free_held(growth);
  growth.await_returns();
  if (failure) std::rethrow_exception(failure);
}

std::size_t CachingAllocator::held_bytes() const noexcept {
  return std::transform_reduce(held_.begin(), held_.end(), std::size_t{0}, std::plus(),
                               [](const Held& held) { return held.memory.bytes; });
}

void CachingAllocator::throw_out_of_memory(std::size_t bytes, std::size_t held) {
  OutOfMemoryError::Figures figures;
  {
    const std::lock_guard lock(mutex_);
    ++pool_.stats().num_ooms;
    figures.reserved = static_cast<std::size_t>(pool_.stats().reserved_bytes.all.current);
    figures.allocated = static_cast<std::size_t>(pool_.stats().allocated_bytes.all.current);
  }
  const MemoryInfo memory = backend_.memory_info(device_);
  figures.requested = bytes;
  figures.free = memory.free;
  figures.total = memory.total;
  const std::string_view hint =
      backend_.kind() == BackendKind::host
          ? " A virtual device has as much as TUTTI_VIRTUAL_MEMORY says, or the machine that was started."
          : "";
  const std::string waiting =
      held == 0 ? "" : fmt::format(", and {} that other ranks have not closed yet", format_bytes(held));
  throw OutOfMemoryError(
      fmt::format("out of memory on device {}: requested {}, free {} of {}, reserved by tutti {}, of which "
                  "allocated {}{}. Free tensors that are no longer needed, or use smaller ones. If much more "
                  "is reserved than allocated, the cache is fragmented or belongs to other streams: allocate "
                  "the largest tensors first, and on few streams.{}",
                  device_, format_bytes(bytes), format_bytes(memory.free), format_bytes(memory.total),
                  format_bytes(figures.reserved), format_bytes(figures.allocated), waiting, hint),
      figures);
}

}  // namespace tutti
