// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "base/cache_line.hpp"
#include "device/runtime_part.hpp"
#include "stream/event_pool.hpp"

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti {

class Runtime;

/// Holds what the library lets go of at one of its later calls: from threads where the backend must not be
/// entered, or when work of streams is done. Thread-safe.
class LateReleases final : public RuntimePart {
 public:
  static constexpr PartSlot slot = PartSlot::late_releases;

  struct One {
    std::shared_ptr<void> resource;
    std::vector<backend::StreamRef> streams;  ///< those whose work queued so far comes first
    std::vector<PooledEvent> marks;           ///< recorded by its owner: these come first, too
  };
  /// A list that its owner makes beforehand, so that handing it over allocates nothing.
  using ReleaseList = std::list<One>;

  explicit LateReleases(Runtime& runtime);
  ~LateReleases() override;

  void add(ReleaseList&& releases) noexcept;
  /// Works as `add`, from a thread that may enter the backend: work that its streams get from now on is not
  /// waited for, and they may be destroyed.
  void add_marked(ReleaseList&& releases) noexcept;
  /// Lets go of what may go, and waits for nothing; returns whether anything has gone. Called by the
  /// library's calls from ordinary threads. Costs one atomic load when there is nothing.
  bool release() {
    if (!has_any_.load(std::memory_order_acquire)) [[likely]]
      return false;
    return release_some();
  }
  [[nodiscard]] bool has_any() const noexcept { return has_any_.load(std::memory_order_acquire); }
  /// Keeps `resource`, while `stream` is being captured, until the graph, and everything made from it, is
  /// destroyed, and then lets go of it late, as graphs may be destroyed on threads of the driver's.
  void retain_in_graph(backend::StreamRef stream, std::shared_ptr<void> resource);

  void settle(Settling how) override;

 private:
  bool release_some();
  /// Lets go of everything: all work is done, or will never be.
  void release_all();
  /// Waits at most ten seconds until everything has been let go of: what is left is found in use.
  void await_all();
  /// A stream that cannot be marked now, because it is being captured or its device is in trouble, is tried
  /// again.
  [[nodiscard]] bool has_come(One& one);
  [[nodiscard]] bool try_mark(One& one, backend::StreamRef stream);

  backend::Backend& backend_;
  EventPool& events_;
  std::mutex mutex_;
  ReleaseList releases_;
  /// Read at every hit of the allocators: apart from what is written more often.
  alignas(cache_line_bytes) std::atomic<bool> has_any_ = false;
};

}  // namespace tutti
