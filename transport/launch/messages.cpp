// SPDX-License-Identifier: Apache-2.0
#include "transport/launch/messages.hpp"

#include "stream/streams.hpp"
#include "transport/nccl/team_nccl.hpp"
#include "transport/select/select.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

namespace tutti::transport {
namespace {

using team::LinkTransfer;

/// Senders that have not opened the receiver's memory by then send through slots.
constexpr std::chrono::milliseconds longest_wait_for_senders{200};

}  // namespace

std::string MessageLauncher::refusal() const {
  if (is_by_nccl() && !capabilities_.nccl->is_connected()) {
    return fmt::format(
        "nccl was asked for{}, but the ranks have not connected it yet, expected an earlier call of all "
        "ranks "
        "that NCCL carries, for instance a broadcast",
        in_words(team_.settings().transport_source));
  }
  if (!is_by_nccl() && capabilities_.layout.link_lanes == 0) {
    return fmt::format("options.window_bytes is {}, expected more for {} members",
                       team_.settings().window_bytes, team_.membership().member_count());
  }
  return {};
}

const std::shared_ptr<const Plan>& MessageLauncher::plan_for(const MessageShape& messages) {
  const MessageRoute route = select(messages, capabilities_, team_.settings().transport);
  std::shared_ptr<const Plan>& kept = plans_[static_cast<std::size_t>(route)];
  if (kept == nullptr) kept = std::make_shared<const Plan>(plan_of(route, capabilities_));
  return kept;
}

void MessageLauncher::copy(std::span<const InsideMessage> messages,
                           const std::vector<backend::StreamRef>& streams) {
  const auto once_for_each_two = [&](const auto& order) {
    auto last = std::pair(streams.size(), streams.size());
    for (const InsideMessage& message : messages) {
      const auto members = std::pair(message.sender, message.receiver);
      if (members == last) continue;
      order(streams[members.first], streams[members.second]);
      last = members;
    }
  };
  // None waits for another: they go both ways at once.
  once_for_each_two(
      [&](const auto& sender, const auto& receiver) { runtime_.part<Streams>().order(receiver, sender); });
  for (const InsideMessage& message : messages) {
    runtime_.backend().copy(streams[message.sender],
                            {.target = message.target, .source = message.source, .row_bytes = message.bytes});
  }
  once_for_each_two(
      [&](const auto& sender, const auto& receiver) { runtime_.part<Streams>().order(sender, receiver); });
}

void MessageLauncher::launch(Launching launching, std::uint64_t number, std::span<LinkTransfer> transfers,
                             const std::vector<backend::StreamRef>& streams) {
  if (is_by_nccl()) {
    launch_by_nccl(transfers, streams);
  } else {
    invite(number, transfers);
    links_.launch(launching, number == 0, team::direct_messages_from(capabilities_), transfers, streams);
  }
}

void MessageLauncher::invite(std::uint64_t number, std::span<LinkTransfer> transfers) {
  team::Registrations* const registrations = team_.registrations();
  const std::uint64_t direct_from = team::direct_messages_from(capabilities_);
  const auto is_invited = [&](const LinkTransfer& transfer) {
    return !transfer.half.is_sent && transfer.bytes > direct_from;
  };
  if (registrations == nullptr || std::ranges::none_of(transfers, is_invited)) return;
  for (const LinkTransfer& transfer : transfers) {
    if (is_invited(transfer)) {
      registrations->prepare_invitation(number, transfer.half.member - team_.membership().first_local(),
                                        {transfer.address, transfer.bytes});
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + longest_wait_for_senders;
  for (LinkTransfer& transfer : transfers) {
    if (is_invited(transfer)) {
      transfer.invited_to = registrations->invite(number == 0, {transfer.address, transfer.bytes},
                                                  transfer.half.peer, deadline);
    }
  }
}

/// Sends and receives bytes as one group.
void MessageLauncher::launch_by_nccl(std::span<const LinkTransfer> transfers,
                                     const std::vector<backend::StreamRef>& streams) {
  nccl::CallList list;
  std::vector<std::byte*> addresses;
  for (const LinkTransfer& transfer : transfers) {
    if (transfer.bytes == 0) continue;  // on both sides
    const team::LinkHalf& half = transfer.half;
    nccl::Call call{.function = half.is_sent ? nccl::Function::send : nccl::Function::receive,
                    .lane = static_cast<LaneId>(half.member - team_.membership().first_local()),
                    .rank = static_cast<int>(half.member),
                    .peer = static_cast<int>(half.peer),
                    .count = transfer.bytes};
    (half.is_sent ? call.source : call.target) = Place{.buffer = static_cast<BufferId>(addresses.size())};
    addresses.push_back(transfer.address);
    list.calls.push_back(call);
  }
  list.group_ends.push_back(list.calls.size());
  if (list.calls.empty()) return;
  capabilities_.nccl->enqueue(list,
                              {.backend = runtime_.backend(), .addresses = addresses, .lanes = streams});
}

}  // namespace tutti::transport
