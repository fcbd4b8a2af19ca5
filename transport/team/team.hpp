// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/descriptor_port.hpp"
#include "backend/shared_flag.hpp"
#include "backend/thread.hpp"
#include "ended_work.hpp"
#include "environment.hpp"
#include "runtime.hpp"
#include "transport/team/boards.hpp"
#include "transport/team/courier.hpp"
#include "transport/team/device_progress.hpp"
#include "transport/team/host_share.hpp"
#include "transport/team/joining.hpp"
#include "transport/team/left_memory.hpp"
#include "transport/team/live_teams.hpp"
#include "transport/team/lookout.hpp"
#include "transport/team/peer_process.hpp"
#include "transport/team/registrations.hpp"
#include "transport/team/signature.hpp"
#include "transport/team/windows.hpp"
#include "tutti/error.hpp"
#include "tutti/exchange.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::transport::ranks {

/// The ranks of one communicator: who they are, the memory they share, what they have called, and whether
/// they still go on.
///
/// Members are devices: those of rank 0 in its order, then those of rank 1, and so on. Shared memory holds an
/// abort word, one board per rank and a flag per member; where devices cannot reach one another, more of it
/// holds the members' windows. A thread watches over calls that wait for others: it ends all of them, on all
/// ranks, when one has waited too long or when a rank's process is gone.
///
/// Ranks on several hosts have shared memory on each of them, laid out alike and kept alike by a `Courier`
/// per rank; windows are in that memory then.
///
/// Thread-safe, except that `post` and `agree` are called by one thread at a time.
class Team final : public EndedWork::Source {
 public:
  struct Settings {
    std::chrono::milliseconds timeout{60'000};
    std::size_t window_bytes = 0;  ///< of each member
    TransportKind transport = TransportKind::automatic;
    TransportSource transport_source = TransportSource::options;
    Determinism determinism = Determinism::fastest;  ///< decides plans, so all ranks must have the same
    std::vector<int> devices;                        ///< this rank's members
  };

  /// Collective over the exchange. Throws on all ranks if any rank cannot take part.
  Team(Runtime& runtime, Exchange& exchange, Settings settings);
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  /// Own queued work is over. Where ranks are on several hosts, waits for the others to come here too; where
  /// members' devices hold the windows, until they need nothing more of this rank, and then a moment for them
  /// to close its windows, which are freed later if they do not. For the timeout at most, and for none whose
  /// process is known to be gone.
  ~Team();
  /// Instead of making a team: the other ranks' constructors throw, and say what this one's `complaint` is.
  static void decline(Exchange& exchange, const std::string& complaint) noexcept;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int rank_count() const noexcept { return static_cast<int>(rank_count_); }
  [[nodiscard]] std::size_t member_count() const noexcept { return rank_of_member_.size(); }
  [[nodiscard]] const std::vector<std::size_t>& rank_of_member() const noexcept { return rank_of_member_; }
  [[nodiscard]] std::size_t most_members_of_a_rank() const noexcept { return most_members_of_a_rank_; }
  [[nodiscard]] std::size_t first_local() const noexcept { return own().first_member; }
  [[nodiscard]] std::size_t local_count() const noexcept { return settings_.devices.size(); }
  [[nodiscard]] bool is_local(std::size_t member) const noexcept {
    return member >= first_local() && member < first_local() + local_count();
  }
  [[nodiscard]] const std::vector<int>& devices() const noexcept { return settings_.devices; }
  /// Frees what teams that are no more have left on these devices and nobody has open any longer, if no
  /// team's calls are under way. Not in a call of a team's.
  static void free_left_memory(Runtime& runtime, std::span<const int> devices) noexcept;

