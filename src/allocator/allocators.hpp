// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/blocks/segment_index.hpp"
#include "allocator/caching_allocator.hpp"
#include "allocator/registered_memory.hpp"
#include "device/open_captures.hpp"
#include "device/runtime_part.hpp"
#include "stream/late_releases.hpp"

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti {

class Runtime;

/// Frees device memory that nobody uses any more, but that counts as in use until this is checked.
class Reclaimer {
 public:
  Reclaimer() = default;
  Reclaimer(const Reclaimer&) = delete;
  Reclaimer& operator=(const Reclaimer&) = delete;
  /// Frees what it can, and returns true if that was anything. Holds no lock of an allocator.
  virtual bool reclaim() = 0;

 protected:
  ~Reclaimer() = default;
};

/// Lists the reclaimers of a runtime, which some of them may outlive. Thread-safe.
class Reclaimers {
 public:
  /// Adds a reclaimer, which `reclaim` calls as long as it exists.
  void add(std::weak_ptr<Reclaimer> reclaimer);
  /// Calls all reclaimers; returns true if any has freed something.
  bool reclaim();

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<Reclaimer>> reclaimers_;
};

/// Keeps memory that is freed while a graph is captured, until the graph is destroyed.
class GraphPoolKeeper {
 public:
  GraphPoolKeeper() = default;
  GraphPoolKeeper(const GraphPoolKeeper&) = delete;
  GraphPoolKeeper& operator=(const GraphPoolKeeper&) = delete;
  virtual void add_graph_pool(GraphPool keeper) = 0;
  /// Releases what was kept for a graph that is destroyed and whose launches are done.
  virtual void close_graph_pool(GraphPool keeper) noexcept = 0;

 protected:
  ~GraphPoolKeeper() = default;
};

/// The caching allocators of a runtime's devices. Thread-safe.
class Allocators final : public RuntimePart {
 public:
  static constexpr PartSlot slot = PartSlot::allocators;

  explicit Allocators(Runtime& runtime);
  ~Allocators() override;

  [[nodiscard]] CachingAllocator& of(int device) { return *by_device_[static_cast<std::size_t>(device)]; }
  [[nodiscard]] RegisteredMemory& registered() noexcept { return registered_; }
  /// Returns the memory around the address that others may open as one: a segment of the device's allocator,
  /// or a registered allocation there; an empty extent if it is in neither.
  [[nodiscard]] CachingAllocator::Extent memory_around(int device, const void* address);
  /// The segments of all devices' allocators.
  [[nodiscard]] SegmentIndex& segments() noexcept { return segments_; }
  /// Adds the private pool of a graph to all allocators and keepers.
  void add_graph_pool(GraphPool graph_pool);
  void close_graph_pool(GraphPool graph_pool, GraphWork work) noexcept;
  /// Adds a keeper, which is told of all pools, including those that exist already. It must outlive this
  /// object or remove itself.
  void add_keeper(GraphPoolKeeper& keeper);
  void remove_keeper(GraphPoolKeeper& keeper) noexcept;

  [[nodiscard]] const std::shared_ptr<Reclaimers>& reclaimers() const noexcept { return reclaimers_; }
  /// Asks late releases and all reclaimers to free the memory that they can. Returns true if any did.
  bool reclaim();

  void require_unused() override;

 private:
  /// Returns the keeper at `index`; nullptr behind the last one.
  [[nodiscard]] GraphPoolKeeper* keeper_at(std::size_t index) noexcept;

  LateReleases& late_releases_;
  SegmentIndex segments_;
  RegisteredMemory registered_;
  std::vector<std::unique_ptr<CachingAllocator>> by_device_;
  const std::shared_ptr<Reclaimers> reclaimers_ = std::make_shared<Reclaimers>();
  std::mutex mutex_;  ///< guards those below
  std::vector<GraphPool> graph_pools_;
  std::vector<GraphPoolKeeper*> keepers_;
};

}  // namespace tutti
