// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/blocks/pending_frees.hpp"
#include "allocator/growth.hpp"
#include "backend/backend.hpp"
#include "base/fork_mark.hpp"
#include "device/open_captures.hpp"
#include "device/runtime_part.hpp"
#include "stream/event_pool.hpp"
#include "tutti/memory.hpp"

#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <vector>

namespace tutti {

class Runtime;

/// One piece of pinned memory, in use or cached. Opaque outside the allocator.
struct PinnedBlock : StreamUses {
  void* address = nullptr;
  std::size_t size_class = 0;
  PinnedBlock* next_cached = nullptr;
  std::list<PinnedBlock>::iterator self;
};

/// Caching allocator for pinned host memory.
///
/// A block belongs to no stream: it returns once events recorded at free time on every stream named with
/// `record_stream` have completed. Requests are rounded up to size classes, four per power of two from 4 KiB
/// on, so that at most a fifth of a block above 16 KiB is unused; a block serves its class only and is never
/// split. Thread-safe.
class PinnedAllocator final : public RuntimePart {
 public:
  static constexpr PartSlot slot = PartSlot::pinned_allocator;

  explicit PinnedAllocator(Runtime& runtime);
  PinnedAllocator(backend::Backend& backend, EventPool& events);
  ~PinnedAllocator() override;

  /// Returns at least `bytes` bytes. Tries as hard as `CachingAllocator::allocate` before it throws
  /// OutOfMemoryError, whose `free` and `total` are 0: nobody knows how much memory the system can pin.
  [[nodiscard]] PinnedBlock* allocate(std::size_t bytes);
  /// Returns memory that belongs to no tensor and is not cached; the caller returns it to the system. Makes
  /// the same attempts as `allocate`; returns nullptr if nothing helps.
  [[nodiscard]] void* allocate_uncached(std::size_t bytes);
  /// Frees a block. If there is a `keeper`, the block is kept until that pool is closed, because the graph
  /// under capture may use it.
  void free(PinnedBlock* block, GraphPool keeper = GraphPool::none) noexcept;
  /// Adds a graph pool; called before the first free that names it.
  void add_graph_pool(GraphPool graph_pool);
  /// Closes the pool of a graph that is destroyed and whose work is done.
  void close_graph_pool(GraphPool graph_pool) noexcept;
  void record_stream(PinnedBlock* block, backend::StreamRef stream);
  [[nodiscard]] static void* address(const PinnedBlock* block) noexcept;

  /// Returns cached blocks to the system.
  void empty_cache();
  /// Waits for the events that freed blocks wait for, and returns those blocks to the cache.
  void finish_pending();
  [[nodiscard]] PinnedMemoryStats stats();
  void reset_peak_stats();
  void reset_accumulated_stats();
  /// Returns the bytes in blocks that are in use or wait for events.
  [[nodiscard]] std::size_t bytes_active() const;
  /// Returns the bytes in all blocks, including cached ones.
  [[nodiscard]] std::size_t bytes_reserved() const;
  void require_unused() override;

 private:
  struct Source;

  /// Works as `allocate`, without the stream sanitizer.
  PinnedBlock* allocate_unwatched(std::size_t bytes);
  PinnedBlock* take(std::size_t size_class) noexcept;
  void give_back(PinnedBlock& block) noexcept;
  void reap_locked();
  void return_cached(GrowthLock& growth);
  [[noreturn]] void throw_out_of_memory(std::size_t bytes);

  backend::Backend& backend_;
  const bool is_watched_;
  const ForkMark fork_mark_;
  Growth growth_;  ///< its turn is taken before `mutex_`
  /// Guards everything below. It is never held while waiting, because the work that is waited for may have to
  /// free a block.
  mutable std::mutex mutex_;
  std::list<PinnedBlock> blocks_;
  std::vector<PinnedBlock*> cached_;  ///< by size class, the first of a list
  PendingFrees pending_;
  std::map<GraphPool, KeptFrees> kept_;
  PinnedMemoryStats stats_;
};

}  // namespace tutti
