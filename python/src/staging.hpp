// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "foreign_tensors.hpp"
#include "tutti/tensor.hpp"

/// Copies between host memory and a device, on the device's current stream. In the scope of a `Work`, copies
/// of virtual devices are queued, and the work owns a share in the host memory; others return when they are
/// done.
namespace tutti::python {

void copy_in(const Operand& host, const Tensor& device);
void copy_out(const Tensor& device, const Operand& host);
/// Waits for all work queued so far on the current stream of the tensor's device. Ctrl-C ends the wait.
void wait_for_stream_of(const Tensor& tensor);

}  // namespace tutti::python