  [[nodiscard]] bool spans_hosts() const noexcept { return hosts_.size() > 1; }
  [[nodiscard]] std::size_t host_count() const noexcept { return hosts_.size(); }
  [[nodiscard]] std::size_t host_of(std::size_t rank) const noexcept { return host_of_rank_[rank]; }
  [[nodiscard]] bool is_here(std::size_t rank) const noexcept {
    return host_of_rank_[rank] == host_of_rank_[static_cast<std::size_t>(rank_)];
  }
  /// The rank on `host` that takes what `rank`, of another host, sends there.
  [[nodiscard]] std::size_t carrier(std::size_t rank, std::size_t host) const noexcept {
    return hosts_[host].ranks[rank % hosts_[host].ranks.size()];
  }
  /// Where ranks are, and what goes between the hosts, in a line; empty if there is one host.
  [[nodiscard]] std::string explain_hosts() const;
  /// nullptr if there is one host.
  [[nodiscard]] Courier* courier() const noexcept { return courier_.get(); }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return settings_.timeout; }

  /// The sequence number of the last call by rounds that the member has completed, as far as its rank knows.
  [[nodiscard]] backend::SharedFlag& done_flag(std::size_t member) const noexcept { return done_[member]; }
  /// Likewise, by marks.
  [[nodiscard]] backend::SharedFlag& passed_flag(std::size_t member) const noexcept {
    return passed_[member];
  }
  /// What rounds set: `done_flag`, or a word on the own member's device, of which the rank asks now and then.
  /// A write to host memory costs a kernel as much as a small message.
  [[nodiscard]] backend::SharedFlag& done_flag_of_rounds(std::size_t own_member) const noexcept {
    backend::TeamCounters* const counters = windows_->counters(own_member);
    return counters == nullptr ? done_[first_local() + own_member] : counters->done;
  }
  [[nodiscard]] backend::AbortWord& abort_word() const noexcept { return *abort_; }
  [[nodiscard]] RankBoard& board(std::size_t rank) const noexcept { return boards_[rank]; }
  /// The member's in the memory that this host's ranks share, where windows are in such.
  [[nodiscard]] std::byte* host_window(std::size_t member) const noexcept {
    return window_memory_->data() + member * layout_.bytes();
  }
  /// The own member has completed the call once `stream` has come to this point.
  void done_after(std::size_t own_member, std::uint64_t sequence, backend::StreamRef stream);
  [[nodiscard]] const Windows& windows() const noexcept { return *windows_; }
  /// nullptr where members do not reach one another's memory.
  [[nodiscard]] Registrations* registrations() noexcept {
    return registrations_ ? &*registrations_ : nullptr;
  }
  [[nodiscard]] const Registrations* registrations() const noexcept {
    return registrations_ ? &*registrations_ : nullptr;
  }

  /// Held while a call is being made.
  [[nodiscard]] std::mutex& calls_mutex() noexcept { return calls_mutex_; }
  /// Announces this rank's next call and compares it with the others'. Returns its sequence number.
  /// Throws what ended the team; Error(invalid_argument) with both signatures if a rank makes another call.
  [[nodiscard]] std::uint64_t post(const Signature& signature, bool is_captured);
  /// Ends the team if the call of `rank`, which is on its board, is another one than what the first rank of
  /// which this host knows has made of it.
  void compare_with_first(std::size_t rank, const Signature& signature, bool is_captured,
                          std::uint64_t sequence) noexcept;
  /// The work of the call has been queued: to complete it takes nothing more of the calling thread.
  void has_queued(std::uint64_t sequence) noexcept { last_queued_.store(sequence); }
  /// Waits until all ranks have made the call, whose signature here is `signature`. Returns their `own`
  /// numbers, by member. Throws Error(invalid_argument) with both signatures if a rank makes another call.
  [[nodiscard]] std::vector<std::uint64_t> agree(std::uint64_t sequence, const Signature& signature);

