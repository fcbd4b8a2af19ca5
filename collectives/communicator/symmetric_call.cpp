// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/symmetric_call.hpp"

#include "allocator/allocators.hpp"
#include "transport/team/shared/agreement.hpp"

#include <exception>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti::collectives {
namespace {

using transport::team::Note;
using transport::team::ReleaseFlags;

LayoutPtr symmetric_layout(IntList sizes, DType dtype) {
  require_enumerator(dtype, all_dtypes.back(), "symmetric", "dtype");
  LayoutPtr layout;
  try {
    layout = make_layout(dtype, sizes);
  } catch (const Error& error) {
    std::string_view reason = error.what();
    constexpr std::string_view thrower = "Layout: ";
    if (reason.starts_with(thrower)) reason.remove_prefix(thrower.size());
    throw Error(error.code(), fmt::format("symmetric: {}", reason));
  }
  if (layout->span_bytes() == 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("symmetric: sizes is [{}], expected some elements", fmt::join(sizes, ", ")));
  }
  return layout;
}

/// Says how a step has ended on a rank.
struct Outcome {
  ErrorCode code = ErrorCode::internal;
  Note complaint;
};

Outcome outcome_of(const std::function<void()>& step) {
  try {
    step();
  } catch (...) {
    const backend::Escaped escaped = backend::Escaped::current();
    return {.code = escaped.code, .complaint = Note(escaped.what)};
  }
  return {};
}

}  // namespace

SymmetricCall::SymmetricCall(TeamContext& context, IntList sizes, DType dtype)
    : TeamTurn(context, "symmetric", {}), layout_(symmetric_layout(sizes, dtype)) {
  signature_.set_alike(dtype, sizes, 0);
  signature_.add_to_shape(sizes.size());
  signature_.set_purpose("symmetric memory");
}

void SymmetricCall::require_means() const {
  const transport::team::Windows& windows = team_.windows();
  if (windows.transport() == TransportKind::p2p) return;
  arguments_.unsupported("the members' devices cannot access one another's memory: {}", windows.reason());
}

std::shared_ptr<transport::team::SymmetricAllocation> SymmetricCall::run() {
  require_means();
  runtime().part<Allocators>().reclaim();  // what earlier calls have left
  post();
  do_together([this] {
    allocation_ = std::make_shared<Allocation>(
        runtime(), membership(),
        Allocation::Settings{.layout = layout_,
                             .patience = team_.waiting().patience().of(sequence_),
                             .timeout = team_.settings().timeout},
        streams_, team_.abort().word());
    if (membership().rank() == 0) flags_ = SharedMemory(ReleaseFlags::bytes(membership().rank_count()));
    if (membership().rank_count() > 1) expose();
  });
  const std::vector<Contribution> by_rank = transport::team::gather(*exchange_, mine_);
  const auto complete = [&] {
    if (membership().rank() != 0) flags_ = SharedMemory(by_rank.front().flags);
    std::vector<transport::team::PeerProcess> processes;
    for (const transport::team::PeerProcess& process : team_.processes())
      processes.push_back(process.again());
    allocation_->complete(
        peers(by_rank),
        std::make_shared<ReleaseFlags>(std::move(flags_), membership().rank(), std::move(processes)),
        team_.calls().symmetric_count());
    // If the communicator ends now, others may have it all the same.
    allocation_->share(true);
  };
  do_together(complete, [this] { allocation_->share(false); });
  std::erase_if(context_.symmetric(), [](const auto& earlier) { return earlier.expired(); });
  context_.symmetric().push_back(allocation_);
  return std::move(allocation_);
}

void SymmetricCall::post() {
  context_.launcher().begin(streams_);
  if (is_captured()) arguments_.unsupported("the current stream is being captured");
  sequence_ = team_.calls().post(signature_, false);
  carry_out([this] {
    for (std::size_t local = 0; local < locals(); ++local)
      team_.progress().mark(local, sequence_, stream_of(local));
  });
  team_.calls().has_queued(sequence_);
  exchange_.emplace(team_, sequence_);
}

void SymmetricCall::do_together(const std::function<void()>& step, const std::function<void()>& undo) {
  const std::vector<Outcome> outcomes = transport::team::gather(*exchange_, outcome_of(step));
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const std::string complaint = outcomes[rank].complaint.string();
    if (complaint.empty()) continue;
    if (undo) undo();
    throw Error(outcomes[rank].code, fmt::format("{}: rank {}: {}", name_, rank, complaint));
  }
}

void SymmetricCall::expose() {
  transport::team::Registrations& registrations = *team_.registrations();
  for (std::size_t local = 0; local < locals(); ++local) {
    if (!registrations.add(sequence_, local, {allocation_->data(local), layout_->span_bytes()}, true)) {
      throw Error(ErrorCode::unsupported, fmt::format("memory of {} cannot be opened by the other ranks: {}",
                                                      to_string(device_of(local)), registrations.refusal()));
    }
  }
  registrations.wait(sequence_);
  for (std::size_t local = 0; local < locals(); ++local)
    mine_.places[local] = registrations.place_of(allocation_->data(local));
  if (membership().rank() == 0) mine_.flags = flags_.share(Audience::anyone);
}

std::vector<std::vector<std::byte*>> SymmetricCall::peers(const std::vector<Contribution>& by_rank) const {
  std::vector<std::vector<std::byte*>> by_local(locals());
  for (std::size_t local = 0; local < locals(); ++local) {
    for (std::size_t member = 0; member < members(); ++member) {
      if (const auto here = local_of(member)) {
        by_local[local].push_back(allocation_->data(*here));
        continue;
      }
      const std::size_t rank = membership().rank_of_member()[member];
      const Place& place = by_rank[rank].places[member - membership().first_member(rank)];
      by_local[local].push_back(team_.registrations()->opened(rank, place, local));
    }
  }
  return by_local;
}

}  // namespace tutti::collectives
