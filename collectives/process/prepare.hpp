// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/call/arguments.hpp"
#include "collectives/call/disjoint.hpp"
#include "collectives/call/packing.hpp"
#include "collectives/process/process_call.hpp"
#include "device/current_device.hpp"
#include "tutti/collectives.hpp"

#include <cstddef>
#include <optional>
#include <string_view>

/// Turns checked arguments into a call: one function for each collective with given outputs, used by eager
/// and persistent calls alike. All throw Error(invalid_argument); `packing` holds what must outlive the
/// launch.
namespace tutti::collectives {

[[nodiscard]] Call prepare_broadcast(const Arguments& arguments, Packing& packing, const Tensor& tensor,
                                     TensorList out, const CollectiveOptions& options);
[[nodiscard]] Call prepare_broadcast_coalesced(const Arguments& arguments, Packing& packing,
                                               TensorList tensors, TensorLists out, std::size_t buffer_size,
                                               const CollectiveOptions& options);
/// The function that is called and the operation, of a reduction.
struct ReduceCall {
  std::string_view name;
  const ReduceOp& operation;
};
[[nodiscard]] Call prepare_reduce(const Arguments& arguments, Packing& packing, const ReduceCall& what,
                                  TensorList inputs, const Tensor& out, const CollectiveOptions& options);
[[nodiscard]] Call prepare_reduce_coalesced(const Arguments& arguments, Packing& packing,
                                            const ReduceCall& what, TensorLists inputs, TensorList out,
                                            std::size_t buffer_size, const CollectiveOptions& options);
[[nodiscard]] Call prepare_scatter(const Arguments& arguments, Packing& packing, const Tensor& tensor,
                                   TensorList out, int dim, StreamList streams,
                                   const CollectiveOptions& options);
[[nodiscard]] Call prepare_gather(const Arguments& arguments, Packing& packing, TensorList tensors,
                                  const Tensor& out, int dim, const CollectiveOptions& options);

/// Returns true if a broadcast's output is its source, so that there is nothing to do for it. A partial
/// overlap has been refused before.
[[nodiscard]] inline bool is_source(const Tensor& tensor, const Tensor& output) {
  return output.data() == tensor.data() && output.device() == tensor.device() && tensor.numel() > 0;
}

/// Returns the destination of a reduce or gather: the given one, else the current device.
[[nodiscard]] inline Device destination_or_current(const Arguments& arguments,
                                                   std::optional<Device> destination) {
  return resolved(arguments.runtime(), destination.value_or(Device::current()));
}

}  // namespace tutti::collectives
