// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/folder/box.hpp"
#include "collectives/bootstrap/tcp/cipher.hpp"
#include "tutti/error.hpp"
#include "tutti/shared_folder.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

/// The meeting of a job's ranks in a shared folder.
///
/// In the job's folder, rank r writes "hello-r-N" with a number N that it has drawn. Rank 0 has drawn a
/// number S and made the folder "session-S"; it answers by "welcome-r-N", which holds S, or "refusal-r-N",
/// which holds a reason. The rank then writes "here-r", which holds N, into the session's folder, signed by a
/// key that depends on S. When all are here, rank 0 writes "go", which holds the numbers of those it has
/// seen. Nobody knows N before it is drawn, so the welcome is new; nobody knows S before, so what is signed
/// by the session's key is new, too.
///
/// Nobody needs space to leave, or to say why: the disk may be full. "here-r" is removed when rank r no
/// longer uses the session; who removes the last one removes the folder. "spare-r" is removed when the rank
/// leaves the exchange, or becomes "stop", which holds the reason why the exchange is over for all.
namespace tutti::shared_folder {

/// Polls until a deadline, the longer it lasts the less often.
class Wait {
 public:
  explicit Wait(std::chrono::milliseconds timeout) : end_(std::chrono::steady_clock::now() + timeout) {}

  [[nodiscard]] bool is_over() const { return std::chrono::steady_clock::now() >= end_; }
  void pause() {
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(2 * pause_, longest);
  }

 private:
  static constexpr std::chrono::microseconds shortest{100};
  static constexpr std::chrono::microseconds longest{20'000};

  std::chrono::steady_clock::time_point end_;
  std::chrono::microseconds pause_ = shortest;
};

/// The ranks that have met, and their folder. When its last user on each rank has gone, or the meeting has
/// failed on all, the files are removed.
class Session {
 public:
  /// Meets the other ranks. Throws what the constructor of `Exchange` does.
  [[nodiscard]] static std::shared_ptr<Session> meet(const Rendezvous& rendezvous);
  /// Says hello to rank 0 under the number that it has drawn.
  struct Visitor {
    int rank = 0;
    std::string number;
  };
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] const tcp::Key& key() const noexcept { return key_; }
  [[nodiscard]] const Box& box() const noexcept { return *box_; }
  void put(const std::string& name, std::span<const std::byte> bytes) const {
    box_->put(key_, name_, name, bytes);
  }
  [[nodiscard]] std::optional<Bytes> get(const std::string& name) const {
    return box_->get(key_, name_, name);
  }
  /// Tells the ranks that wait in the exchange that it is over, and why, unless this rank has left it. Needs
  /// no space.
  void stop(const Error& error) const noexcept;
  /// Throws the error that another rank has told.
  void require_going_on() const;
  /// Leaves the exchange.
  void leave() const noexcept { box_->remove(spare_name(rank_)); }
  /// Returns whether a rank has left the exchange, or stopped it.
  [[nodiscard]] bool has_left(int rank) const { return !box_->has(spare_name(rank)); }

 private:
  explicit Session(const Rendezvous& rendezvous);
  [[nodiscard]] static std::string spare_name(int rank) { return "spare-" + std::to_string(rank); }
  [[nodiscard]] static std::string here_name(int rank) { return "here-" + std::to_string(rank); }
  void enter(const std::string& number);
  /// Writes what says that this rank is in the session.
  void arrive(std::string_view number) const;
  /// Removes that, and the session with the last rank's.
  void depart() const noexcept;
  void host(std::chrono::milliseconds timeout);
  void answer(const std::string& hello);
  void refuse(const Visitor& visitor, const std::string& reason);
  /// Returns the numbers of the ranks from 1 on; empty ones of those that are missing.
  [[nodiscard]] std::vector<std::string> arrivals() const;
  /// Returns the numbers of those with whom the session goes on.
  [[nodiscard]] std::vector<std::string> await_all(std::chrono::milliseconds timeout);
  void visit(std::chrono::milliseconds timeout);
  /// Meets the others under a number. Returns false if rank 0 has been started anew meanwhile.
  [[nodiscard]] bool has_met_as(const std::string& number, Wait& wait);
  /// Removes what this rank has written under a number to be let in, and the answer.
  void forget(const std::string& number) const noexcept;
  /// Says hello with a number. Returns the name of the session to which rank 0 has invited this rank.
  [[nodiscard]] std::string wait_for_welcome(Wait& wait, const std::string& number);
  /// Calls `work`. If it fails as the last rank of an earlier meeting has just removed the job's folder,
  /// makes that anew; `work` is to be done again.
  void unless_removed(const std::function<void()>& work);
  /// Returns the numbers of all ranks that have met, or nothing if the session is gone. Sees that this rank
  /// counts as arrived meanwhile, by its number or another process's.
  [[nodiscard]] std::optional<Bytes> wait_for_go(Wait& wait, const std::string& number) const;
  /// Removes what says that this rank is in a session that has not met, unless another process is there as
  /// this rank. Tells the others of an error about the folder, as far as there is space.
  void withdraw(const std::string& number, const Error& error) const noexcept;
  /// Removes what ranks have written to meet, and refuses whoever was invited and is not among those who met.
  void clear(const std::vector<std::string>& met) noexcept;
  [[noreturn]] void fail(ErrorCode code, const std::string& what) const;

  Box shared_;
  std::string job_name_;
  Box job_;
  tcp::Key job_key_;
  int rank_;
  int size_;
  std::string name_;  ///< of the session's folder
  tcp::Key key_{};
  std::vector<Visitor> invited_;    ///< by rank 0
  std::set<std::string> refusals_;  ///< names of files by rank 0, which those who are refused remove
  std::optional<Box> box_;
  bool has_met_ = false;
};

}  // namespace tutti::shared_folder
