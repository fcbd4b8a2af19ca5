// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/plan/message_route.hpp"
#include "transport/plan/plan.hpp"
#include "transport/probes/launch_probe.hpp"
#include "transport/rounds/link_launcher.hpp"
#include "transport/rounds/round_choice.hpp"
#include "transport/team/team.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti::transport {

/// Chooses how the messages of one team travel, and queues them. One batch at a time.
class MessageLauncher {
 public:
  /// The arguments must outlive it.
  MessageLauncher(Runtime& runtime, team::Team& team, const team::TeamCapabilities& capabilities)
      : runtime_(runtime), team_(team), capabilities_(capabilities), links_(runtime, team) {}
  MessageLauncher(const MessageLauncher&) = delete;
  MessageLauncher& operator=(const MessageLauncher&) = delete;

  /// Returns why nothing can go to other processes at present; empty if it can.
  [[nodiscard]] std::string refusal() const;
  /// Returns the plan of messages that are no round: it has a summary and no steps.
  [[nodiscard]] const std::shared_ptr<const Plan>& plan_for(const MessageShape& messages);

  /// Queues copies for messages between local members on the senders' `streams`; the receivers' streams wait
  /// for them. Messages from one member to another must be adjacent.
  void copy(std::span<const InsideMessage> messages, const std::vector<backend::StreamRef>& streams);
  /// Queues the messages between local members and members of other processes on the local members'
  /// `streams`. `number` is the batch's number from `team::Links::post`; 0: it is captured. The caller marks
  /// the streams (`team::Progress::mark_batch`). Waits a moment for senders of large messages. Throws the
  /// errors of a launch, after which others wait for what has not been launched.
  void launch(Launching launching, std::uint64_t number, std::span<team::LinkTransfer> transfers,
              const std::vector<backend::StreamRef>& streams);

 private:
  [[nodiscard]] bool is_by_nccl() const noexcept { return team_.settings().transport == TransportKind::nccl; }
  /// Tells the senders of large messages, whose processes are to open the memory, where it lies.
  void invite(std::uint64_t number, std::span<team::LinkTransfer> transfers);
  void launch_by_nccl(std::span<const team::LinkTransfer> transfers,
                      const std::vector<backend::StreamRef>& streams);

  Runtime& runtime_;
  team::Team& team_;
  const team::TeamCapabilities& capabilities_;
  team::LinkLauncher links_;
  /// The plans that describe a message, by route; nullptr: not made yet.
  std::array<std::shared_ptr<const Plan>, message_route_count> plans_;
};

}  // namespace tutti::transport
