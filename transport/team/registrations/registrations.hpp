// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/caching_allocator.hpp"
#include "allocator/registered_memory.hpp"
#include "backend/backend.hpp"
#include "device/runtime.hpp"
#include "transport/team/calls/call_log.hpp"
#include "transport/team/calls/live_teams.hpp"
#include "transport/team/lateness/waiting.hpp"
#include "transport/team/progress/abort.hpp"
#include "transport/team/progress/progress.hpp"
#include "transport/team/registrations/memory_identities.hpp"
#include "transport/team/registrations/peer_segments.hpp"
#include "transport/team/registrations/refused_segments.hpp"
#include "transport/team/registrations/registration_entries.hpp"
#include "transport/team/registrations/retired_segments.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/registration_tables.hpp"
#include "transport/team/shared/shared_state.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::transport::team {

/// Returns the alignment of exposed addresses: the bytes that a GPU reads at once. Processors read from
/// anywhere as fast.
[[nodiscard]] constexpr std::uintptr_t alignment_of_exposed(BackendKind backend) noexcept {
  constexpr std::uintptr_t of_gpus = 16;
  return backend == BackendKind::cuda ? of_gpus : 1;
}

/// Caches registrations: keeps track of which segments of the caching allocators the other ranks have open,
/// so that members can expose addresses of tensors to one another (`backend/team_round.hpp`).
///
/// A segment is opened once, when a tensor in it is exposed for the first time: the owner enters it in its
/// table, and each other rank opens it (`PeerSegments`). It stays open until the allocator wants to return it
/// to the device and all others close such memory, until there are too many, or until the team ends.
///
/// `add` and `wait` are for one thread at a time; `find` and the observer's calls may come from any.
class Registrations final : public SegmentObserver {
 public:
  /// The most operands that one call of a rank may expose. Their segments fit, whatever other calls have
  /// open, unless captured calls keep as many.
  static constexpr std::size_t most_exposed = RegistrationTable::capacity / 2;

  /// `capacity` is the number of segments of this rank that may be open at a time. If `opens_foreign`, memory
  /// that is neither the allocator's nor registered can be exposed, too.
  Registrations(Runtime& runtime, const Membership& membership, const SharedState& state,
                const Progress& progress, Waiting& waiting, CallLog& calls, Abort& abort,
                LiveTeams& live_teams, std::size_t capacity = RegistrationTable::capacity,
                bool opens_foreign = false);
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;
  ~Registrations();

