// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/meeting/meeting_protocol.hpp"
#include "tutti/exchange.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace tutti::nccl_api {

/// A meeting of all parties of a communicator, each of which is one rank of tutti, as a party sees it.
class Meeting final : public Exchange {
 public:
  /// Comes with some ranks of `ranks`, and returns when all have come. Throws a `Refusal` that says who has
  /// not, or why the meeting is none. All waits end by what `require_wish` throws, if there is such.
  Meeting(const MeetingAddress& address, int ranks, const Party& party, std::chrono::milliseconds timeout,
          std::function<void()> require_wish = {});
  ~Meeting() override;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(parties_.size()); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  void limit_waits(std::chrono::milliseconds timeout) override { timeout_ = timeout; }

  /// Returns all parties, in order of ranks.
  [[nodiscard]] std::span<const Party> parties() const noexcept { return parties_; }

 private:
  /// Sends a message, and returns the answer.
  std::vector<std::byte> ask(std::span<const std::byte> message);
  void write(std::span<const std::byte> bytes);
  void read(std::span<std::byte> bytes);
  void await(short events);

  Descriptor socket_;
  std::chrono::milliseconds timeout_;
  std::function<void()> require_wish_;
  std::chrono::steady_clock::time_point deadline_;
  std::vector<Party> parties_;
  int rank_ = 0;
};

}  // namespace tutti::nccl_api
