// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/team_round.hpp"
#include "os/shared_memory.hpp"
#include "support/machines/rank_components.hpp"
#include "transport/team/hosts/host_proxy_messages.hpp"
#include "transport/team/hosts/mirror.hpp"
#include "transport/team/windows/windows.hpp"
#include "tutti/exchange.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>

namespace tutti::test {

/// One of two ranks, alone on its host, with the memory of that host: rank 0 has one member, rank 1 two. Both
/// may be in one process.
class MirroredRank {
 public:
  explicit MirroredRank(std::size_t rank)
      : components_(memory_.data(), ranks(), rank),
        exchange_(rank),
        windows_(components_.runtime, exchange_, layout(), components_.membership,
                 {.transport = TransportKind::staged}),
        mirror_(components_.membership, components_.state, windows_, components_.progress, components_.calls,
                components_.record, components_.abort, std::chrono::seconds(30)) {}

  [[nodiscard]] RankComponents& components() { return components_; }
  [[nodiscard]] const transport::team::Windows& windows() const { return windows_; }
  [[nodiscard]] transport::team::Mirror& mirror() { return mirror_; }
  /// Returns this host's copy of the data that the member gives in a round.
  [[nodiscard]] std::byte* slot(std::size_t member, std::uint32_t round) const {
    const backend::TeamWindowLayout& layout = windows_.layout();
    return windows_.on_host(member) + layout.slots_offset() + layout.slot_shift(round);
  }
  /// Returns the flag that tells this host's reader that the member has given its bytes for the round.
  [[nodiscard]] backend::SharedFlag& ready_flag(std::size_t reader, std::size_t member,
                                                std::uint64_t round) const {
    return windows_.flag_on_host(reader,
                                 windows_.layout().ready_offset(static_cast<std::uint32_t>(member), round));
  }
  /// Returns the message with this rank's news.
  [[nodiscard]] Network::Message news() {
    transport::team::MessageWriter writer;
    mirror_.begin_news();
    mirror_.add_news(writer);
    return message(writer);
  }
  [[nodiscard]] Network::Message message(transport::team::MessageWriter& writer) const {
    return {.source = static_cast<int>(components_.membership.rank()), .bytes = writer.take()};
  }

 private:
  /// An exchange by which each rank makes its host's windows by itself.
  class NobodyElse final : public Exchange {
   public:
    explicit NobodyElse(std::size_t rank) : rank_(static_cast<int>(rank)) {}
    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return 1; }
    void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
      std::ranges::copy(mine, all.begin());
    }

   private:
    int rank_;
  };

  static RankComponents::Ranks ranks() {
    return {{.host = "a", .member_count = 1}, {.host = "b", .member_count = 2}};
  }
  static backend::TeamWindowLayout layout() {
    backend::TeamWindowLayout layout;
    layout.members = 3;
    layout.slot_bytes = backend::TeamWindowLayout::alignment;
    layout.link_lanes = 2;
    layout.link_slot_bytes = backend::TeamWindowLayout::smallest_link_piece;
    return layout;
  }

  SharedMemory memory_{transport::team::SharedState::bytes(RankComponents::shape_of(ranks()))};
  RankComponents components_;
  NobodyElse exchange_;
  transport::team::Windows windows_;
  transport::team::Mirror mirror_;
};

}  // namespace tutti::test
