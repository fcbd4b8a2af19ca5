// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/plan/plan_builder.hpp"
#include "transport/plan/reach.hpp"

#include <string>

/// Contains the algorithms of the p2p and staged transports. Both carry a problem the same way, and differ in
/// which devices may access which memory.
namespace tutti::transport {

/// Adds the steps that carry all flows of the builder's problem. Returns the algorithm in words.
///
/// Host sources go up once per flow, by copy engine, to its first target. Between devices: up to
/// `one_kernel_limit` one kernel on the root moves everything; above it, flows to several devices are
/// split, each receiving device reads its share from the source and writes it to all of them, and the source
/// copies what stays with it; flows to one device each go by copy engine. Targets out of reach are served
/// through pinned memory, one per island, and from there by the island itself. Bytes sent by the root:
/// (n-1)·S with one kernel, S when split.
std::string lower_flows(PlanBuilder& builder, const Reach& reach);

/// Adds the steps that carry all reductions. Returns the algorithm in words.
///
/// Up to `one_kernel_limit` one kernel on the root reads all inputs; above it, every participating
/// device but the root sums its share of all inputs and writes it to the root. Inputs out of the root's reach
/// come through pinned memory in chunks. Each element is summed by one thread in ascending input order, so
/// the result does not depend on the split. Bytes received by the root: (n-1)·S with one kernel, S when
/// split.
std::string lower_reductions(PlanBuilder& builder, const Reach& reach);

}  // namespace tutti::transport
