// SPDX-License-Identifier: Apache-2.0
#include "allocator/blocks/shareable_memory.hpp"
#include "allocator/caching_allocator.hpp"
#include "allocator/uncached_growth.hpp"
#include "base/format_bytes.hpp"
#include "device/external_streams.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>

/// Gets memory for the caching allocator from its device, and returns it.
namespace tutti {

namespace {

/// The longest wait for other processes to close memory.
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
    if (may_wait()) allocator.collect_garbage(growth, segment_bytes);
    if (!is_shareable(graph_pool) && allocator.can_expand()) {
      if (const std::optional<Block*> block = from_range()) return *block;
    }
    if (!allocator.may_reserve(segment_bytes)) return nullptr;
    void* address = allocator.backend_.allocate_device(allocator.device_, segment_bytes);
    if (address == nullptr) return nullptr;
    const std::lock_guard lock(allocator.mutex_);
    try {
      allocator.pool_->add_segment(static_cast<std::byte*>(address), segment_bytes, BlockPool::pool_of(bytes),
                                   stream, graph_pool);
    } catch (...) {
      allocator.backend_.free_device(allocator.device_, address);
      throw;
    }
    return allocator.pool_.take(bytes, stream, graph_pool);
  }
  /// Serves the request from memory that is mapped to a range; nullptr if the device has none for it, nothing
  /// if there are no addresses.
  std::optional<Block*> from_range() {
    for (;;) {
      std::optional<BlockPool::Gap> gap;
      {
        const std::lock_guard lock(allocator.mutex_);
        gap = allocator.pool_->gap_for(bytes, stream, graph_pool);
      }
      if (!gap) {
        if (!allocator.add_range(bytes, stream, graph_pool)) return std::nullopt;
        continue;
      }
      const std::size_t page = BlockPool::page_bytes(BlockPool::pool_of(bytes));
      if (!allocator.may_reserve(gap->bytes) || !allocator.map(*gap, page)) return nullptr;
      const std::lock_guard lock(allocator.mutex_);
      try {
        allocator.pool_->fill(*gap);
      } catch (...) {
        allocator.backend_.unmap_pages(allocator.device_, gap->address, gap->bytes);
        throw;
      }
      if (Block* block = allocator.pool_.take(bytes, stream, graph_pool)) return block;
      // Meanwhile another thread has taken what was cached next to the gap.
    }
  }
  /// The best fit of what waits to be freed, which no queued work uses: `most` bytes at most, and none that
  /// would have to be cut and may not be.
  Block* from_held(std::size_t most) {
    const std::lock_guard lock(allocator.mutex_);
    std::vector<Held>& held = allocator.held_;
    const MemoryPool pool = BlockPool::pool_of(bytes);
    auto best = held.end();
    for (auto one = held.begin(); one != held.end(); ++one) {
      if (one->pool != pool || one->memory.bytes > most) continue;
      if (!allocator.pool_->may_serve_request(one->memory.bytes, bytes)) continue;
      if (best == held.end() || one->memory.bytes < best->memory.bytes) best = one;
    }
    if (best == held.end()) return nullptr;
    allocator.pool_->add_segment(best->memory.address, best->memory.bytes, pool, stream, graph_pool);
    *best = held.back();
    held.pop_back();
    return allocator.pool_.take(bytes, stream, graph_pool);
  }
  bool may_wait() { return !allocator.backend_.is_capturing(stream); }
  void count_retry() {
    const std::lock_guard lock(allocator.mutex_);
    ++allocator.pool_->counts().num_alloc_retries;
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

Block* CachingAllocator::allocate_grown(std::size_t bytes, backend::StreamRef stream, GraphPool graph_pool) {
  GrowthLock growth(growth_);
  Source source{*this, growth, bytes, stream, graph_pool};
  if (Block* block = grow(source)) return block;
  if (Block* block = source.from_held(BlockPool::max_bytes)) return block;
  throw_out_of_memory(bytes, held_bytes());
}

void* CachingAllocator::allocate_uncached(std::size_t bytes) {
  GrowthLock growth(growth_);
  Source source{*this, growth, bytes, backend_.default_stream(device_)};
  return grow_uncached(source, [this, bytes] { return backend_.allocate_device(device_, bytes); });
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

void CachingAllocator::await_closes(GrowthLock& growth, const std::vector<Block*>& holes) noexcept {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    auto hold = SegmentObserver::Hold::none;
    for (const Block* const hole : holes) {
      for (SegmentObserver* const observer : observers_)
        hold = std::max(hold, observer->will_unmap({hole->address, hole->bytes}));
    }
    const auto waited = std::chrono::steady_clock::now() - begin;
    const auto longest = hold == SegmentObserver::Hold::passing ? patience : short_patience;
    if (hold == SegmentObserver::Hold::none || waited > longest) return;
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

void CachingAllocator::empty_cache() {
  GrowthLock growth(growth_);
  Source source{*this, growth, 0, {}};
  return_all(source);
}

bool CachingAllocator::may_reserve(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (most_bytes_ == SIZE_MAX) return true;
  const std::size_t reserved = pool_->counts().current(Quantity::reserved_bytes) + held_bytes();
  return reserved < most_bytes_ && bytes <= most_bytes_ - reserved;
}

void CachingAllocator::collect_garbage(GrowthLock& growth, std::size_t bytes) {
  if (settings_.garbage_collection_threshold == 0) return;
  std::size_t most = backend_.properties(device_).total_memory;
  std::size_t wanted = bytes;
  {
    const std::lock_guard lock(mutex_);
    most = std::min(most, most_bytes_);
    wanted += pool_->counts().current(Quantity::reserved_bytes);
    static_cast<void>(pool_->now());  // what is unused is older at every request to the device
  }
  const auto threshold =
      static_cast<std::size_t>(settings_.garbage_collection_threshold * static_cast<double>(most));
  if (wanted <= threshold) return;
  const BlockingCall blocks("an allocation that collects what is cached");
  return_cached(growth, wanted - threshold);
}

void CachingAllocator::return_cached(GrowthLock& growth, std::size_t bytes) {
  // A cached block may still be in use by work queued on its stream, which freeing does not wait for. The
  // stream itself may be one of the user's and gone by now; its device is not. Meanwhile the cache serves
  // others: what they free after this moment is not waited for here, and stays.
  std::vector<int> devices;
  BlockPool::Moment moment{};
  std::vector<GraphPool> gone;
  {
    const std::lock_guard lock(mutex_);
    moment = pool_->now();
    devices = pool_->devices_of_cached_segments();
    for (const auto& [graph_pool, graph] : graph_pools_) {
      if (graph.is_gone) gone.push_back(graph_pool);
    }
  }
  if (!gone.empty()) {  // their last launches may be on any of them
    devices.resize(static_cast<std::size_t>(backend_.device_count()));
    std::iota(devices.begin(), devices.end(), 0);
  }
  // To wait for a device of which a stream is being captured would end that capture: what is cached there
  // stays for now.
  std::vector<int> captured;
  std::ranges::copy_if(devices, std::back_inserter(captured),
                       [this](int device) { return has_capture_on(backend_, device); });
  std::exception_ptr failure;
  growth.let_go([&] {
    for (const int device : devices) {
      if (std::ranges::find(captured, device) != captured.end()) continue;
      try {
        backend_.synchronize_device(device);
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
    }
  });
  std::vector<Block*> holes;
  {
    const std::lock_guard lock(mutex_);
    for (const GraphPool graph_pool : gone) {
      const auto graph = graph_pools_.find(graph_pool);  // unless another thread has been faster
      if (!failure && captured.empty() && graph != graph_pools_.end()) dissolve_locked(graph);
    }
    // Devices that could not be waited for, as during a capture, may still have work that uses it.
    const auto may_serve = [&failure](const Segment& segment) {
      return failure ? std::nullopt : std::optional(segment.pool);
    };
    held_.reserve(held_.size() + pool_->segment_count());  // nothing may fail between here and there
    std::size_t removed_bytes = 0;
    for (const Segment& segment : pool_->remove_segments_cached_before(moment, bytes, captured)) {
      held_.push_back({.memory = {segment.address, segment.bytes}, .pool = may_serve(segment)});
      removed_bytes += segment.bytes;
    }
    // Pages that work may still use stay.
    if (!failure && removed_bytes < bytes)
      holes = pool_->empty_pages_cached_before(moment, bytes - removed_bytes, captured);
  }
  unmap(growth, holes);
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
  std::size_t most = SIZE_MAX;
  {
    const std::lock_guard lock(mutex_);
    most = most_bytes_;
    ++pool_->counts().num_ooms;
    figures.reserved = pool_->counts().current(Quantity::reserved_bytes);
    figures.allocated = pool_->counts().current(Quantity::allocated_bytes);
  }
  const MemoryInfo memory = backend_.memory_info(device_);
  figures.requested = bytes;
  figures.free = memory.free;
  figures.total = memory.total;
  const std::string_view hint =
      backend_.kind() == BackendKind::host
          ? " A virtual device has as much as TUTTI_VIRTUAL_MEMORY says, or the machine that was started."
          : "";
  std::string waiting =
      held == 0 ? "" : fmt::format(", and {} that other ranks have not closed yet", format_bytes(held));
  if (most != SIZE_MAX)
    waiting += fmt::format("; set_per_process_memory_fraction allows {}", format_bytes(most));
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
