// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/plan/plan.hpp"
#include "transport/plan/problem.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// Translates a problem into the NCCL calls that each rank makes. Needs neither the library nor a device.
namespace tutti::transport::nccl {

/// The type that NCCL combines in the place of a dtype.
struct Carrier {
  DType dtype;
  std::uint64_t elements = 1;  ///< per element of the type
};
/// Returns nothing for a type that NCCL does not add, or combine, as this library does.
[[nodiscard]] std::optional<Carrier> carrier_of(DType dtype, ReduceKind kind = ReduceKind::sum);

/// NCCL's functions that move or add.
enum class Function : std::uint8_t {
  broadcast,
  reduce,
  all_reduce,
  all_gather,
  reduce_scatter,
  send,
  receive,
};
/// Returns NCCL's name, for instance "ncclBroadcast".
[[nodiscard]] std::string_view name_of(Function function) noexcept;

/// One call of one rank, on the rank's lane. Ranks number the devices of the communicator in ascending order.
struct Call {
  Function function = Function::broadcast;
  LaneId lane = 0;
  int rank = 0;
  int peer = 0;  ///< the root's rank; for `send` and `receive`, the other's
  /// Empty where NCCL reads nothing: receivers, ranks of a broadcast other than the root.
  std::optional<Place> source = {};
  /// Empty where NCCL writes nothing: senders, ranks of a reduce other than the root.
  std::optional<Place> target = {};
  std::uint64_t count = 0;  ///< elements
  /// The type that is moved or added: bytes where nothing is added, the parts of complex numbers.
  DType dtype = DType::uint8;
  ReduceKind kind = ReduceKind::sum;  ///< of the combination
};

struct CallList {
  std::string algorithm;      ///< for instance "broadcast", or "send and receive"
  std::vector<int> devices;   ///< by rank; in a team, `remote_device` where another process makes the calls
  std::vector<LaneId> lanes;  ///< by rank
  std::vector<Call> calls;    ///< of this process's ranks
  /// Calls are grouped up to each of these ends; all calls that meet are in one group. The groups are the
  /// same on all processes.
  std::vector<std::size_t> group_ends;
};

/// The reason why NCCL cannot carry a problem.
struct Refusal {
  std::string reason;
};

/// Returns the calls that carry `problem`. The ranks are the members of a team, or the devices that take part
/// in ascending order.
///  - A broadcast becomes one ncclBroadcast per flow and rank. All flows go from one device to the same
///    others, and to at most one other buffer of the root's device.
///  - A sum for a root becomes one ncclReduce per reduction and rank. Each device holds one input, and the
///    root one of them.
///  - all_reduce becomes one ncclAllReduce per reduction and rank; all_gather and reduce_scatter one
///    call per rank.
///  - An all_gather of unequal parts becomes one ncclBroadcast per part and rank, a reduce_scatter one
///    ncclReduce.
///  - Scatter, gather and all_to_all become one ncclSend and one ncclRecv per flow, also for what stays on
///    its device.
[[nodiscard]] std::variant<CallList, Refusal> calls_for(const Problem& problem);

}  // namespace tutti::transport::nccl
