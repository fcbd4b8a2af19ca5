#pragma once

#include "backend/shared_memory.hpp"
#include "caching_allocator.hpp"
#include "runtime.hpp"
#include "transport/ranks/boards.hpp"
#include "transport/ranks/peer_process.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace tutti::transport::ranks {

/// The other ranks of a team, all of this host, as they are seen once the own part of the team is gone.
class RemainingRanks {
 public:
  /// `boards` lie in `memory`; `processes` are by rank.
  RemainingRanks(SharedMemory memory, std::span<const RankBoard> boards, std::vector<PeerProcess> processes)
      : memory_(std::move(memory)), boards_(boards), processes_(std::move(processes)) {}

  /// Nobody has memory of this rank open any more.
  [[nodiscard]] bool are_gone() const noexcept;

 private:
  SharedMemory memory_;
  std::span<const RankBoard> boards_;
  std::vector<PeerProcess> processes_;
};

/// Device memory of this process that other ranks may still have open for teams that are no more here. The
/// devices' caching allocators free it once these have left or are gone: when somebody sweeps, when memory is
/// short, when the cache is emptied. An extension of the runtime. Thread-safe.
class LeftMemory final : public SegmentObserver {
 public:
  using Ranks = std::shared_ptr<const RemainingRanks>;

  explicit LeftMemory(Runtime& runtime);
  LeftMemory(const LeftMemory&) = delete;
  LeftMemory& operator=(const LeftMemory&) = delete;
  ~LeftMemory();

  /// A segment of a caching allocator's, which may be in use.
  void hold(const std::byte* segment, const Ranks& ranks);
  /// Memory that is nobody else's, and that no own work uses.
  void take(int device, CachingAllocator::Extent memory, const Ranks& ranks);
  /// Frees what can be freed on these devices; waits for them if there is something, and for no other rank.
  void sweep(std::span<const int> devices);

  void will_free(const std::byte* address) noexcept override { static_cast<void>(address); }
  [[nodiscard]] Hold hold_on(const std::byte* address) noexcept override;

 private:
  Runtime& runtime_;
  std::mutex mutex_;
  std::multimap<const std::byte*, Ranks> held_;  ///< by address: a segment may be open for several teams
};

}  // namespace tutti::transport::ranks
