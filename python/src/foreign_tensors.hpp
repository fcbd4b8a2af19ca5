// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/managed_range.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <cstdint>
#include <memory>
#include <optional>

#include <nanobind/nanobind.h>

/// Tensors of other libraries, which are taken and given by DLPack without a copy.
namespace tutti::python {

namespace nb = nanobind;

struct Library;

/// The library that an object comes from, and so the kind of object that results become.
class Kind {
 public:
  Kind() = default;  ///< tutti's own
  static Kind of(nb::handle object);

  [[nodiscard]] bool is_own() const noexcept;
  /// Returns the tensor as an object of this kind, which shares its memory. It stays a `tutti.Tensor` where
  /// the library does not take it: on virtual devices, and for numpy on GPUs. For CuPy, a tensor on the host
  /// becomes one of numpy.
  [[nodiscard]] nb::object wrap(const Tensor& tensor) const;
  /// Returns the library's current stream of a GPU if it is not tutti's anyway; nothing for tutti itself, for
  /// libraries without streams, while tutti captures what is queued on its own current stream, and within
  /// `OwnStreams`.
  [[nodiscard]] std::optional<Stream> current_stream(Device device) const;

 private:
  const Library* origin_ = nullptr;  ///< of another library; lives as long as the process
};

/// Makes calls of this thread go on tutti's current streams, not on those of the operands' library, as long
/// as it lives.
class OwnStreams {
 public:
  OwnStreams() noexcept;
  OwnStreams(const OwnStreams&) = delete;
  OwnStreams& operator=(const OwnStreams&) = delete;
  ~OwnStreams();
};

/// Says behind what a call on a tensor of another library is ordered.
enum class Order : std::uint8_t {
  of_library,  ///< the call is made on the library's current stream, or on streams that the program orders
  of_tutti     ///< on tutti's current stream, which is made to wait for what the library has queued
};

/// An operand for the time of one call: it does not own its memory, which `object` does.
struct Operand {
  Tensor tensor;
  nb::object object;
  /// Its library has no streams, in whose order it would reuse the memory of a device: `object` and `tensor`
  /// must live until work that uses them is over, not only as long as the call.
  bool is_unordered = false;
  /// Keeps memory of the host usable by virtual devices, `tensor` being on one; nullptr for other memory.
  std::shared_ptr<virtual_devices::ManagedRange> range{};
};

/// Views the memory of `object`: a `tutti.Tensor`, a tensor of torch, or any object with `__dlpack__`. Throws
/// Error(invalid_argument) with `name` for anything else. None gives an undefined tensor.
Operand borrow_tensor(nb::handle object, const char* name, Order order = Order::of_tutti);
/// Takes a share in the memory of `object`, for as long as the tensor lives.
Tensor own_tensor(nb::handle object, const char* name);
/// Returns an object that keeps the memory of `object`, which is of an operand on the host, whatever becomes
/// of that: torch's tensors may be given other memory.
nb::object share_in_memory(nb::handle object);
/// Returns a capsule, as `__dlpack__` of tutti's tensors does.
nb::object to_capsule(const Tensor& tensor, bool versioned, const Stream* consumer);

}  // namespace tutti::python
