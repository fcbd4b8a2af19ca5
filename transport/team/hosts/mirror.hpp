// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/shared_flag.hpp"
#include "transport/team/calls/call_log.hpp"
#include "transport/team/hosts/host_proxy_messages.hpp"
#include "transport/team/hosts/link_mirror.hpp"
#include "transport/team/lateness/flight_record.hpp"
#include "transport/team/progress/abort.hpp"
#include "transport/team/progress/progress.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/shared_state.hpp"
#include "transport/team/windows/windows.hpp"
#include "tutti/error.hpp"
#include "tutti/exchange.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::transport::team {

/// Bytes that a local member puts for readers on other hosts.
struct Parcel {
  std::uint32_t member = 0;
  std::uint64_t round = 0;
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> readers;  ///< on other hosts
};

/// Keeps the shared memory of several hosts alike: collects what is new of this rank, and writes the news of
/// ranks on other hosts into their mirrors, the parts of this host's memory that belong to them. The order of
/// a rank's messages is kept: a call comes before its bytes, and bytes before the flags that announce them.
/// For one thread, except `has_sent`.
class Mirror {
 public:
  Mirror(const Membership& membership, const SharedState& state, const Windows& windows,
         const Progress& progress, CallLog& calls, const FlightRecord& record, Abort& abort,
         std::chrono::milliseconds timeout);
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;
  ~Mirror() = default;

  /// Returns true if the bytes have been put.
  [[nodiscard]] bool is_ready(const Parcel& parcel) const noexcept;
  /// Begins to collect this rank's news. If the state at this point is the last one, then what
  /// `add_link_news` and `add_news` add afterwards is complete.
  void begin_news() noexcept { state_seen_ = state_.status(membership_.rank()).state.load(); }
  /// Adds news of messages to and from members on `host`, as `LinkMirror::add_news` does.
  void add_link_news(MessageWriter& news, std::size_t host, const std::function<void()>& may_send) {
    links_.add_news(news, host, may_send);
  }
  /// Adds all other news, for all hosts. Must be sent after `add_link_news`'s.
  void add_news(MessageWriter& news);
  /// Adds the bytes, for these of its readers.
  void add_parcel(MessageWriter& message, const Parcel& parcel, std::span<const std::uint32_t> readers) const;
  /// Returns true if the news so far include the contents of the local mailbox.
  [[nodiscard]] bool has_sent(Mailbox::Kind kind) const noexcept;
  /// Returns true if the news so far include the last one, `RankStatus::left`.
  [[nodiscard]] bool has_sent_all() const noexcept { return state_sent_ == RankStatus::left; }

  /// Writes a message into the mirrors. Throws Error(internal) if it is malformed.
  void deliver(const Network::Message& message);

 private:
  using Record = MessageRecord;
  /// A local member's progress.
  struct MemberProgress {
    std::uint32_t done = 0;
    std::uint32_t passed = 0;
    std::uint32_t finished = 0;
    friend bool operator==(const MemberProgress&, const MemberProgress&) = default;
  };
  /// The part of a mailbox that has been sent.
  struct Mail {
    std::atomic<std::uint64_t> written{0};
    std::uint64_t read = 0;
  };

  void add_calls(MessageWriter& news, std::uint64_t posted);
  void add_mail(MessageWriter& news, Mailbox::Kind kind);
  void add_progress(MessageWriter& news);
  void add_abort(MessageWriter& news);
  /// Adds what this host knows of its other ranks.
  void add_gossip(MessageWriter& news) const;
  void end_as_elsewhere(ErrorCode code, std::string_view reason) noexcept;
  void deliver_call(std::size_t rank, MessageReader& message);
  void deliver_last_message(std::size_t rank, MessageReader& message);
  void deliver_gossip(MessageReader& message);
  void deliver_mail(std::size_t rank, MessageReader& message);
  void deliver_progress(MessageReader& message);
  void deliver_parcel(MessageReader& message);

  const Membership& membership_;
  const SharedState state_;
  const Windows& windows_;
  const Progress& progress_;
  CallLog& calls_;
  const FlightRecord& record_;
  Abort& abort_;
  const std::chrono::milliseconds timeout_;
  std::vector<std::uint32_t> members_here_;  ///< of all ranks of this host

  LinkMirror links_;
  std::uint32_t state_seen_ = RankStatus::joining;
  std::uint32_t state_sent_ = RankStatus::joining;
  std::uint64_t sequence_sent_ = 0;
  std::uint64_t message_sent_ = 0;  ///< of `RankStatus::last_message`
  std::int64_t watched_at_sent_ = 0;
  std::vector<MemberProgress> progress_sent_;  ///< by local index
  bool is_abort_sent_ = false;
  std::array<Mail, 2> mail_sent_;  ///< by kind
};

}  // namespace tutti::transport::team
