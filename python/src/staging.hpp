// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "foreign_tensors.hpp"
#include "tutti/tensor.hpp"

#include <vector>

/// Gives devices the use of host memory: virtual devices in place, where that is possible, others by copies
/// on the device's current stream. In the scope of a `Work`, copies of virtual devices are queued, and the
/// work owns a share in the host memory; others return when they are done.
namespace tutti::python {

/// Makes `host` a tensor of a virtual device, in the same memory, for calls in the scope of a `Work`. Returns
/// false if that is not possible: outside such a scope, on GPUs, for a tensor that is read-only
/// or not contiguous, and for one that overlaps in part with another in use.
[[nodiscard]] bool use_in_place(Operand& host, Device device);
/// Keeps those of a device's operands that are used in place, until what is queued so far on its current
/// stream is over. Needs the GIL.
void keep_in_place(const std::vector<Operand>& operands) noexcept;

void copy_in(const Operand& host, const Tensor& device);
void copy_out(const Tensor& device, const Operand& host);
/// Waits for all work queued so far on the current stream of the tensor's device. Ctrl-C ends the wait.
void wait_for_stream_of(const Tensor& tensor);

}  // namespace tutti::python
