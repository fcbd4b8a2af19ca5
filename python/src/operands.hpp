// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "arguments.hpp"
#include "foreign_tensors.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <cstdint>
#include <memory>
#include <vector>

#include <nanobind/nanobind.h>

/// Tensors of Python programs as operands of calls, without a copy, and results in the kind that was given.
namespace tutti::python {

namespace nb = nanobind;

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

/// Keeps operands of a call on current streams and on `more_streams` until that is over, if their
/// libraries have no streams. Needs the GIL.
void keep_unordered(const std::vector<Operand>& operands, std::vector<Stream> more_streams = {}) noexcept;

/// Operands of one call. Host memory, which calls of a communicator do not take, is used in place by virtual
/// devices in a call that does not wait (`use_in_place`). Otherwise it is copied to the member's device
/// before, and results are copied back.
class Operands {
 public:
  /// `members` are the devices that operands belong to, one by one; empty: operands stay where they are.
  explicit Operands(std::vector<Device> members);
  /// Keeps what the streams still use and their library would not keep for them.
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

  void choose_streams(const StreamsArgument& streams);
  [[nodiscard]] bool is_in_place() const;
  Tensor staged(const Operand& host, Device device, Use use);
  [[nodiscard]] Device member(std::size_t index) const;

  std::vector<Device> members_;
  std::vector<Operand> held_;
  std::vector<Staged> staged_;
  CurrentStreams current_;
  Kind kind_;
  bool has_kind_ = false;
  bool is_list_ = false;
  bool are_on_host_ = false;  ///< an operand was in host memory
};

}  // namespace tutti::python
