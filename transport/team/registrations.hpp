// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "backend/thread.hpp"
#include "caching_allocator.hpp"
#include "runtime.hpp"
#include "transport/team/live_teams.hpp"
#include "transport/team/registration_tables.hpp"
#include "transport/team/retired_segments.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

/// Device memory of the ranks that the others have open.
namespace tutti::transport::ranks {

/// The registration cache: which segments of the caching allocators the other ranks have open, so that
/// members can give each other addresses of tensors (`backend/team_round.hpp`).
///
/// A segment is opened once, when a tensor in it is given for the first time: the owner enters it in its
/// board, and a thread of each other rank, which depends on nobody else, opens it. It stays open until the
/// allocator wants to return it to the device and all others close such memory, until there are too many, or
/// until the team ends.
///
/// Opening goes on while a device waits in a kernel. Closing does not: it waits for the device, and kernels
/// cannot be launched meanwhile, so that ranks could come to wait for one another. Another thread closes
/// segments, when all own work of this team and of others of the process is over and no call is being made;
/// and never once calls of one of them have been captured, as nobody knows when graphs run.
///
/// `add`, `wait` and `find` are for one thread at a time; the observer's calls may come from any.
class Registrations final : public SegmentObserver {
 public:
  struct Team {
    RegistrationTables tables;
    std::size_t first_own = 0;
    std::vector<int> own_devices;
    /// Returns when the condition holds, or throws what ended the team.
    std::function<void(std::uint64_t sequence, const std::function<bool()>& holds)> wait_for;
    /// Whether the own members have completed the call.
    std::function<bool(std::uint64_t sequence)> is_complete;
    /// Calls the function if nothing of this process waits for other ranks, and all own work of the team is
    /// over; keeps calls from being made meanwhile.
    std::function<Attempt(const std::function<void()>& work)> while_idle;
    /// Whether another rank closes nothing before this one makes another call, or has queued that which it is
    /// making; or nothing ever, as calls have been captured. It may have gone on some milliseconds ago.
    std::function<bool(std::size_t rank)> closes_nothing;
    /// The team has been ended: what others still do nobody knows.
    std::function<bool()> is_over;
    /// Ends the team. Takes no memory.
    std::function<void(const backend::Escaped&)> fail = [](const backend::Escaped&) {};
    /// How many segments of this rank may be open at a time.
    std::size_t capacity = RegistrationBoard::capacity;
  };
  /// How many operands one call of a rank may give: there is room for their segments, whatever other calls
  /// have open, unless captured ones keep as many.
  static constexpr std::size_t most_given = RegistrationBoard::capacity / 2;

  Registrations(Runtime& runtime, Team team);
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;
  ~Registrations();

  /// Has the segment of `address`, memory of an own member that a call gives, opened by all others; `wait`
  /// before it is used. False if it cannot be given: it is not the allocator's, is not aligned to 16 bytes,
  /// or there is no room. `is_captured`: graphs may use it for as long as it is not freed.
  [[nodiscard]] bool add(std::uint64_t sequence, std::size_t own_member, const std::byte* address,
                         bool is_captured);
  /// Why the last `add` that returned false did.
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }
  /// Waits until all have opened what has been added. Throws Error(transport_failure) if one cannot, and what
  /// ends the team.
  void wait(std::uint64_t sequence);

  /// Where memory that has been added is, for others.
  class Given {
   public:
    /// For the device of a member.
    [[nodiscard]] std::byte* seen_by(std::size_t member) const noexcept {
      return views_ == nullptr ? address_ : segment_of(member) + offset_;
    }

   private:
    friend class Registrations;
    [[nodiscard]] std::byte* segment_of(std::size_t member) const noexcept;
    std::byte* address_ = nullptr;
    const Registrations* registrations_ = nullptr;
    const RegistrationView* views_ = nullptr;  ///< of the entry, by member
    std::size_t offset_ = 0;
  };
  [[nodiscard]] Given find(std::byte* address);

  /// Tells the others to close all own segments, and lets go of theirs: no own work uses any of them, nor
  /// will.
  void leave() noexcept;
  /// What others may still have open after that.
  [[nodiscard]] std::shared_ptr<RetiredSegments> retired() const noexcept { return retired_; }

  void will_free(const std::byte* address) noexcept override;
  /// Passing while others have to close it. Lasting if one of them closes nothing for now, and if the team
  /// has been ended: then this object knows no more of it.
  [[nodiscard]] Hold hold_on(const std::byte* address) noexcept override;

 private:
  using Segment = RegisteredSegment;
  using Segments = RegisteredSegments;

  [[nodiscard]] RegistrationBoard& own() const noexcept { return team_.tables.own(); }
  /// The segment that contains `address`; end() if there is none.
  [[nodiscard]] Segments::iterator segment_of(const std::byte* address);
  /// With the mutex held.
  [[nodiscard]] std::optional<std::uint32_t> free_entry();
  /// With the mutex held, in the call: tells the others to close what has not been used for longest, if much
  /// is open.
  void trim(std::uint64_t sequence);
  void enter(std::uint32_t entry, const backend::MemoryHandle& handle);
  /// With the mutex held: tells the others to close it.
  void retire(Segments::iterator segment) noexcept;
  void ring_all() noexcept;
  /// Whether all others have followed the entry to its version, or are gone.
  [[nodiscard]] bool is_followed(std::uint32_t entry) const noexcept;
  [[nodiscard]] bool closes_nothing(std::size_t rank) const;
  /// Whether one that has not closes nothing for now.
  [[nodiscard]] bool is_held_for_long(std::uint32_t entry) const;
  /// Whether what the allocator gives up keeps its entry, as somebody would not close it for now: if it comes
  /// to be used again, it need not be opened once more, and no entry is used up.
  [[nodiscard]] bool stays_open() const;
  /// The segment, which no work uses any more, is retired unless it stays open; whether it does.
  [[nodiscard]] bool keep_or_retire(const std::byte* address) noexcept;
  [[nodiscard]] std::string failure_of(std::uint32_t entry) const;

  void stop_observing() noexcept;
  /// Ends the threads, and lets go of the others' segments.
  void close() noexcept;
  /// What an own member has to do with another rank's entry.
  struct Case {
    std::size_t rank;
    std::uint32_t entry;
    std::size_t own_member;
    std::uint64_t version;  ///< the entry's
    RegistrationView& view;
  };
  template <class Visitor>
  void for_each_case(const Visitor& visit);
  /// What a thread does.
  void run(void (Registrations::*loop)());
  /// Starts a thread that does `loop`.
  [[nodiscard]] backend::Thread start(const backend::Thread::Role& role, void (Registrations::*loop)());
  // A view that is not open is the opener's to change, and one that is, the closer's.
  void open_loop();
  void close_loop();
  void open(const Case& segment);
  void close(const Case& segment);

  Runtime& runtime_;
  const Team team_;
  std::mutex mutex_;
  Segments segments_;
  const std::shared_ptr<RetiredSegments> retired_;
  std::string refusal_;
  std::vector<const std::byte*> added_;  ///< segments that `wait` has not seen yet

  std::mutex opened_mutex_;
  std::map<std::array<std::size_t, 3>, void*> opened_;  ///< by rank, entry, own member
  std::atomic<bool> is_stopping_ = false;
  backend::Thread opener_;
  backend::Thread closer_;
};

}  // namespace tutti::transport::ranks
