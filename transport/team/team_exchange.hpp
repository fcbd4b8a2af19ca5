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
/// call: it throws when the team is ended, and ends the team itself when it lasts too long, naming the
/// missing ranks, or when one of those has left. Until `limit_waits` is called, waits last as long as the
/// call's patience.
class TeamExchange final : public Exchange {
 public:
  /// Makes an exchange among all ranks, in call `sequence`, which all make.
  TeamExchange(Team& team, std::uint64_t sequence);
  /// Makes an exchange among some ranks, in the order of `ranks`; `starts` are their own `part_start`.
  TeamExchange(Team& team, std::uint64_t sequence, std::vector<std::size_t> ranks,
               std::vector<std::uint64_t> starts);

  [[nodiscard]] int rank() const override { return position_; }
  [[nodiscard]] int size() const override { return static_cast<int>(ranks_.size()); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  void limit_waits(std::chrono::milliseconds timeout) override { limit_ = timeout; }
  /// Returns a part of the team's network.
  [[nodiscard]] std::unique_ptr<Network> network() override;

  /// Reports that this rank has arrived, without waiting for the others. Called once by each, before any
  /// further exchange.
  void arrive();
  [[nodiscard]] std::vector<std::size_t> not_arrived() const;

  /// Returns the position of this rank's mailbox for exchanges among some ranks, before the next one.
  [[nodiscard]] static std::uint64_t part_start(const Team& team);

 private:
  /// Returns the ranks whose mailbox has been written, or read completely, fewer than `chunks` times.
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
