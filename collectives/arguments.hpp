#pragma once

#include "runtime.hpp"
#include "tutti/collectives.hpp"
#include "tutti/error.hpp"

#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti::collectives {

/// Checks of one call's arguments. Every message starts with the function's name and names argument, index,
/// what was given and what was expected. All throw Error(invalid_argument).
class Arguments {
 public:
  Arguments(Runtime& runtime, std::string_view function) : runtime_(runtime), function_(function) {}

  [[nodiscard]] Runtime& runtime() const noexcept { return runtime_; }

  template <class... Values>
  [[noreturn]] void fail(fmt::format_string<Values...> format, Values&&... values) const {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: {}", function_, fmt::format(format, std::forward<Values>(values)...)));
  }

  void not_empty(std::size_t count, std::string_view argument) const;
  /// `devices[i]` is an existing device, not the host.
  void existing_devices(DeviceList devices, std::string_view argument) const;
  void existing_device(Device device, const std::string& name) const;
  /// Defined, on an existing device or the host, and its memory is what it claims to be: on that device, and
  /// at least as large as the elements reach. Memory the library allocated is believed, other memory is
  /// looked up.
  void usable(const Tensor& tensor, const std::string& name) const;
  void on_some_device(const Tensor& tensor, const std::string& name) const;
  void same_dtype(const Tensor& tensor, const std::string& name, DType expected,
                  std::string_view expected_of) const;
  void same_sizes(const Tensor& tensor, const std::string& name, std::span<const std::int64_t> expected,
                  std::string_view expected_of) const;
  /// No two elements of it share memory.
  void writable(const Tensor& tensor, const std::string& name) const;
  /// `dim`, counted from the front.
  [[nodiscard]] int dimension(int dim, int rank) const;
  /// One stream of each output's device, or none.
  void streams(StreamList streams, std::span<const Device> devices) const;

 private:
  Runtime& runtime_;
  std::string_view function_;
};

/// Whether the library allocated the tensor's memory, and the tensor stays inside: then nothing need be
/// looked up.
[[nodiscard]] bool is_believed(const Tensor& tensor) noexcept;

/// "out[3]".
[[nodiscard]] std::string indexed(std::string_view argument, std::size_t index);
/// "out[3][7]".
[[nodiscard]] std::string indexed(std::string_view argument, std::size_t row, std::size_t column);

/// Whether an output may be exactly an input.
enum class InPlace : std::uint8_t {
  forbidden,
  allowed,
  same_index,  ///< only an input at the same place of its list
};

/// A tensor and the name messages give it; for lists the index is part of the name, made when it is needed.
struct Named {
  std::string_view argument;
  std::span<const Tensor> tensors;
  int row = -1;  ///< of a list of lists; -1 for a plain list, -2 for a single tensor
  [[nodiscard]] std::string name(std::size_t index) const;
};

/// No output overlaps another output or an input, except as `in_place` says. Cost: linear for lists whose
/// addresses ascend, as they do as a rule; else a sort.
void require_disjoint(const Arguments& arguments, std::span<const Named> inputs,
                      std::span<const Named> outputs, InPlace in_place);

}  // namespace tutti::collectives
