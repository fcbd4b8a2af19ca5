// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/call.hpp"
#include "collectives/nccl_api/join_request.hpp"
#include "collectives/nccl_api/meeting/meeting_protocol.hpp"
#include "collectives/nccl_api/member_parts.hpp"
#include "tutti/communicator.hpp"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tutti::nccl_api {

/// The ranks of a communicator that one thread has made together: local members of one `Communicator`. A call
/// needs the calls of all of them, which come in one group or from several threads.
class Clique {
 public:
  /// `token` is that of the meeting of its ranks, with zeros alone if there was none.
  explicit Clique(Communicator communicator, const Token& token = {});
  Clique(const Clique&) = delete;
  Clique& operator=(const Clique&) = delete;
  ~Clique();

  [[nodiscard]] Communicator& communicator() noexcept { return communicator_; }
  /// Returns what puts communicators in the same order in all threads of all their processes.
  [[nodiscard]] std::pair<Token, std::uint64_t> place() const noexcept { return {token_, number_}; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(devices_.size()); }
  [[nodiscard]] int first_rank() const noexcept { return first_rank_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] Device device(int local) const noexcept { return devices_[static_cast<std::size_t>(local)]; }

  /// Queues one call of a clique of one.
  void carry_out(const Call& call);
  /// Queues messages of a clique of one, as one batch.
  void send_and_receive(std::span<const Call> messages);
  /// Queues a collective that every member has called once, in order of ranks, if no thread waits for calls
  /// of other members or queues some. Returns false if that is so, and queues nothing.
  [[nodiscard]] bool carry_out_at_once(std::span<const Call> calls);
  /// Queues what some of the members have called, once the calls of the others are there. Throws a `Refusal`
  /// if they do not come in time; the communicator has ended then.
  void carry_out(std::span<Batch> batches);
  /// Splits the communicator: calls `work` in one thread, with the parts of all members, once they are there.
  /// Throws what `work` throws, in all threads, or a `Refusal` if a member's part does not come in time; the
  /// communicator has ended then.
  void split(std::vector<Splitting> own, const std::function<void(std::vector<Splitting>)>& work);
  /// Calls `work` in the same way with the parts of all members in the growth of the communicator.
  void grow(std::vector<Growing> own, const std::function<void(std::vector<Growing>)>& work);
  /// Makes a meeting at which the communicator may grow. If one has been made before and nobody has taken it,
  /// who waits there is told that nobody comes.
  [[nodiscard]] MeetingAddress announce_growth();
  /// Returns the meeting that has been announced and that nobody has taken.
  [[nodiscard]] std::optional<MeetingAddress> take_growth() { return exchange_growth(std::nullopt); }
  /// Ends the communicator, and returns when no thread is in a call of it any more.
  void abort();

 private:
  using Queue = std::deque<Batch*>;
  using Lock = std::unique_lock<std::mutex>;

  [[nodiscard]] std::optional<MeetingAddress> exchange_growth(std::optional<MeetingAddress> address);
  void carry_out_collectives(std::span<Batch> batches);
  void carry_out_messages(std::span<Batch> batches);
  [[nodiscard]] bool have_all_called() const noexcept;
  /// Returns how many more messages have been sent than received, by sender and receiver, among members.
  [[nodiscard]] std::map<std::pair<int, int>, int> unpaired_messages() const;
  [[nodiscard]] bool are_messages_paired() const;
  void issue_next(Lock& lock);
  void issue_messages(Lock& lock);
  void issue(Lock& lock, std::span<Batch* const> batches, const std::function<void()>& work);
  /// Calls `work` without the lock, while no other thread issues. Returns what it throws.
  template <class Work>
  [[nodiscard]] std::exception_ptr issue_alone(Lock& lock, const Work& work);
  void await(Lock& lock, std::span<Batch> batches, const std::function<void()>& progress);
  void withdraw(std::span<Batch> batches);
  /// Returns the first rank whose call the batches wait for.
  [[nodiscard]] int missing_rank(std::span<Batch> batches) const;

  /// Counts a thread that is in a call, as long as it lives.
  class Caller {
   public:
    explicit Caller(Clique& clique) noexcept : clique_(clique) {
      clique_.callers_.fetch_add(1, std::memory_order_relaxed);
    }
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;
    ~Caller() {
      if (clique_.callers_.fetch_sub(1, std::memory_order_release) == 1) clique_.callers_.notify_all();
    }

   private:
    Clique& clique_;
  };

  Communicator communicator_;
  Token token_;
  std::uint64_t number_;  ///< of the process: in it, communicators may be without tokens
  std::atomic<int> callers_{0};
  std::vector<Device> devices_;
  int first_rank_;
  int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_issuing_ = false;         ///< under the mutex, as all below
  std::vector<Queue> collectives_;  ///< of each member
  std::vector<Batch*> messages_;
  MemberParts<Splitting> splits_{"ncclCommSplit", changed_};
  MemberParts<Growing> growths_{"ncclCommGrow", changed_};
  std::optional<MeetingAddress> growth_;  ///< announced, and not taken
};

}  // namespace tutti::nccl_api
