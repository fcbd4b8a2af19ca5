// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/caching_allocator.hpp"
#include "device/runtime.hpp"
#include "os/shared_memory.hpp"
#include "transport/team/registrations/retired_segments.hpp"
#include "transport/team/shared/peer_process.hpp"
#include "transport/team/shared/rank_status.hpp"
#include "transport/team/windows/windows.hpp"

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace tutti::transport::team {

/// Device memory of this process that other ranks, all of this host, may still have open for teams that are
/// no more here. The devices' caching allocators free it once those ranks have closed it, or are gone; that
/// happens when somebody calls `sweep`, when memory is short, and when the cache is emptied. The object is an
/// extension of the runtime. Thread-safe.
class DeferredFrees final : public SegmentObserver {
 public:
  /// What one team has left.
  struct Left {
    std::shared_ptr<SharedMemory> memory;  ///< in which the others write
    std::span<const RankStatus> statuses;  ///< by rank; in the memory
    std::vector<PeerProcess> processes;
    std::shared_ptr<RetiredSegments> segments;  ///< may be in use
    std::vector<Windows::Allocated> windows;

    [[nodiscard]] bool has_left(std::size_t rank) const noexcept {
      return statuses[rank].state.load() >= RankStatus::left || processes[rank].is_gone();
    }
    /// Whether nobody has anything open any more.
    [[nodiscard]] bool is_over() const noexcept;
  };

  explicit DeferredFrees(Runtime& runtime);
  DeferredFrees(const DeferredFrees&) = delete;
  DeferredFrees& operator=(const DeferredFrees&) = delete;
  ~DeferredFrees();

  /// Takes the list's one element, which is made early, as there may be no memory for it when the team goes.
  /// `windows` are the team's windows, of `window_bytes` each, which are nobody else's any longer.
  void take(std::list<Left> left, std::span<const Windows::Allocated> windows,
            std::size_t window_bytes) noexcept;
  /// Frees what can be freed on these devices; waits for them if there is something, and for no other rank.
  void sweep(std::span<const int> devices) noexcept;

  void will_free(const std::byte* address) noexcept override { static_cast<void>(address); }
  [[nodiscard]] Hold hold_on(const std::byte* address) noexcept override;

 private:
  Runtime& runtime_;
  std::mutex mutex_;
  std::list<Left> left_;
};

}  // namespace tutti::transport::team
