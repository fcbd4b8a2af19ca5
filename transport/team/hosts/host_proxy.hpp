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

/// Carries one rank's news to the other hosts, and receives theirs.
///
/// A thread watches this rank's part of the shared state and sends what is new to one rank of every other
/// host, always the same; that rank's thread writes it into its host's mirrors (`Mirror`), in the order in
/// which it was sent. So the rest of a team need not know which ranks are on other hosts.
///
/// Queues are bounded by the team's protocol: a rank gets at most `RankStatus::furthest_ahead` calls ahead of
/// the slowest, and a slot holds the bytes of one round until all hosts have read them.
///
/// Thread-safe.
class HostProxy {
 public:
  /// The arguments must outlive the thread's work. A thread that does not come back from the network (see
  /// `stop`) no longer uses them.
  HostProxy(const Membership& membership, const SharedState& state, Mirror& mirror, const Progress& progress,
            Abort& abort, LocalNews& news, std::unique_ptr<Network> network);
  HostProxy(const HostProxy&) = delete;
  HostProxy& operator=(const HostProxy&) = delete;
  ~HostProxy();

  void start();
  /// Stops the thread, without waiting for other ranks: see `has_delivered`. Returns false if the thread does
  /// not come back from the network: then it uses nothing but the host proxy any more, which must not be
  /// destroyed.
  [[nodiscard]] bool stop() noexcept;

  /// Announces that local member `member` puts `bytes` into its slot for `round`, numbered through all calls,
  /// and sets the flags of `readers` afterwards. Called in order of rounds.
  void expect(std::size_t member, std::uint64_t round, std::uint64_t bytes,
              std::span<const std::uint32_t> readers);
  /// Returns true if it has sent the contents of the local mailbox.
  [[nodiscard]] bool has_carried(Mailbox::Kind kind) const noexcept { return mirror_.has_sent(kind); }
  /// Returns true if the other hosts have received all news of this rank, including the last,
  /// `RankStatus::left`, or never will.
  [[nodiscard]] bool has_delivered() const noexcept { return has_delivered_.load(); }
  /// Returns true if the network has failed; the team has been ended for that.
  [[nodiscard]] bool is_broken() const noexcept { return is_broken_.load(); }
  [[nodiscard]] Network& network() noexcept { return *network_; }

 private:
  /// The thread's position: in this class, in a call of the network, or abandoned there.
  enum class Place : std::uint8_t { here, in_network, left_there };
  struct LeftThere {};

  void run();
  /// Sends and receives until it is to stop.
  void work();
  /// Ends the team because the network, or the thread's own work, has failed.
  void give_up(const backend::Escaped& escaped) noexcept;
  /// Calls the network, where the thread may stay for ever. Throws LeftThere if nobody waits for it any more.
  template <class Call>
  auto in_network(const Call& call);
  /// Sends what is new. Returns false if nothing is.
  bool send();
  /// Removes the parcels from the queues whose bytes have been put, and returns them.
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