  /// Asks all others to open the segment of `memory`, of a local member, that a call exposes; `wait` waits
  /// until they have. Returns false if it cannot be exposed: it is neither the allocator's nor registered, is
  /// not aligned to 16 bytes on a GPU, or there is no room. If `is_captured`, graphs may use it for as long
  /// as it is not freed.
  [[nodiscard]] bool add(std::uint64_t sequence, std::size_t local, std::span<const std::byte> memory,
                         bool is_captured);
  /// Asks all others to open the segment of `memory`, of a local member that receives in the batch of this
  /// number (`Links::post`; 0: captured), if possible. Does not wait.
  void prepare_invitation(std::uint64_t batch, std::size_t local, std::span<const std::byte> memory);
  /// Returns the address by which the device of member `sender` of another rank finds `memory`, after
  /// `prepare_invitation`; nullptr if it cannot write there. It has until `deadline` to open the segment when
  /// that is first asked for, and where calls are captured; if it opens the segment later, that serves the
  /// next message.
  [[nodiscard]] std::byte* invite(bool is_captured, std::span<std::byte> memory, std::size_t sender,
                                  std::chrono::steady_clock::time_point deadline);
  /// Returns why the last `add` returned false.
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }
  /// Waits until all have opened what has been added. Throws Error(transport_failure) if one cannot, and the
  /// error that has ended the team.
  void wait(std::uint64_t sequence);

  /// Memory that has been added, as other members address it.
  class Exposed {
   public:
    /// Memory of this process itself, which all members see at one address.
    explicit Exposed(std::byte* address) noexcept : address_(address) {}
    /// Returns the address of the memory for a member's device.
    [[nodiscard]] std::byte* seen_by(std::size_t member) const noexcept {
      return views_ == nullptr ? address_ : segment_of(member) + offset_;
    }

   private:
    friend class Registrations;
    [[nodiscard]] std::byte* segment_of(std::size_t member) const noexcept;
    std::byte* address_;
    const Registrations* registrations_ = nullptr;
    const RegistrationView* views_ = nullptr;  ///< of the entry, by member
    std::size_t offset_ = 0;
  };
  [[nodiscard]] Exposed find(std::byte* address);

  /// The place of an address in memory that a rank has added, for other ranks.
  struct Place {
    std::uint64_t entry = 0;
    std::uint64_t offset = 0;  ///< bytes from the start of the segment
  };
  /// Returns the place of an address that has been added, and waited for.
  [[nodiscard]] Place place_of(const std::byte* address);
  /// Returns the address at that place of another rank's memory, which this one has open, for the device of a
  /// local member.
  [[nodiscard]] std::byte* opened(std::size_t rank, const Place& place, std::size_t local) const noexcept;

  /// Tells the others to close all segments of this rank, and closes theirs; no local work may use them any
  /// more.
  void leave() noexcept;
  /// Returns the segments that others may still have open after `leave`.
  [[nodiscard]] std::shared_ptr<RetiredSegments> retired() const noexcept { return retired_; }

  void will_free(const std::byte* address) noexcept override;
  /// Returns a passing hold while others have to close the segment; a lasting one if one of them closes
  /// nothing for now, or if the team has been ended, as nobody knows what the others do then.
  [[nodiscard]] Hold hold_on(const std::byte* address) noexcept override;
  [[nodiscard]] Hold will_unmap(std::span<const std::byte> memory) noexcept override;
  /// Captured calls that use the memory count as gone. In a team that has been ended, nobody knows whether
  /// calls under way are over: the hold lasts.
  [[nodiscard]] Hold let_go(const std::byte* address, bool insists) noexcept override;

 private:
  using Segment = RegisteredSegment;
  using Segments = RegisteredSegments;

  /// Returns the segment that contains `address`; end() if there is none.
  [[nodiscard]] Segments::iterator segment_of(const std::byte* address);
  /// Returns the segment that contains `memory`, of a local member, and enters it if others do not know it
  /// yet. Nothing if none is needed; end() if there cannot be one, with the reason in `refusal`. The
  /// mutex must be held.
  [[nodiscard]] std::optional<Segments::iterator> segment_for(std::size_t local,
                                                              std::span<const std::byte> memory);
  /// Enters the memory of `extent`; end() if that is not possible. The mutex must be held.
  Segments::iterator enter(int device, const CachingAllocator::Extent& extent, Segment segment);
  /// Tells the others to open memory of a device by this entry.
  void open(std::uint32_t entry, int device, const CachingAllocator::Extent& extent, Segment& segment);
  /// Works like `segment_for`, for memory that is neither the allocator's nor registered.
  [[nodiscard]] std::optional<Segments::iterator> foreign_segment_for(int device,
                                                                      std::span<const std::byte> memory);
  /// Returns what was found, pieces together with the foreign segments that they share bytes with.
  [[nodiscard]] CachingAllocator::Extent join(const DeviceAllocation& found);
  /// Returns true unless the program has freed foreign memory of the segment.
  [[nodiscard]] bool is_current(const Segment& segment) {
    return are_current(runtime_.backend(), segment.identities);
  }
  Segments::iterator refuse(std::string reason);
  /// Sets segments that share bytes with `memory` aside, so that no more calls use them: blocks that have
  /// been freed, or foreign memory. Unless they may be replayed, captured calls that use them count as gone;
  /// those that use foreign memory do if it has been freed. The mutex must be held.
  void set_aside(std::span<const std::byte> memory, bool may_be_replayed);
  /// Retires those that have been set aside and are due. The mutex must be held.
  template <class IsDue>
  void retire_outdated(const IsDue& is_due) noexcept;
  void retire_unused() noexcept;
  /// Returns true if others may still have foreign memory open where `memory` is now.
  [[nodiscard]] bool is_foreign_open(std::span<const std::byte> memory);
  /// Tells the others to close the segments that have not been used for longest, if much is open, except
  /// those that the call of this number uses. The mutex must be held.
  void trim(std::uint64_t sequence);
  /// Tells the others to close the segment. The mutex must be held.
  void retire(Segments::iterator segment) noexcept;
  void retire(Segments::node_type segment) noexcept;
  /// Returns true if memory that the allocator gives up keeps its entry, because some rank would not close it
  /// for now: if it is used again, it need not be reopened, and no entry is used up.
  [[nodiscard]] bool stays_open() const;
  /// Retires the segment, which no work uses any more, unless it stays open. Returns true if it does.
  [[nodiscard]] bool keep_or_retire(const std::byte* address) noexcept;
  /// Returns the entry of the segment that begins there, if others have yet to open it.
  [[nodiscard]] std::optional<std::uint32_t> entry_to_open(const std::byte* segment);
  void note_open(const std::byte* segment);
  /// Returns true if a call or batch of this rank that uses the segment is under way.
  [[nodiscard]] bool is_in_use(const Segment& segment) const noexcept;
  /// Returns what keeps a segment, whose entry has been closed, from being freed.
  [[nodiscard]] Hold hold_of_retired(const std::byte* address) noexcept;
  void stop_observing() noexcept;

  Runtime& runtime_;
  const Membership& membership_;
  RegistrationEntries entries_;
  const bool opens_foreign_;
  const Progress& progress_;
  Waiting& waiting_;
  CallLog& calls_;
  Abort& abort_;
  std::mutex mutex_;
  Segments segments_;
  /// Blocks of expandable segments which have other bounds now, and foreign memory that is gone or part of a
  /// larger segment; calls under way or graphs may use them.
  std::multimap<const std::byte*, Segment> outdated_;
  RefusedSegments refused_;
  const std::shared_ptr<RetiredSegments> retired_;
  std::string refusal_;
  std::vector<const std::byte*> added_;  ///< segments that `wait` has yet to wait for

  std::optional<PeerSegments> peers_;  ///< none if there are no other ranks, or they no longer need them
};

}  // namespace tutti::transport::team
