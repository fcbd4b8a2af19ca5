// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl/connection.hpp"

#include "transport/steps/plan_builder.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

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
    connection_->enqueue(list_, binding);
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
