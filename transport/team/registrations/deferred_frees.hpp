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

/// Keeps device memory of former teams of this process that other ranks of this host may still have open. The
/// devices' caching allocators free it once those ranks have closed it or are gone: in `sweep`, when memory
/// is short, and when the cache is emptied. It is a part of the runtime. Thread-safe.
class DeferredFrees final : public SegmentObserver {
 public:
  /// The memory that one team has left.
  struct Left {
    std::shared_ptr<SharedMemory> memory;  ///< in which the others report
    std::span<const RankStatus> statuses;  ///< by rank; in the memory
    std::vector<PeerProcess> processes;
    std::shared_ptr<RetiredSegments> segments;  ///< may be in use
    std::vector<Windows::Allocated> windows;

    [[nodiscard]] bool has_left(std::size_t rank) const noexcept {
      return statuses[rank].state.load() >= RankStatus::left || processes[rank].is_gone();
    }
    /// Returns true if nobody has anything open any more.
    [[nodiscard]] bool is_over() const noexcept;
  };

  explicit DeferredFrees(Runtime& runtime);
  DeferredFrees(const DeferredFrees&) = delete;
  DeferredFrees& operator=(const DeferredFrees&) = delete;
  ~DeferredFrees();

  /// Takes the list's single element, which is made early because memory may be short when the team ends.
  /// `windows` are the team's windows, of `window_bytes` each; this object owns them from now on.
  void take(std::list<Left> left, std::span<const Windows::Allocated> windows,
            std::size_t window_bytes) noexcept;
  /// Frees what can be freed on these devices. Waits for the devices if there is something to free, and for
  /// no other rank.
  void sweep(std::span<const int> devices) noexcept;

  void will_free(const std::byte* address) noexcept override { static_cast<void>(address); }
  [[nodiscard]] Hold hold_on(const std::byte* address) noexcept override;

 private:
  Runtime& runtime_;
  std::mutex mutex_;
  std::list<Left> left_;
};

}  // namespace tutti::transport::team
