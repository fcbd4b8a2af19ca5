// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "arguments.hpp"
#include "tutti/event.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <memory>
#include <optional>
#include <vector>

#include <nanobind/nanobind.h>

/// Tensors of Python programs as operands of calls, without a copy, and results in the kind that was given.
namespace tutti::python {

namespace nb = nanobind;

/// The library that an object comes from, and so the kind of object that results become.
class Kind {
 public:
  Kind() = default;  ///< tutti's own
  static Kind of(nb::handle object);

  [[nodiscard]] bool is_own() const noexcept { return !module_.is_valid(); }
  /// Returns the tensor as an object of this kind, which shares its memory. A tensor on a virtual device
  /// stays a `tutti.Tensor`: no other library could hold it.
  [[nodiscard]] nb::object wrap(const Tensor& tensor) const;
  /// Returns the library's current stream of a GPU; nothing for tutti itself, and for libraries without
  /// streams.
  [[nodiscard]] std::optional<Stream> current_stream(Device device) const;

 private:
  nb::object module_{};    ///< invalid for tutti
  nb::object wrapping_{};  ///< takes an object with `__dlpack__`, or for torch a capsule
  bool is_torch_ = false;
};

/// An operand for the time of one call: it does not own its memory, which `object` does.
struct Operand {
  Tensor tensor;
  nb::object object;
};

/// Views the memory of `object`: a `tutti.Tensor`, a tensor of torch, or any object with `__dlpack__`. Throws
/// Error(invalid_argument) with `name` for anything else. None gives an undefined tensor.
Operand borrow_tensor(nb::handle object, const char* name);
/// Takes a share in the memory of `object`, for as long as the tensor lives.
Tensor own_tensor(nb::handle object, const char* name);
/// Returns a capsule, as `__dlpack__` of tutti's tensors does.
nb::object to_capsule(const Tensor& tensor, bool versioned, const Stream* consumer);

/// A share in a Python object that any thread may drop, without the GIL: the object lives on until the next
/// call of `bury`.
std::shared_ptr<void> shared_object(nb::handle object);
/// Drops the objects whose last share is gone. Needs the GIL.
void bury();

/// Calls of one thread in whose scope host operands are copied in stream order too, so that nothing waits for
/// them: an event on each device marks when results are there.
class Work {
 public:
  /// Makes this the work that calls of this thread belong to, until `leave`.
  void enter();
  void leave();
  static Work* current() noexcept;

  /// Takes in what is queued on the device's current stream until `leave`.
  void add(Device device);
  /// Waits for the results. Throws what the calls' devices report. Needs the GIL.
  void wait() const;
  [[nodiscard]] bool is_done() const;

 private:
  std::vector<Stream> streams_;
  std::vector<std::shared_ptr<Event>> events_;
  Work* outer_ = nullptr;
};

/// Streams that are current as long as this object lives, while the current device stays what it was.
class CurrentStreams {
 public:
  CurrentStreams() = default;
  CurrentStreams(CurrentStreams&&) noexcept = default;
  CurrentStreams(const CurrentStreams&) = delete;
  CurrentStreams& operator=(const CurrentStreams&) = delete;
  ~CurrentStreams();

  void add(const Stream& stream);

 private:
  std::vector<std::unique_ptr<StreamGuard>> guards_;
};

/// Operands of one call. Host memory, which calls of a communicator do not take, is copied to the member's
/// device before, and results are copied back: virtual devices have memory of their own, which the host
/// cannot reach.
class Operands {
 public:
  /// `members` are the devices that operands belong to, one by one; empty: operands stay where they are.
  explicit Operands(std::vector<Device> members);
  ~Operands();
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  enum class Use : std::uint8_t { read, write, read_write };

  /// Takes a tensor for each member, or that of the only one.
  std::vector<Tensor> tensors(const TensorsArgument& given, Use use, const char* name);
  /// Takes a list for each member, or that of the only one.
  std::vector<std::vector<Tensor>> lists(const TensorsArgument& given, Use use, const char* name);
  /// Takes the tensor of member `index`.
  Tensor tensor(nb::handle given, std::size_t index, Use use, const char* name);

  /// Makes these streams current, one for each member, or else those that the given tensors' library has
  /// current.
  void make_current(const StreamsArgument& streams);
  /// Waits until results are in host memory, where copies have taken its place. Needs the GIL.
  void finish();

  /// Returns results as they were asked for: one, or a list, and of the kind of the first operand.
  nb::object results(std::vector<Tensor> tensors);
  nb::object results(std::vector<std::vector<Tensor>> lists);
  nb::object result(const Tensor& tensor);
  nb::object list(const std::vector<Tensor>& tensors);

 private:
  struct Staged {
    Operand host;
    Tensor device;
    bool is_written;
  };

  Tensor staged(const Operand& host, Device device, Use use);
  [[nodiscard]] Device member(std::size_t index) const;

  std::vector<Device> members_;
  std::vector<Operand> held_;
  std::vector<Staged> staged_;
  CurrentStreams current_;
  Kind kind_;
  bool has_kind_ = false;
  bool is_list_ = false;
};

}  // namespace tutti::python
