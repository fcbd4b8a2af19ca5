// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/meeting/meeting_protocol.hpp"
#include "tutti/exchange.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::nccl_api {

/// Tells for which call of the interface a party comes to a meeting.
struct Visit {
  const char* function = "ncclCommInitRank";
  Purpose purpose = Purpose::make;
  /// Called several times a second while the party waits; what it throws ends the wait. May be empty.
  std::function<void()> require_wish{};
};

/// A meeting of all parties of a communicator, each of which is one rank of tutti, as a party sees it.
class Meeting final : public Exchange {
 public:
  /// Comes with some ranks of `ranks`, and returns when all have come. Throws a `Refusal` that says who has
  /// not, or why the meeting is none.
  Meeting(const MeetingAddress& address, int ranks, const Party& party, std::chrono::milliseconds timeout,
          Visit visit);
  ~Meeting() override;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(parties_.size()); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  void limit_waits(std::chrono::milliseconds timeout) override { timeout_ = timeout; }

  /// Returns all parties, in order of ranks.
  [[nodiscard]] std::span<const Party> parties() const noexcept { return parties_; }

 private:
  [[noreturn]] void fail(std::string_view sentence, ncclResult_t result = ncclRemoteError) const;
  /// Sends a message, and returns the answer.
  std::vector<std::byte> ask(std::span<const std::byte> message);
  void write(std::span<const std::byte> bytes);
  void read(std::span<std::byte> bytes);
  void await(short events);

  Visit visit_;
  Descriptor socket_;
  std::chrono::milliseconds timeout_;
  std::chrono::steady_clock::time_point deadline_;
  std::vector<Party> parties_;
  int rank_ = 0;
};

/// Tells who waits at a meeting of a communicator that grows, or is split, that there will be none. Does
/// nothing if all have met, or the meeting is over.
void call_off(const MeetingAddress& address) noexcept;

}  // namespace tutti::nccl_api
