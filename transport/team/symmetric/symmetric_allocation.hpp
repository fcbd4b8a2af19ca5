// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "base/fork_mark.hpp"
#include "device/runtime.hpp"
#include "os/shared_flag.hpp"
#include "stream/late_releases.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/symmetric/release_flags.hpp"
#include "transport/team/symmetric/released_blocks.hpp"
#include "tutti/layout.hpp"
#include "tutti/symmetric_view.hpp"
#include "tutti/tensor.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace tutti::transport::team {

/// Counts the symmetric memory of a team that this rank has not released: kernels of the program's may wait
/// for other ranks meanwhile, whenever they like. Outlives the team.
using SymmetricCount = std::shared_ptr<std::atomic<int>>;

/// One rank's part of symmetric memory: a block for each local member, and the addresses of all members'
/// blocks for each. Ranks first make their blocks, then exchange where they are, then set the addresses; once
/// all have, they share the memory.
/// Thread-safe once complete.
class SymmetricAllocation {
 public:
  struct Settings {
    LayoutPtr layout;
    std::chrono::milliseconds patience{};
    std::chrono::milliseconds timeout{};
  };

  /// Allocates the blocks, each for its member's stream in `streams`, with words that are zero; the streams
  /// are done. Throws OutOfMemoryError.
  SymmetricAllocation(Runtime& runtime, const Membership& membership, const Settings& settings,
                      const std::vector<backend::StreamRef>& streams, const backend::AbortWord& abort);
  SymmetricAllocation(const SymmetricAllocation&) = delete;
  SymmetricAllocation& operator=(const SymmetricAllocation&) = delete;
  /// Releases without waiting.
  ~SymmetricAllocation();

  /// Completes it: `peers` are the addresses of all members' blocks, by local index, then member, which are
  /// also written behind the local blocks. It counts in `count` until this rank has released it.
  void complete(std::vector<std::vector<std::byte*>> peers, std::shared_ptr<ReleaseFlags> flags,
                SymmetricCount count);
  /// Says, before it is used, whether other ranks may use the blocks: then these are freed only when all have
  /// released them. Does nothing if it is not complete.
  void share(bool is_shared) noexcept;

  [[nodiscard]] const std::vector<Tensor>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] std::byte* data(std::size_t local) const;
  /// Returns the addresses of all members' data for the device of a local member.
  [[nodiscard]] const std::vector<std::byte*>& peers(std::size_t local) const { return peers_[local]; }
  [[nodiscard]] std::size_t member_count() const noexcept { return member_count_; }
  [[nodiscard]] bool has_gpus() const noexcept;
  /// Returns the view of a local member; its `peers` are in memory of the device.
  [[nodiscard]] SymmetricView view(std::size_t local,
                                   std::optional<std::chrono::milliseconds> patience) const;
  /// Frees what all ranks have released.
  void free_released() const;
  /// Makes the release wait for the stream's work, unless it is being captured: a graph's work is over.
  void record_stream(backend::StreamRef stream);

  /// Begins to release the memory, once: when the streams have done their work so far, this rank has released
  /// it.
  void begin_release() noexcept;
  /// Returns true once the release has begun: the addresses are no longer valid.
  [[nodiscard]] bool is_over() const noexcept { return is_over_.load(); }
  /// Waits until this rank has released it, as long as `limit`; returns false if it has not by then.
  [[nodiscard]] bool await_own_release(std::chrono::milliseconds limit) const;
  /// Waits until all have released it, as long as the timeout, or a moment once the communicator has ended,
  /// or until `is_needless(rank)` holds for those that have not. Returns those.
  template <class IsNeedless>
  [[nodiscard]] std::vector<std::size_t> await_all(const IsNeedless& is_needless) const;
  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }
  /// Returns true once the communicator has ended; only while it exists.
  [[nodiscard]] bool has_ended() const noexcept { return abort_.is_set(); }

 private:
  /// Goes once the streams' work is done.
  struct Use;

  void rest() const;

  Runtime& runtime_;
  const ForkMark fork_mark_;
  const Settings settings_;
  const backend::AbortWord& abort_;
  const std::size_t member_count_;
  const std::size_t first_member_;
  std::vector<Tensor> tensors_;                 ///< by local index
  std::vector<std::vector<std::byte*>> peers_;  ///< by local index, then member
  std::shared_ptr<ReleaseFlags> flags_;
  std::atomic<bool> is_over_ = false;
  std::mutex mutex_;
  LateReleases::ReleaseList use_;  ///< empty once the release has begun; guarded by `mutex_`
};

template <class IsNeedless>
std::vector<std::size_t> SymmetricAllocation::await_all(const IsNeedless& is_needless) const {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds moment{1};
  const auto begin = Clock::now();
  for (;;) {
    std::vector<std::size_t> users = flags_->users();
    std::erase_if(users, is_needless);
    if (users.empty()) return users;
    const auto waited = Clock::now() - begin;
    if (waited > settings_.timeout || (has_ended() && waited > moment)) return users;
    rest();
  }
}

}  // namespace tutti::transport::team
