// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl/connection.hpp"

#include "transport/plan/plan_builder.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti::transport::nccl {
namespace {

/// Runs on the operands' own lanes, which therefore need no further order. It may be captured when all lanes
/// belong to one capture.
class GroupedCalls final : public Accelerated {
 public:
  GroupedCalls(std::shared_ptr<Connection> connection, CallList list)
      : connection_(std::move(connection)), list_(std::move(list)) {}

  void enqueue(const Binding& binding) const override {
    const std::shared_ptr<void> meeting = binding.backend.is_watched() ? begin_watch(binding) : nullptr;
    connection_->enqueue(list_, binding);
    if (meeting != nullptr) end_watch(binding, meeting);
    for (const backend::StreamRef lane : binding.lanes) {
      if (lane.device >= 0) binding.backend.end_launch(lane);  // those of other processes are no streams
    }
  }

  [[nodiscard]] std::size_t bytes() const noexcept override { return list_.calls.capacity() * sizeof(Call); }

  [[nodiscard]] std::string in_words() const override {
    std::uint64_t bytes = 0;
    for (const Call& call : list_.calls) {
      if (call.source) bytes += call.count * size_of(call.dtype);
    }
    const bool is_of_team = std::ranges::find(list_.devices, remote_device) != list_.devices.end();
    return fmt::format("NCCL {} among {} {}: {} calls{} in {} {}, {} bytes read", list_.algorithm,
                       list_.devices.size(), is_of_team ? "members" : "devices", list_.calls.size(),
                       is_of_team ? " of this process" : "", list_.group_ends.size(),
                       list_.group_ends.size() == 1 ? "group" : "groups", bytes);
  }

 private:
  /// Lanes of this process, by rank.
  [[nodiscard]] std::vector<std::size_t> ranks_here() const {
    std::vector<std::size_t> ranks;
    for (std::size_t rank = 0; rank < list_.devices.size(); ++rank) {
      if (list_.devices[rank] != remote_device) ranks.push_back(rank);
    }
    return ranks;
  }

  /// Tells who watches streams what NCCL is going to read and write.
  [[nodiscard]] std::shared_ptr<void> begin_watch(const Binding& binding) const {
    for (const Call& call : list_.calls) {
      std::vector<backend::WatchedAccess> touched;
      const std::uint64_t bytes = call.count * size_of(call.dtype);
      const bool gathers = call.function == Function::all_gather;
      const bool scatters = call.function == Function::reduce_scatter;
      const std::uint64_t ranks = list_.devices.size();
      if (call.source) touched.push_back({binding.at(*call.source), scatters ? ranks * bytes : bytes, false});
      if (call.target) touched.push_back({binding.at(*call.target), gathers ? ranks * bytes : bytes, true});
      binding.backend.accesses(binding.lanes[call.lane], name_of(call.function), touched);
    }
    std::vector<backend::StreamRef> streams;
    for (const std::size_t rank : ranks_here()) streams.push_back(binding.lanes[list_.lanes[rank]]);
    return binding.backend.begin_meeting(streams);
  }

  /// A rank follows those that it hears of. By chains of others, in other processes or by sums, it may hear
  /// of all; by a broadcast, or by what is sent from one to one, of fewer.
  void end_watch(const Binding& binding, const std::shared_ptr<void>& meeting) const {
    const std::vector<std::size_t> ranks = ranks_here();
    const bool knows_all = ranks.size() == list_.devices.size();
    std::vector<backend::MeetingOrder> orders;
    for (std::size_t later = 0; later < ranks.size(); ++later) {
      for (std::size_t earlier = 0; earlier < ranks.size(); ++earlier) {
        if (earlier != later && (!knows_all || is_heard(ranks[earlier], ranks[later])))
          orders.push_back({earlier, later});
      }
    }
    binding.backend.end_meeting(meeting, orders);
  }

  [[nodiscard]] bool is_heard(std::size_t earlier, std::size_t later) const {
    return std::ranges::any_of(list_.calls, [&](const Call& call) {
      if (static_cast<std::size_t>(call.rank) != later) return false;
      const bool is_from_peer = static_cast<std::size_t>(call.peer) == earlier;
      switch (call.function) {
        case Function::broadcast:
        case Function::receive:
          return is_from_peer;
        case Function::send:
          return false;
        case Function::reduce:
          return call.rank == call.peer;
        case Function::all_reduce:
        case Function::all_gather:
        case Function::reduce_scatter:
          return true;
      }
      return true;
    });
  }

  std::shared_ptr<Connection> connection_;
  CallList list_;
};

}  // namespace

std::string refusal_of_calls(const Problem& problem) {
  const auto calls = calls_for(problem);
  const auto* const refused = std::get_if<Refusal>(&calls);
  return refused == nullptr ? std::string{} : refused->reason;
}

Plan plan_calls(const Problem& problem, std::shared_ptr<Connection> connection) {
  auto calls = calls_for(problem);
  if (const auto* refused = std::get_if<Refusal>(&calls)) {
    throw Error(ErrorCode::internal, fmt::format("nccl::plan_calls: refused before: {}", refused->reason));
  }
  auto& list = std::get<CallList>(calls);
  std::string algorithm = list.algorithm;
  PlanBuilder builder(problem);
  builder.accelerate(std::make_shared<GroupedCalls>(std::move(connection), std::move(list)));
  return builder.finish("nccl", std::move(algorithm));
}

}  // namespace tutti::transport::nccl
