// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/team_round.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace tutti::transport::team {

/// Divides a device's room for kernels that wait for other devices among the teams that launch them.
///
/// No such kernel may keep another from starting, so the blocks of all that may run at once must find room on
/// the device together. A team's kernels run one after another: it holds as many blocks as the largest of
/// those that are not known to be over, and for good as many as the largest that has been captured, because
/// nobody knows when graphs run.
///
/// Each team, and one that may still come, has a part that the others leave it: half of an even one. A call
/// also gets what is left of the rest; those that want more than that share it evenly. A kernel gets a few
/// blocks (`uncounted_blocks`) in any case, and is not counted if it wants no more. Nor is it counted, unless
/// it is captured, while all may be as large as they can be; with 132 multiprocessors, that holds for three
/// teams. When a team comes that ends this, each of the others holds as much as it may have taken, until the
/// calls that it has announced are over.
///
/// Too much is taken, by a few blocks for each team, only if there are more than 43 teams, or if teams come
/// while kernels that leave them no room are captured or not yet over. Thread-safe.
class DeviceRoom {
 public:
  /// Returns true once some kernels are known to be over. Called while the room is locked.
  using AreOver = std::function<bool()>;
  /// What a call's kernels may have.
  struct Part {
    std::uint32_t blocks = 0;
    bool is_counted = false;  ///< the caller must tell their end, by `note_end`
  };
  static constexpr std::uint32_t uncounted_blocks = 6;

  explicit DeviceRoom(std::uint32_t multiprocessors);
  DeviceRoom(const DeviceRoom&) = delete;
  DeviceRoom& operator=(const DeviceRoom&) = delete;
  ~DeviceRoom() = default;

  /// Adds a team, which is named by an address. `end_of_announced()` returns what tells when the calls that
  /// it has announced by now, except captured ones, are over, or wait for nothing. The answer may be late,
  /// but costs next to nothing.
  void add(const void* team, std::function<AreOver()> end_of_announced);
  /// Removes the team; does nothing if it has not been added. Its kernels must be over, or wait for nothing.
  void remove(const void* team) noexcept;
  /// Returns the number of teams.
  [[nodiscard]] std::uint32_t count() const noexcept { return count_.load(); }

  /// Takes room for the next kernels of a team, before they are queued, for a call that has been announced or
  /// is captured. `wanted()` returns for how many blocks there is work, in all kernels that may overlap.
  template <class Wanted>
  [[nodiscard]] Part take(const void* team, bool is_captured, const Wanted& wanted) {
    if (!is_captured && (is_enough_for(count()) || largest_ <= uncounted_blocks))
      return {.blocks = largest_, .is_counted = false};
    const std::uint32_t most = std::clamp(std::uint32_t{wanted()}, 1U, largest_);
    if (!is_captured && most <= uncounted_blocks) return {.blocks = most, .is_counted = false};
    return take_counted(team, is_captured, most);
  }
  /// Notes what tells when the kernels are over for which a team has taken room last. They have been queued.
  void note_end(const void* team, AreOver are_over);

 private:
  /// Kernels of a team that are not known to be over.
  struct Held {
    std::uint32_t blocks = 0;  ///< of the largest
    AreOver are_over{};        ///< none while they are being queued
  };
  struct Share {
    const void* team = nullptr;
    std::function<AreOver()> end_of_announced{};
    std::uint32_t captured = 0;   ///< blocks
    std::uint32_t wanted = 0;     ///< by the last call that was counted
    std::uint64_t last_call = 0;  ///< the number of that call
    std::vector<Held> held{};     ///< in the order of the stream, each smaller than the one before

    /// Returns how many blocks the team may have at once.
    [[nodiscard]] std::uint32_t blocks() const noexcept;
    /// Adds kernels that come after the others.
    void hold(std::uint32_t blocks, AreOver are_over = {});
    /// Returns true if others may have more once the oldest kernels are over.
    [[nodiscard]] bool would_leave(std::uint32_t kept) const noexcept;
  };
  /// What is left for each team, by the number of teams.
  struct Parts {
    std::uint32_t even;
    std::uint32_t kept;       ///< what the others leave
    std::uint32_t uncounted;  ///< what may be taken without being counted
  };

  [[nodiscard]] bool is_enough_for(std::uint32_t teams) const noexcept {
    return teams * largest_ + uncounted_blocks <= room_;
  }
  [[nodiscard]] Parts parts() const noexcept;
  [[nodiscard]] Part take_counted(const void* team, bool is_captured, std::uint32_t most);
  /// Returns how many of `most` blocks a call may have.
  [[nodiscard]] std::uint32_t part_of(const Share& asker, bool is_captured, std::uint32_t most);
  /// Drops what is known to be over without a question to the device, and then asks about the oldest kernels
  /// of one team, in turn: a question takes a microsecond.
  void update(const Share& asker);
  /// Returns what each team gets that wants more, if `asker` is one of them.
  [[nodiscard]] std::uint32_t fair_part(const Share& asker, const Parts& parts);
  /// Returns how many blocks a team wants whose last call was counted not long ago, else 0.
  [[nodiscard]] std::uint32_t wanted_by(const Share& share) const noexcept;

  const std::uint32_t room_;     ///< for blocks
  const std::uint32_t largest_;  ///< the most blocks of a kernel
  std::mutex mutex_;
  std::atomic<std::uint32_t> count_ = 0;  ///< changed under `mutex_`
  std::vector<Share> shares_;
  std::uint64_t calls_ = 0;            ///< that were counted
  std::size_t asked_ = 0;              ///< the share that was asked about last
  std::vector<std::uint32_t> wishes_;  ///< memory that is used again
};

}  // namespace tutti::transport::team
