// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/thread.hpp"
#include "transport/team/hosts/mirror.hpp"
#include "transport/team/progress/abort.hpp"
#include "transport/team/progress/local_news.hpp"
#include "transport/team/progress/progress.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/rank_status.hpp"
#include "transport/team/shared/shared_state.hpp"
#include "tutti/exchange.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace tutti::transport::team {

/// Carries what one rank of a team says to the other hosts, and what they say to this one.
///
/// A thread looks at this rank's part of the shared state and sends what is new to one rank of every other
/// host, always the same; that rank's thread writes it into its host's mirrors (`Mirror`), in the order in
/// which it was sent. So the rest of a team need not know which ranks are elsewhere.
///
/// Nothing is sent that the protocol of a team does not allow for: a rank gets `RankStatus::furthest_ahead`
/// calls ahead of the slowest, and a slot holds the bytes of one round until all hosts have read them. That
/// bounds what waits to be sent or received.
///
/// Thread-safe.
class HostProxy {
 public:
  /// What it is given outlives its thread's work. Of a thread that does not come back from the network (see
  /// `stop`), none of it is used any more.
  HostProxy(const Membership& membership, const SharedState& state, Mirror& mirror, const Progress& progress,
            Abort& abort, LocalNews& news, std::unique_ptr<Network> network);
  HostProxy(const HostProxy&) = delete;
  HostProxy& operator=(const HostProxy&) = delete;
  ~HostProxy();

  void start();
  /// Waits for no other rank: see `has_delivered`. False if the thread does not come back from the network:
  /// it touches nothing but the host proxy any more, which must not be destroyed.
  [[nodiscard]] bool stop() noexcept;

  /// Member `member`, a local one, puts `bytes` into its slot for `round`, numbered through all calls, and
  /// sets the flags of `readers` afterwards. Called in order of rounds.
  void expect(std::size_t member, std::uint64_t round, std::uint64_t bytes,
              std::span<const std::uint32_t> readers);
  /// Whether it has sent what the local mailbox holds.
  [[nodiscard]] bool has_carried(Mailbox::Kind kind) const noexcept { return mirror_.has_sent(kind); }
  /// Whether the other hosts have received all that this rank has to say, to its last word,
  /// `RankStatus::left`; or never will.
  [[nodiscard]] bool has_delivered() const noexcept { return has_delivered_.load(); }
  /// The network has failed; the team has been ended for that.
  [[nodiscard]] bool is_broken() const noexcept { return is_broken_.load(); }
  [[nodiscard]] Network& network() noexcept { return *network_; }

 private:
  /// Where the thread is.
  enum class Place : std::uint8_t { here, in_network, left_there };
  struct LeftThere {};

  void run();
  /// What it does until it is to stop.
  void work();
  /// The network has failed, or else what the thread does.
  void give_up(const backend::Escaped& escaped) noexcept;
  /// Calls the network, where the thread may stay for ever. Throws LeftThere if nobody waits for it any more.
  template <class Call>
  auto in_network(const Call& call);
  /// Sends what is new. False if nothing is.
  bool send();
  /// Takes the parcels out of the queues whose bytes have been put.
  [[nodiscard]] std::vector<Parcel> parcels_ready();

  const Membership& membership_;
  const SharedState state_;
  Mirror& mirror_;
  const Progress& progress_;
  Abort& abort_;
  LocalNews& news_;
  std::unique_ptr<Network> network_;
  std::vector<int> receivers_;  ///< by host, the rank to send to; -1 for this one
  std::atomic<Place> place_ = Place::here;
  std::atomic<bool> is_over_ = false;  ///< the thread is about to end
  std::atomic<bool> has_delivered_ = false;
  std::atomic<bool> is_broken_ = false;
  std::atomic<bool> is_stopping_ = false;
  std::mutex mutex_;
  std::vector<std::deque<Parcel>> expected_;  ///< by local index; guarded by `mutex_`
  backend::Thread thread_;
};

}  // namespace tutti::transport::team
