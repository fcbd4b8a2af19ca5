// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/nccl/calls.hpp"
#include "transport/plan/plan.hpp"
#include "transport/plan/problem.hpp"

#include <memory>
#include <string>

namespace tutti::transport::nccl {

/// NCCL's communicators of the ranks in a call list: the devices of this process, or the members of a team.
class Connection {
 public:
  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  virtual ~Connection() = default;

  /// Queues the calls, each on its lane. Throws Error(transport_failure).
  virtual void enqueue(const CallList& list, const Binding& binding) = 0;
};

/// Returns why NCCL cannot make calls of the problem; empty if it can.
[[nodiscard]] std::string refusal_of_calls(const Problem& problem);
/// Returns a plan of the problem as grouped calls on a connection; `calls_for` must not refuse it.
[[nodiscard]] Plan plan_calls(const Problem& problem, std::shared_ptr<Connection> connection);

}  // namespace tutti::transport::nccl
