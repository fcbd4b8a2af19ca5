// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/fork_mark.hpp"
#include "collectives/bootstrap/tcp/place.hpp"
#include "collectives/bootstrap/tcp/waiting_newcomers.hpp"
#include "os/descriptor.hpp"
#include "os/thread.hpp"

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>

namespace tutti::tcp {

/// A place that this process holds open: a thread of its own accepts connections there, except while an
/// entrance does.
class OpenPlace {
 public:
  /// Opens the place. Throws as the constructor of `OpenMeetingPoint`.
  [[nodiscard]] static std::shared_ptr<OpenPlace> at(const Place& place, std::size_t most);
  /// Returns the one that this process holds open at the place, or nullptr.
  [[nodiscard]] static std::shared_ptr<OpenPlace> find(const Place& place) {
    return WaitingNewcomers::owner_at(place);
  }

  OpenPlace(const Place& place, std::size_t most);
  OpenPlace(const OpenPlace&) = delete;
  OpenPlace& operator=(const OpenPlace&) = delete;
  ~OpenPlace();

  [[nodiscard]] std::size_t waiting_count() const noexcept {
    return fork_mark_.is_in_child() ? 0 : waiting_count_.load();
  }
  /// Returns whether those who come to the place have the secret and the job of those who wait here.
  [[nodiscard]] bool has_key_of(const Place& place) const { return newcomers_.has_key_of(place); }

  /// Takes those who wait from the thread, until `give_back`. Returns nullptr if somebody else has them.
  [[nodiscard]] WaitingNewcomers* take();
  void give_back() noexcept;
  /// Updates `waiting_count`. Call it after each look at who waits.
  void count() noexcept { waiting_count_.store(newcomers_.count()); }

 private:
  void run();
  void look();
  /// Waits until somebody comes or leaves, or it is woken.
  void wait(std::unique_lock<std::mutex>& lock);
  void wake() const noexcept;

  const ForkMark fork_mark_;
  std::mutex mutex_;
  bool is_taken_ = false;
  bool is_closing_ = false;
  bool has_failed_ = false;  ///< in the last look
  WaitingNewcomers newcomers_;
  std::atomic<std::size_t> waiting_count_{0};
  const Descriptor bell_;
  backend::Thread thread_;
};

}  // namespace tutti::tcp
