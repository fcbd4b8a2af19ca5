// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/fork_mark.hpp"
#include "device/open_captures.hpp"
#include "tutti/graph_pool.hpp"
#include "tutti/stream.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace tutti {

class Runtime;

/// The party that launches a graph.
enum class GraphLaunches : std::uint8_t {
  of_library,  ///< `Graph`, which lets go of its resources only when its launches are done
  of_others,   ///< who captured it: nobody knows when
};

/// A private pool of every allocator, for memory that is first used in captures. When it is destroyed, its
/// memory joins the ordinary caches; blocks in use stay in use. Thread-safe.
class PrivatePool {
 public:
  PrivatePool(Runtime& runtime, GraphLaunches launches);
  PrivatePool(const PrivatePool&) = delete;
  PrivatePool& operator=(const PrivatePool&) = delete;
  ~PrivatePool();

  [[nodiscard]] GraphPool id() const noexcept { return id_; }
  [[nodiscard]] const Runtime& runtime() const noexcept { return runtime_; }
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }

  /// Returns the stream for captures on the device that use this pool and name no stream. It is always the
  /// same one, because memory is cached for the stream that it was used on.
  [[nodiscard]] Stream capture_stream(int device);

  /// A use of the pool by a capture, which lasts while the object exists.
  class Use {
   public:
    /// Throws Error(invalid_argument), in the name of `function`, if another capture uses the pool.
    Use(std::shared_ptr<PrivatePool> pool, std::string_view function);
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() { pool_->is_in_use_.store(false); }

   private:
    std::shared_ptr<PrivatePool> pool_;
  };

 private:
  Runtime& runtime_;
  const ForkMark fork_mark_{};
  const std::uint64_t generation_;  ///< of the devices
  const GraphLaunches launches_;
  const GraphPool id_;
  std::atomic<bool> is_in_use_{false};
  std::mutex mutex_;
  std::vector<Stream> capture_streams_;  ///< guarded by `mutex_`; one of a device at most
};

struct GraphPoolAccess {
  [[nodiscard]] static GraphPoolHandle make(std::shared_ptr<PrivatePool> pool) {
    GraphPoolHandle handle;
    handle.pool_ = std::move(pool);
    return handle;
  }
  /// Returns the pool that the handle names, or a new one. Throws Error(invalid_argument), in the name of
  /// `function`, if the pool belongs to devices that have been replaced.
  [[nodiscard]] static std::shared_ptr<PrivatePool> pool_for(Runtime& runtime, const GraphPoolHandle& handle,
                                                             std::string_view function);
};

}  // namespace tutti
