// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/allocators.hpp"
#include "allocator/graph_pools/graph_captures.hpp"
#include "backend/backend.hpp"
#include "base/cache_line.hpp"
#include "device/open_captures.hpp"
#include "device/runtime_part.hpp"
#include "tutti/pluggable_allocator.hpp"
#include "tutti/storage.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace tutti {

class Runtime;

/// The functions of a `CUDAPluggableAllocator`.
class PluggedFunctions {
 public:
  PluggedFunctions(CUDAPluggableAllocator::Alloc alloc, CUDAPluggableAllocator::Free free);

  CUDAPluggableAllocator::Alloc alloc;
  CUDAPluggableAllocator::Free free;
};

/// A runtime's pluggable allocator, if it has got one before memory for a tensor was asked for. Thread-safe.
/// Alone on its cache lines, which nobody writes to but the first request.
class alignas(cache_line_bytes) PluggedAllocator final : public RuntimePart, public GraphPoolKeeper {
 public:
  static constexpr PartSlot slot = PartSlot::plugged_allocator;

  explicit PluggedAllocator(Runtime& runtime);
  ~PluggedAllocator() override;

  /// Returns whether requests go to the caching allocators; decides so for good, if nothing has been decided.
  [[nodiscard]] bool leaves_to_native() noexcept {
    const Choice choice = choice_.load(std::memory_order_acquire);
    return choice == Choice::native || (choice == Choice::open && decide_for_native());
  }
  [[nodiscard]] bool is_used() const noexcept {
    return choice_.load(std::memory_order_acquire) == Choice::plugged;
  }
  /// Chooses the program's functions. Throws if the choice has been made already.
  void use(std::shared_ptr<const PluggedFunctions> functions);

  /// Allocates as `DeviceStorage::allocate` does.
  [[nodiscard]] detail::IntrusivePtr<Storage> allocate(int device, std::size_t bytes,
                                                       backend::StreamRef stream);
  [[nodiscard]] void* allocate_raw(int device, std::size_t bytes, backend::StreamRef stream);
  /// Keeps memory that is freed while the graph of `keeper` is captured, until that pool is closed.
  void add_graph_pool(GraphPool keeper) override;
  void close_graph_pool(GraphPool keeper) noexcept override;
  /// Frees `address` if `allocate_raw` returned it; returns true if it did.
  [[nodiscard]] bool free_raw(void* address);
  /// Maps memory by pieces (`device_malloc_in_pieces`); nullptr if the device has no more.
  [[nodiscard]] void* map_range(int device, std::size_t bytes, std::size_t piece_bytes);
  /// Frees `address` if `map_range` returned it; returns true if it did.
  [[nodiscard]] bool unmap_range(int device, void* address);
  /// Returns how many bytes the functions have allocated and not yet freed.
  [[nodiscard]] std::size_t bytes_in_use() const noexcept { return bytes_in_use_.load(); }
  void require_unused() override;

  // The parts that an allocation asks besides this one, which it so finds by one load.
  [[nodiscard]] Allocators& allocators() const noexcept { return allocators_; }
  [[nodiscard]] LateReleases& late_releases() const noexcept { return late_releases_; }
  [[nodiscard]] GraphCaptures& captures() const noexcept { return captures_; }

 private:
  enum class Choice : std::uint8_t { open, native, plugged };
  class PluggedStorage;
  /// Memory whose tensors are gone, and that the functions have still to free.
  class Freed;
  using OneFreed = std::list<Freed>;

  [[nodiscard]] bool decide_for_native() noexcept;
  [[nodiscard]] void* call_alloc(int device, std::size_t bytes, backend::StreamRef stream);
  void call_free(void* address, std::size_t bytes, int device, backend::StreamRef stream) noexcept;
  /// Allocates memory by the functions; it is freed when the result is destroyed.
  [[nodiscard]] OneFreed taken(int device, std::size_t bytes, backend::StreamRef stream, void*& address);
  /// Frees the memory at once or, if a graph that is being captured may use it, when that graph is gone.
  void let_go(OneFreed&& freed) noexcept;
  /// Keeps the memory for a graph that may use it; returns true if it is kept.
  [[nodiscard]] bool is_kept(OneFreed& freed) noexcept;
  /// Delays the free if streams that use the memory are being captured; returns true if it is delayed.
  [[nodiscard]] bool is_delayed(OneFreed& freed) noexcept;

  Runtime& runtime_;
  Allocators& allocators_;
  LateReleases& late_releases_;
  GraphCaptures& captures_;
  std::atomic<Choice> choice_{Choice::open};
  std::atomic<std::size_t> bytes_in_use_{0};
  std::shared_ptr<const PluggedFunctions> functions_;  ///< of what is plugged in
  std::mutex mutex_;                                   ///< guards the next, and deciding
  std::unordered_map<void*, OneFreed> raw_;
  std::unordered_map<void*, std::size_t> ranges_;  ///< bytes of what `map_range` has mapped
  std::map<GraphPool, OneFreed> kept_;
};

}  // namespace tutti
