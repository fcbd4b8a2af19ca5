// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/team_links.hpp"
#include "device/runtime.hpp"
#include "transport/probes/launch_probe.hpp"
#include "transport/team/calls/links.hpp"
#include "transport/team/team.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::transport::team {

/// A half of a message, and its bytes in the memory of `LinkHalf::member`, without gaps.
struct LinkTransfer {
  LinkHalf half;
  std::byte* address = nullptr;
  std::uint64_t bytes = 0;
  /// The address by which the device of `LinkHalf::peer` can write a received message; nullptr: none.
  std::byte* invited_to = nullptr;
};

/// Queues messages from local members to members of other ranks and back: one kernel for each local member
/// that has any. Keeps the memory of its lists from one batch to the next. One batch at a time.
class LinkLauncher {
 public:
  LinkLauncher(Runtime& runtime, Team& team) : runtime_(runtime), team_(team) {}
  LinkLauncher(const LinkLauncher&) = delete;
  LinkLauncher& operator=(const LinkLauncher&) = delete;

  /// Queues a batch on the local members' `streams`. Messages of more than `direct_from` bytes, the same on
  /// all ranks, are written directly to the receiver's memory if it has sent its address. Throws the errors
  /// of a launch, after which others wait for what has not been launched.
  void launch(Launching launching, bool is_captured, std::uint64_t direct_from,
              std::span<const LinkTransfer> transfers, std::span<const backend::StreamRef> streams);

 private:
  /// One local member's share of a batch: a range of `parts_` and one of `messages_`.
  struct MemberTransfers {
    std::size_t local = 0;
    std::size_t first_part = 0;
    std::size_t part_count = 0;
    std::size_t first_message = 0;
    std::size_t message_count = 0;
  };

  void divide(std::span<const LinkTransfer> transfers);
  void launch_member(const MemberTransfers& member, bool is_captured,
                     std::span<const backend::StreamRef> streams) const;

  Runtime& runtime_;
  Team& team_;
  std::uint64_t direct_from_ = 0;            ///< of the batch
  std::vector<const LinkTransfer*> sorted_;  ///< of the batch
  std::vector<MemberTransfers> members_;     ///< those that have messages
  std::vector<backend::LinkPart> parts_;
  std::vector<backend::LinkMessage> messages_;
};

}  // namespace tutti::transport::team
