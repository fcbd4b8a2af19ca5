// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/thread.hpp"
#include "transport/team/boards.hpp"
#include "transport/team/signature.hpp"
#include "tutti/exchange.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace tutti::transport::ranks {

class Team;

/// Carries what one rank of a team says to the other hosts, and what they say to this one.
///
/// Every host has shared memory of its own, in which the parts of other hosts' ranks and members are mirrors.
/// A thread looks at the own rank's parts and sends what is new to one rank of every other host, always the
/// same; that rank's thread writes it into its host's mirrors, in the order in which it was sent: a call
/// before the bytes that belong to it, bytes before the flags that announce them. So the rest of a team need
/// not know which ranks are elsewhere.
///
/// Nothing is sent that the protocol of a team does not allow for: a rank gets `RankBoard::furthest_ahead`
/// calls ahead of the slowest, and a slot holds the bytes of one round until all hosts have read them. That
/// bounds what waits to be sent or received.
///
/// Thread-safe.
class Courier {
 public:
  /// Of a team whose memory is complete. The team outlives the courier and, as long as it works, knows it.
  Courier(Team& team, std::unique_ptr<Network> network);
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;
  ~Courier();

  void start();
  /// Waits for no other rank: see `has_delivered`. False if the thread does not come back from the network:
  /// it touches nothing but the courier any more, which must not be destroyed.
  [[nodiscard]] bool stop() noexcept;

  /// Something of the own rank has changed: not needed, but quicker.
  void wake() noexcept;
  /// Own member `member` puts `bytes` into its slot for `round`, numbered through all calls, and sets the
  /// flags of `readers` afterwards. Called in order of rounds.
  void expect(std::size_t member, std::uint32_t round, std::uint64_t bytes,
              std::span<const std::uint32_t> readers);
  /// Has sent what the own mailbox holds.
  [[nodiscard]] bool has_carried(Mailbox::Kind kind) const noexcept;
  /// The other hosts have received all that the own rank has to say, to its last word, `RankBoard::left`; or
  /// they never will.
  [[nodiscard]] bool has_delivered() const noexcept { return has_delivered_.load(); }
  /// The network has failed; the team has been ended for that.
  [[nodiscard]] bool is_broken() const noexcept { return is_broken_.load(); }
  [[nodiscard]] Network& network() noexcept { return *network_; }

 private:
  /// Bytes that an own member puts for readers on other hosts.
  struct Parcel {
    std::uint32_t member = 0;
    std::uint32_t round = 0;
    std::uint64_t bytes = 0;
    std::vector<std::uint32_t> readers;  ///< on other hosts
  };
  /// How far an own member has come.
  struct Progress {
    std::uint32_t done = 0;
    std::uint32_t passed = 0;
    std::uint32_t finished = 0;
    friend bool operator==(const Progress&, const Progress&) = default;
  };
  class Writer;
  class Reader;
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
  void add_news(Writer& news);
  /// What this host knows of the others of its ranks.
  void add_hearsay(Writer& news) const;
  [[nodiscard]] std::vector<Parcel> parcels_ready();
  void add_parcel(Writer& message, const Parcel& parcel, std::span<const std::uint32_t> readers) const;
  /// Writes a message into the mirrors.
  void deliver(const Network::Message& message);
  void deliver_call(std::size_t rank, Reader& message);
  void deliver_hearsay(Reader& message);
  void deliver_mail(std::size_t rank, Reader& message);
  void deliver_progress(Reader& message);
  void deliver_parcel(Reader& message);

  Team& team_;
  std::unique_ptr<Network> network_;
  std::vector<int> receivers_;               ///< by host, the rank to send to; -1 for the own one
  std::vector<std::uint32_t> members_here_;  ///< of all ranks of this host

  // What has been sent; of the thread alone.
  std::uint32_t state_ = RankBoard::joining;
  std::uint64_t sequence_ = 0;
  std::int64_t watched_at_ = 0;
  std::vector<Progress> progress_;  ///< by own member
  bool abort_ = false;
  struct Mail {
    std::atomic<std::uint64_t> written{0};
    std::uint64_t read = 0;
  };
  Mail mail_[2];

  std::atomic<Place> place_ = Place::here;
  std::atomic<bool> is_over_ = false;  ///< the thread is about to end
  std::atomic<bool> has_delivered_ = false;
  std::atomic<bool> is_broken_ = false;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool is_woken_ = false;                     ///< guarded by `mutex_`
  bool stops_ = false;                        ///< likewise
  std::vector<std::deque<Parcel>> expected_;  ///< likewise; by own member
  backend::Thread thread_;
};

}  // namespace tutti::transport::ranks