  /// Waits until `holds` says so; gives up like a call that waits too long, as call `sequence`.
  void wait_for(std::uint64_t sequence, const std::function<bool()>& holds);
  /// Ranks that are still to do their part on the host.
  using Missing = std::function<std::vector<std::size_t>()>;
  /// Waits until `missing` tells of none, which are named if it takes too long. Ends the team at once if one
  /// of them has left.
  void wait_for_ranks(std::uint64_t sequence, const Missing& missing);
  [[nodiscard]] Mailbox& mailbox(std::size_t rank, Mailbox::Kind kind) const noexcept {
    return mailboxes_[2 * rank + kind];
  }
  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }
  /// `handler` is called once, on a thread of the team's own, soon after the team has been ended. Empty:
  /// none.
  void set_abort_handler(std::function<void()> handler);

  /// Ends all waits of all ranks; the first reason is kept. True if it is this one.
  bool abort(ErrorCode code, std::string_view reason) noexcept;
  /// The same, as another host has done, for the reason that it gives.
  void abort_as_elsewhere(ErrorCode code, std::string_view reason) noexcept;
  /// Likewise, and says so: "rank 1 `cannot`: " and what has escaped. Takes no memory to end the team.
  void fail(std::string_view cannot, const backend::Escaped& escaped) noexcept;
  /// Throws the reason if the team was ended.
  void require_running() const;
  /// All own members have completed all posted calls. Looks closely.
  [[nodiscard]] bool is_idle() noexcept;
  [[nodiscard]] bool has_calls_under_way() const noexcept;
  /// The sequence number up to which all of the rank's members have completed their calls, as far as is known
  /// here.
  [[nodiscard]] std::uint64_t completed_by_rank(std::size_t rank) const noexcept;
  /// Of a team that has been ended with calls under way on the device, whose outputs may hold anything: once.
  [[nodiscard]] std::optional<Error> take_end(int device) override;
  /// Of its calls, some have been captured.
  [[nodiscard]] bool has_captured() const noexcept { return has_captured_; }
  /// While the result holds a lock, which it does not if that cannot be had at once, nothing of the team's on
  /// the own devices waits for other ranks: calls are over, are not made, and have not been captured. Does
  /// not look closely.
  [[nodiscard]] std::unique_lock<std::mutex> hold_if_idle();
  /// How many of this process have rounds that may wait on an own member's device at once, this one among
  /// them if it has other members.
  [[nodiscard]] std::uint32_t teams_beside(std::size_t own_member) const noexcept {
    return live_teams_->count_on(settings_.devices[own_member]);
  }
  /// It has been ended, and is never destroyed: others need not leave room for its rounds.
  void will_stay() noexcept { live_teams_->stop_counting(*this); }
  /// Every rank's last calls, `most_calls` of each and those from call `since` on, as JSON. `reason`: why the
  /// team is about to be ended, if it is.
  [[nodiscard]] std::string record(std::uint64_t most_calls = RankBoard::history,
                                   std::uint64_t since = UINT64_MAX, std::string_view reason = {}) const;

 private:
  [[nodiscard]] RankBoard& own() const noexcept { return boards_[static_cast<std::size_t>(rank_)]; }

  /// The ranks of one host.
  struct Host {
    std::string name;
    std::vector<std::size_t> ranks;
  };

  /// Once it has been ended.
  [[nodiscard]] Error end_reason() const;
  void join(Joining& exchange);
  /// For ranks on several hosts. Throws on all of them if it cannot be had.
  /// `reason`: why some of one name are told apart.
  [[nodiscard]] std::unique_ptr<Network> make_network(Joining& exchange, const std::string& reason) const;
  /// The first rank of this host, which makes what its ranks share.
  [[nodiscard]] std::size_t first_here() const noexcept {
    return hosts_[host_of(static_cast<std::size_t>(rank_))].ranks.front();
  }
  /// Collective: all but windows. It tells who the ranks are.
  void share_memory(Joining& exchange, std::span<const pid_t> processes);
  /// Collective: all members' windows, one after another.
  [[nodiscard]] std::byte* share_windows(Exchange& exchange);
  /// Where the parts of the shared memory lie; returns its size.
  std::size_t lay_out(std::byte* memory);
  void share_registrations(Joining& exchange);
  /// Throws on all ranks if one cannot start.
  void start_together(Joining& exchange);
  void start();
  void end() noexcept;
  void leave() noexcept;
  /// Of all others that are not known to be gone.
  [[nodiscard]] bool are_all(std::uint32_t state) const noexcept;
  /// Another rank will not look at this one's windows again.
  [[nodiscard]] bool needs_nothing(std::size_t rank) const noexcept;
  /// Others will look at this rank's windows again, or hear through its courier.
  [[nodiscard]] bool is_needed() const noexcept;
  /// Others have windows of this rank open, or hear through its courier.
  [[nodiscard]] bool is_still_open() const noexcept;
  void prepare_to_leave_memory();
  /// What others may still have open of this rank is freed when these have closed it.
  void leave_memory() noexcept;
  /// Ends the team if `other` has made call `sequence` too, and another one than `rank`, whose is
  /// `signature`.
  void compare(std::size_t rank, const Signature& signature, std::size_t other,
               std::uint64_t sequence) noexcept;
  /// Calls `holds` until it is true; gives up like a call that waits too long, for want of `missing`.
  template <class Condition>
  void wait_until(std::uint64_t sequence, Condition holds, const std::vector<std::size_t>& missing = {});
  /// The ranks that have not made call `sequence`.
  [[nodiscard]] std::vector<std::size_t> behind(std::uint64_t sequence) const;
  /// Ends the team if one of the ranks that `missing` tells of has left: it does not come any more.
  void look_for_ranks_that_left(std::uint64_t sequence, const Missing& missing);
  /// The sequence number of the last call that the member has completed.
  [[nodiscard]] std::uint32_t completed_by(std::size_t member) const noexcept;
  [[nodiscard]] std::uint64_t completed() const noexcept;
  /// Of the own calls that are waited for and not complete, the oldest that is still remembered: captured
  /// ones are not waited for.
  [[nodiscard]] std::optional<std::uint64_t> oldest_under_way() const noexcept;
  [[nodiscard]] bool has_completed(const RankBoard& of, std::uint64_t sequence) const noexcept;
  /// `missing`: the ranks that are waited for, if that is known; else those that have not completed the call.
  void give_up(std::uint64_t sequence, const std::vector<std::size_t>& missing = {});
  [[nodiscard]] std::string who_is_late(std::uint64_t sequence,
                                        const std::vector<std::size_t>& missing) const;
  /// How long ago that was, if it is remarkable: no rank that goes on is silent for so long.
  [[nodiscard]] std::optional<std::chrono::milliseconds> silence_since(std::int64_t time) const noexcept;
  /// How long the rank's courier, of which this host has word, has not come back from the network.
  [[nodiscard]] std::optional<std::chrono::milliseconds> silence_of_courier(std::size_t rank) const noexcept;
  /// What the rank itself says arrives here.
  [[nodiscard]] bool is_heard(std::size_t rank) const noexcept;
  /// It does, or others of its host say what they know of it.
  [[nodiscard]] bool is_known(std::size_t rank) const noexcept;
  /// The last call that it is known to have made.
  [[nodiscard]] std::uint64_t last_call_of(std::size_t rank) const noexcept;
  /// How long the rank's process has done nothing, as far as is known here, if that is remarkable.
  [[nodiscard]] std::optional<std::chrono::milliseconds> standstill(std::size_t rank) const noexcept;
  /// How long others are waited for until they are judged: longer for a rank that cannot hear them itself, as
  /// those who can judge first.
  [[nodiscard]] std::chrono::nanoseconds patience() const noexcept;
  [[nodiscard]] std::string call_of(const RankBoard& of, std::uint64_t sequence) const;
  /// The last calls before a timeout, as `record`; empty if there is no memory for it.
  [[nodiscard]] std::string record_of_timeout(std::uint64_t sequence, std::string_view reason) const noexcept;
  /// Writes down the flight record of the timeout that has ended the team, as far as this rank is the one
  /// that does. Waits for no reader.
  void keep_record(std::string_view record) noexcept;
  /// This host's ranks write the flight record to the log: one of all hosts'.
  [[nodiscard]] bool is_host_that_logs() const noexcept;
  /// Says in the log, once, what has ended the team, unless a rank has wanted it to end.
  void tell_of_end() noexcept;
  void watch(Lookout lookout);
  /// What the watch does once in a while. `done`: calls completed, and since when nothing more has been.
  void look_around(Lookout& lookout, std::uint64_t& done, std::int64_t& done_since);
  /// Of the other ranks of this host, those whose processes are over.
  [[nodiscard]] bool is_known_to_be_gone(std::size_t rank) const noexcept;
  void look_for_lost_ranks();
  /// Sets the done flags of calls whose marks have been passed.
  void look_at_marks() noexcept;
  /// Where devices count for themselves.
  void watch_devices();

  Runtime& runtime_;
  Settings settings_;
  const std::int64_t started_at_ = RankBoard::now();
  int rank_ = 0;
  std::size_t rank_count_ = 0;
  std::vector<std::size_t> rank_of_member_;
  std::size_t most_members_of_a_rank_ = 0;
  std::vector<Host> hosts_;  ///< in order of their first ranks
  std::vector<std::size_t> host_of_rank_;
  std::unique_ptr<Network> network_;      ///< until the courier has it
  std::shared_ptr<DescriptorPort> port_;  ///< where others of this host get memory; none if they cannot
  std::uint64_t all_have_posted_ = 0;     ///< as far as `post` has asked
  std::optional<HostShare> memory_;
  std::optional<HostShare> window_memory_;  ///< none where windows are on devices
  backend::AbortWord* abort_ = nullptr;     ///< behind it, a reason of each rank
  RankBoard* boards_ = nullptr;
  FirstCalls* first_calls_ = nullptr;
  // By member, the sequence number of the last call it has completed: by rounds, by marks. Two, because a
  // device writes the one and the host the other.
  backend::SharedFlag* done_ = nullptr;
  backend::SharedFlag* passed_ = nullptr;
  Mailbox* mailboxes_ = nullptr;
  backend::TeamWindowLayout layout_;
  RegistrationBoard* registration_boards_ = nullptr;
  RegistrationView* registration_views_ = nullptr;
  std::mutex calls_mutex_;
  std::atomic<bool> has_captured_ = false;      ///< changed under `calls_mutex_`
  std::atomic<std::uint64_t> last_queued_ = 0;  ///< likewise
  std::atomic<std::uint64_t> waits_in_ = 0;     ///< the call in which a host thread waits for others; or 0

  /// Where a stream was when a call without rounds had been queued.
  struct Mark {
    PooledEvent event;
    std::uint32_t sequence = 0;
    bool is_pending = false;
  };
  /// The oldest such call that is not complete yet, and the latest: those in between need no marks.
  struct Marks {
    Mark oldest;
    Mark latest;
  };
  void record(Mark& mark, std::uint64_t sequence, backend::StreamRef stream);
  /// True if the mark was pending and has been passed.
  [[nodiscard]] bool is_passed(Mark& mark);

  std::mutex marks_mutex_;
  std::vector<Marks> marks_;                     ///< by own member; guarded by `marks_mutex_`
  std::atomic<std::uint64_t> last_awaited_ = 0;  ///< the last own call that is not captured
  std::vector<std::atomic<bool>> has_told_end_;  ///< by own member: `take_end`

  // Destroyed before what they use, which is above: shared memory, mutexes, marks.
  std::optional<Windows> windows_;
  std::optional<Registrations> registrations_;
  std::optional<DeviceProgress> progress_;  ///< none where devices write to host memory

  std::list<LeftMemory::Left> left_;    ///< one, where members' devices hold the windows
  std::vector<PeerProcess> processes_;  ///< by rank; none for the own one and those of other hosts
  std::shared_ptr<LiveTeams> live_teams_;
  std::mutex watch_mutex_;
  std::condition_variable watch_stops_;
  bool stop_watching_ = false;
  std::function<void()> abort_handler_;         ///< guarded by `watch_mutex_`
  std::atomic<bool> has_told_ = false;          ///< of the end, in the log
  std::atomic<bool> has_told_failure_ = false;  ///< of a thread that cannot go on
  backend::Thread watch_;
  std::unique_ptr<Courier> courier_;
};

}  // namespace tutti::transport::ranks
