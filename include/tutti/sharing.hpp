// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <memory>
#include <span>

/// Shares device memory between processes of one host: a `SharedTensor` gives a handle, which is bytes to be
/// sent by any means, and `open_shared_tensor` makes a tensor over the same memory from it in another
/// process.
namespace tutti {

class SharedTensorState;

/// A tensor that other processes may open. Movable.
///
/// Opened tensors and this object own the memory together: it is neither reused nor given back before this
/// object, the exporting process's own tensors over it and every tensor that others have opened are gone. A
/// process that ends, in whatever way, counts as having closed what it had open. If this process ends first,
/// its handles can no longer be opened; tensors that others have opened stay valid on virtual devices, but
/// must not be used any more on GPUs.
///
/// The processes must order their accesses themselves. Work queued on the tensor's current stream before it
/// is shared is done when the handle is available.
class TUTTI_EXPORT SharedTensor {
 public:
  /// Waits for the current stream of the tensor's device. Throws Error(invalid_argument) if `tensor` is
  /// undefined, on the host or without elements; Error(unsupported) if its memory cannot be shared: it
  /// belongs to another process or to no known allocation, or the system refuses.
  explicit SharedTensor(const Tensor& tensor);
  SharedTensor(SharedTensor&& other) noexcept;
  SharedTensor& operator=(SharedTensor&& other) noexcept;
  SharedTensor(const SharedTensor&) = delete;
  SharedTensor& operator=(const SharedTensor&) = delete;
  /// Invalidates the handle. Does not wait.
  ~SharedTensor();

  /// Returns the handle by which another process of the host opens the tensor, as often as it likes, while
  /// this object lives: some hundred bytes, with a checksum. Only processes of this process's user, and
  /// root's, can open it. It is empty after a move.
  [[nodiscard]] std::span<const std::byte> handle() const noexcept;

 private:
  std::unique_ptr<SharedTensorState> state_;
};

/// Opens the memory that another process shares as a tensor with the same element type, sizes and strides, on
/// the device that it was shared from: the same GPU, whatever its number in this process, or the virtual
/// device of the same number.
///
/// Its memory is used on the current stream of its device, and others that `record_stream` names. It is
/// closed by one of the library's next calls after the last tensor over it is gone and their work is done.
/// While communicators exist, only `ipc_collect`, or a call that does the same, closes it, and only if no
/// call of theirs is under way. Throws Error(invalid_argument) if `handle` is not a handle or was corrupted,
/// or describes elements outside the opened memory or misaligned ones; Error(unsupported) if it is of another
/// backend; and Error(peer_unavailable) if the memory cannot be opened: it is this process's own, the
/// SharedTensor or its process is gone, that process runs as another user, the GPU is not among this
/// process's devices, or the system refuses.
[[nodiscard]] TUTTI_EXPORT Tensor open_shared_tensor(std::span<const std::byte> handle);

/// Frees shared memory whose SharedTensor is gone and which other processes have closed, and closes opened
/// memory whose last work is done. `empty_cache`, sharing, opening, and requests for device memory that would
/// otherwise fail do the same. Does not wait.
TUTTI_EXPORT void ipc_collect();

}  // namespace tutti
