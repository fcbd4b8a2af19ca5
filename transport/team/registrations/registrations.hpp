// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/caching_allocator.hpp"
#include "backend/backend.hpp"
#include "device/runtime.hpp"
#include "transport/team/calls/call_log.hpp"
#include "transport/team/calls/live_teams.hpp"
#include "transport/team/lateness/waiting.hpp"
#include "transport/team/progress/abort.hpp"
#include "transport/team/progress/progress.hpp"
#include "transport/team/registrations/peer_segments.hpp"
#include "transport/team/registrations/registration_entries.hpp"
#include "transport/team/registrations/retired_segments.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/registration_tables.hpp"
#include "transport/team/shared/shared_state.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tutti::transport::team {

/// What addresses that are given are multiples of: what GPUs read at once. Processors read from anywhere as
/// fast.
[[nodiscard]] constexpr std::uintptr_t alignment_of_exposed(BackendKind backend) noexcept {
  constexpr std::uintptr_t of_gpus = 16;
  return backend == BackendKind::cuda ? of_gpus : 1;
}

/// The registration cache: which segments of the caching allocators the other ranks have open, so that
/// members can give each other addresses of tensors (`backend/team_round.hpp`).
///
/// A segment is opened once, when a tensor in it is given for the first time: the owner enters it in its
/// table, and each other rank opens it (`PeerSegments`). It stays open until the allocator wants to return it
/// to the device and all others close such memory, until there are too many, or until the team ends.
///
/// `add`, `wait` and `find` are for one thread at a time; the observer's calls may come from any.
class Registrations final : public SegmentObserver {
 public:
  /// How many operands one call of a rank may give: there is room for their segments, whatever other calls
  /// have open, unless captured ones keep as many.
  static constexpr std::size_t most_exposed = RegistrationTable::capacity / 2;

  /// `capacity`: how many segments of this rank may be open at a time.
  Registrations(Runtime& runtime, const Membership& membership, const SharedState& state,
                const Progress& progress, Waiting& waiting, CallLog& calls, Abort& abort,
                LiveTeams& live_teams, std::size_t capacity = RegistrationTable::capacity);
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;
  ~Registrations();

  /// Asks all others to open the segment of `address`, memory of a local member that a call gives; `wait`
  /// says when they have. False if it cannot be given: it is not the allocator's, is not aligned to 16 bytes
  /// on a GPU, or there is no room. `is_captured`: graphs may use it for as long as it is not freed.
  [[nodiscard]] bool add(std::uint64_t sequence, std::size_t local, const std::byte* address,
                         bool is_captured);
  /// Has the segment of `address`, memory of a local member that is received into in the batch of this number
  /// (`Links::post`; 0: captured), opened by all others, if it can be. Waits for nobody.
  void prepare_invitation(std::uint64_t batch, std::size_t local, const std::byte* address);
  /// After that, where the device of member `sender` of another rank finds `address`; nullptr if it cannot
  /// write there. It has until `deadline` to open the segment when that is first asked for, and where calls
  /// are captured: who opens it later does so by itself, for the next message.
  [[nodiscard]] std::byte* invite(bool is_captured, std::byte* address, std::size_t sender,
                                  std::chrono::steady_clock::time_point deadline);
  /// Why the last `add` that returned false did.
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }
  /// Waits until all have opened what has been added. Throws Error(transport_failure) if one cannot, and what
  /// ends the team.
  void wait(std::uint64_t sequence);

  /// Memory that has been added, as others find it.
  class Exposed {
   public:
    /// What the process reaches by itself: all see it there.
    explicit Exposed(std::byte* address) noexcept : address_(address) {}
    /// Where the memory is for the device of a member.
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

  /// Tells the others to close all segments of this rank, and closes theirs: no local work uses any of them,
  /// nor will.
  void leave() noexcept;
  /// What others may still have open after that.
  [[nodiscard]] std::shared_ptr<RetiredSegments> retired() const noexcept { return retired_; }

  void will_free(const std::byte* address) noexcept override;
  /// The hold is passing while others have to close the segment. It is lasting if one of them closes nothing
  /// for now, and if the team has been ended, as nobody knows what the others do then.
  [[nodiscard]] Hold hold_on(const std::byte* address) noexcept override;

 private:
  using Segment = RegisteredSegment;
  using Segments = RegisteredSegments;

  /// The segment that contains `address`; end() if there is none.
  [[nodiscard]] Segments::iterator segment_of(const std::byte* address);
  /// Likewise of memory of a local member, which is entered now if others do not know it yet; nothing if
  /// there need be none, and end() if there cannot be one, of which `refusal` tells. The mutex is held.
  [[nodiscard]] std::optional<Segments::iterator> segment_for(std::size_t local, const std::byte* address);
  Segments::iterator refuse(std::string reason);
  /// Tells the others to close what has not been used for longest, if much is open, but for what the call of
  /// this number uses. The mutex is held.
  void trim(std::uint64_t sequence);
  /// Tells the others to close the segment. The mutex is held.
  void retire(Segments::iterator segment) noexcept;
  /// Whether what the allocator gives up keeps its entry, as somebody would not close it for now: if it comes
  /// to be used again, it need not be opened once more, and no entry is used up.
  [[nodiscard]] bool stays_open() const;
  /// Retires the segment, which no work uses any more, unless it stays open. Whether it does.
  [[nodiscard]] bool keep_or_retire(const std::byte* address) noexcept;
  void stop_observing() noexcept;

  Runtime& runtime_;
  const Membership& membership_;
  RegistrationEntries entries_;
  const Progress& progress_;
  Waiting& waiting_;
  CallLog& calls_;
  Abort& abort_;
  std::mutex mutex_;
  Segments segments_;
  const std::shared_ptr<RetiredSegments> retired_;
  std::string refusal_;
  std::vector<const std::byte*> added_;  ///< segments that `wait` has not seen yet

  std::optional<PeerSegments> peers_;  ///< none if there are no other ranks, or they need them no more
};

}  // namespace tutti::transport::team
