// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/team/team.hpp"
#include "tutti/exchange.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tutti::transport::team {

/// An exchange among ranks of a team, through mailboxes in its shared memory. A wait in it ends like one in a
/// call: it throws when the team is ended, and ends the team when it lasts too long, naming who does not
/// come, or when one of those has left. Until `limit_waits`, waits are as patient as the call.
class TeamExchange final : public Exchange {
 public:
  /// Among all ranks, in the call `sequence`, which all make.
  TeamExchange(Team& team, std::uint64_t sequence);
  /// Among some of them, one after another in the order of `ranks`; `starts` are their own `part_start`.
  TeamExchange(Team& team, std::uint64_t sequence, std::vector<std::size_t> ranks,
               std::vector<std::uint64_t> starts);

  [[nodiscard]] int rank() const override { return position_; }
  [[nodiscard]] int size() const override { return static_cast<int>(ranks_.size()); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  void limit_waits(std::chrono::milliseconds timeout) override { limit_ = timeout; }
  /// A part of the team's.
  [[nodiscard]] std::unique_ptr<Network> network() override;

  /// Tells that this rank has come so far, without waiting for the others. Once each, before they exchange
  /// anything more.
  void arrive();
  [[nodiscard]] std::vector<std::size_t> not_arrived() const;

  /// Where this rank's mailbox stands for exchanges among some, before the next one.
  [[nodiscard]] static std::uint64_t part_start(const Team& team);

 private:
  /// The ranks whose mailbox has not been written, or which have not read all, so many times.
  [[nodiscard]] std::vector<std::size_t> missing(std::atomic<std::uint64_t> Mailbox::*count,
                                                 std::uint64_t chunks) const;
  void exchange_chunk(std::span<const std::byte> mine, std::span<std::byte> all, std::size_t offset,
                      std::size_t stride);

  Team& team_;
  std::uint64_t sequence_;
  Mailbox::Kind kind_;
  std::vector<std::size_t> ranks_;
  std::vector<std::uint64_t> starts_;  ///< by position
  std::optional<std::chrono::milliseconds> limit_;
  std::uint64_t chunks_ = 0;
  int position_ = 0;
};

}  // namespace tutti::transport::team
