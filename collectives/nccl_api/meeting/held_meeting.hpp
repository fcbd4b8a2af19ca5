// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/meeting/meeting_protocol.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::nccl_api {

class HeldMeeting;

/// A connection to the host of meetings. Reads and writes without blocking.
class Visitor {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Visitor(Descriptor socket) : socket_(std::move(socket)) {}

  [[nodiscard]] int number() const noexcept { return socket_.number(); }
  /// Takes in what has come. Returns false if the other end is gone, or sends what no rank sends.
  [[nodiscard]] bool receive();
  /// Returns whether a whole message is there that has not been answered.
  [[nodiscard]] bool has_message() const noexcept;
  /// Returns the message's bytes, and when its sender gives up.
  [[nodiscard]] std::span<const std::byte> message() const noexcept;
  [[nodiscard]] Clock::time_point deadline() const noexcept { return deadline_; }
  /// Drops the message and queues an answer.
  void answer(ncclResult_t result, std::span<const std::byte> bytes);
  /// Sends what is queued as far as it goes. Returns false if the other end is gone.
  [[nodiscard]] bool send();
  [[nodiscard]] bool is_sending() const noexcept { return sent_ < out_.size(); }

  Party party{};
  HeldMeeting* meeting = nullptr;  ///< where it takes part
  bool is_over = false;            ///< to be closed once everything is sent

 private:
  [[nodiscard]] MeetingMessage head() const noexcept;

  Descriptor socket_;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
  std::size_t sent_ = 0;
  Clock::time_point deadline_ = Clock::time_point::max();
};

/// One meeting: ranks come, exchange parts any number of times, and leave.
class HeldMeeting {
 public:
  /// Makes a meeting for ranks of a new communicator; or, if `members` is more than 0, for that many ranks of
  /// one that grows and new ones.
  explicit HeldMeeting(int members) : members_(members) {}

  /// Takes a party in, whose arrival is the visitor's message. Refuses it with a sentence if it cannot be.
  void take(Visitor& visitor, const Arrival& arrival);
  /// Answers all, if each has sent its message.
  void advance();
  /// Ends the meeting if a rank has waited for too long.
  void end_if_late(Visitor::Clock::time_point now);
  /// Takes note that the visitor's connection has ended.
  void lose(Visitor& visitor);
  [[nodiscard]] bool is_over() const noexcept { return is_over_; }
  /// Returns whether a party has ever been taken in.
  [[nodiscard]] bool has_begun() const noexcept { return ranks_ > 0; }
  [[nodiscard]] Visitor::Clock::time_point next_deadline() const noexcept;

 private:
  /// Says why the party cannot take part; empty if it can.
  [[nodiscard]] std::string reason_against(const Arrival& arrival) const;
  /// Says so of a party that comes to a communicator that grows.
  [[nodiscard]] std::string reason_against_growth(const Arrival& arrival) const;
  void fail(ncclResult_t result, std::string_view sentence);
  void answer_arrivals();
  void answer_parts();
  [[nodiscard]] std::string missing_ranks() const;
  [[nodiscard]] bool is_waiting() const noexcept;

  int members_;
  int ranks_ = 0;
  bool is_complete_ = false;
  bool is_over_ = false;
  std::optional<int> left_;         ///< a rank that has left a complete meeting
  std::vector<Visitor*> visitors_;  ///< in order of ranks
};

}  // namespace tutti::nccl_api
