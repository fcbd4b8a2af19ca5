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

/// Holds resources that a later call of the library releases: they come from threads that must not enter the
/// backend, or wait until work of streams is done. Thread-safe.
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
  /// Works as `add`, from a thread that may enter the backend: work that the streams get after this call is
  /// not waited for, and the streams may be destroyed.
  void add_marked(ReleaseList&& releases) noexcept;
  /// Releases what may be released, without waiting; returns true if there was anything. Calls of the library
  /// from ordinary threads call it. Costs one atomic load when there is nothing.
  bool release() {
    if (!has_any_.load(std::memory_order_acquire)) [[likely]]
      return false;
    return release_some();
  }
  [[nodiscard]] bool has_any() const noexcept { return has_any_.load(std::memory_order_acquire); }
  /// Keeps `resource`, while `stream` is being captured, until the graph and everything made from it are
  /// destroyed. It is then released later, because threads of the driver may destroy graphs.
  void retain_in_graph(backend::StreamRef stream, std::shared_ptr<void> resource);

  void settle(Settling how) override;

 private:
  bool release_some();
  /// Releases everything: all work is done, or will never run.
  void release_all();
  /// Waits for at most ten seconds until everything has been released; what is left counts as in use.
  void await_all();
  /// Returns true if the streams' work is done. A stream that cannot be marked now, because it is being
  /// captured or its device is in trouble, is tried again later.
  [[nodiscard]] bool has_come(One& one);
  [[nodiscard]] bool try_mark(One& one, backend::StreamRef stream);

  backend::Backend& backend_;
  EventPool& events_;
  std::mutex mutex_;
  ReleaseList releases_;
  /// True if there is anything to release. Allocators read it at every hit, so it is on a cache line of its
  /// own.
  alignas(cache_line_bytes) std::atomic<bool> has_any_ = false;
};

}  // namespace tutti
