// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <memory>
#include <span>

/// Device memory that processes of one host share: a tensor goes in, a handle comes out, which is bytes to be
/// sent in any way; another process makes a tensor over the same memory of it.
namespace tutti {

class SharedTensorState;

/// A tensor that other processes may open. Movable.
///
/// Opened tensors and this object own the memory together: it is neither reused nor given back before this
/// object, the exporting process's own tensors over it and every tensor that others have opened are gone. A
/// process that ends, in whichever way, counts as having closed what it had open. Where this process ends
/// first, handles can be opened no more; what has been opened on virtual devices stays, and on GPUs it is not
/// to be used any more.
///
/// Processes order their accesses themselves. What has been queued on the tensor's current stream before it
/// is shared is done when it can be opened.
class TUTTI_EXPORT SharedTensor {
 public:
  /// Waits for the current stream of the tensor's device. Throws Error(invalid_argument) if `tensor` is
  /// undefined, on the host or without elements; Error(unsupported) if its memory cannot be shared: it is in
  /// an expandable segment, another process's, or part of no known allocation, or the system refuses.
  explicit SharedTensor(const Tensor& tensor);
  SharedTensor(SharedTensor&& other) noexcept;
  SharedTensor& operator=(SharedTensor&& other) noexcept;
  SharedTensor(const SharedTensor&) = delete;
  SharedTensor& operator=(const SharedTensor&) = delete;
  /// Handles can be opened no more. Waits for nobody.
  ~SharedTensor();

  /// What another process of the host opens it by, as often as it likes, while this object lives: some
  /// hundred bytes, with a checksum. Only processes of the user that this one runs as, and root's, can open
  /// it. Empty after a move.
  [[nodiscard]] std::span<const std::byte> handle() const noexcept;

 private:
  std::unique_ptr<SharedTensorState> state_;
};

/// A tensor over the memory that another process shares, with the same element type, sizes and strides, on
/// the device that it was shared from: the same GPU, whatever its number here, or the virtual device of that
/// number.
///
/// Its memory is used on the current stream of its device, and others that `record_stream` names. It is
/// closed at one of the library's next calls after the last tensor over it is gone and their work is done.
/// While there are communicators, that is a call of `ipc_collect`, or one that does the same, that finds none
/// of theirs under way. Throws Error(invalid_argument) if `handle` is none, or was changed on its way, or
/// names more than the memory that is open then, or a misaligned place in it; Error(unsupported) if it is of
/// another backend; and Error(peer_unavailable) if the memory cannot be opened: it is this process's own, the
/// SharedTensor is gone, or its process, or that runs as another user, or the GPU is not among this process's
/// devices, or the system refuses.
[[nodiscard]] TUTTI_EXPORT Tensor open_shared_tensor(std::span<const std::byte> handle);

/// Lets go of memory that was shared, whose SharedTensor is gone, and that other processes have closed
/// meanwhile; and closes opened memory whose last work is done. `empty_cache`, sharing and opening do the
/// same, and requests for device memory that would else be refused. Waits for nobody.
TUTTI_EXPORT void ipc_collect();

}  // namespace tutti
