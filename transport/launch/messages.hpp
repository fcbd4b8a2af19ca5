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

/// How the messages of one team travel, and who queues them. One batch at a time.
class MessageLauncher {
 public:
  /// The arguments outlive it.
  MessageLauncher(Runtime& runtime, team::Team& team, const team::TeamCapabilities& capabilities)
      : runtime_(runtime), team_(team), capabilities_(capabilities), links_(runtime, team) {}
  MessageLauncher(const MessageLauncher&) = delete;
  MessageLauncher& operator=(const MessageLauncher&) = delete;

  /// Why nothing can go to other processes as matters stand; empty if it can.
  [[nodiscard]] std::string refusal() const;
  /// The plan of such messages that are no round: it has a summary and no steps.
  [[nodiscard]] const std::shared_ptr<const Plan>& plan_for(const MessageShape& messages);

  /// Queues copies of what local members send to one another, on the senders' `streams`; the receivers' wait
  /// for it. Messages from one member to another stand together.
  void copy(std::span<const InsideMessage> messages, const std::vector<backend::StreamRef>& streams);
  /// Queues what local members send to members of other processes and receive from them on the local members'
  /// `streams`. `number`: of the batch as `team::Links::post` has said; its streams are marked unless it is
  /// 0, which is a captured one's. Waits for senders of large messages for a moment. Throws what a launch
  /// throws: others wait for what has not been launched.
  void launch(Launching launching, std::uint64_t number, std::span<team::LinkTransfer> transfers,
              const std::vector<backend::StreamRef>& streams);

 private:
  [[nodiscard]] bool is_by_nccl() const noexcept { return team_.settings().transport == TransportKind::nccl; }
  /// Has the senders of large messages, whose processes are to open the memory, told where it lies.
  void invite(std::uint64_t number, std::span<team::LinkTransfer> transfers);
  void launch_by_nccl(std::span<const team::LinkTransfer> transfers,
                      const std::vector<backend::StreamRef>& streams);

  Runtime& runtime_;
  team::Team& team_;
  const team::TeamCapabilities& capabilities_;
  team::LinkLauncher links_;
  /// By route; nullptr: not asked for yet.
  std::array<std::shared_ptr<const Plan>, message_route_count> plans_;
};

}  // namespace tutti::transport
