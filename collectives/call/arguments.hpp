// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/enumerators.hpp"
#include "device/runtime.hpp"
#include "storage/storage.hpp"
#include "tutti/collectives.hpp"
#include "tutti/error.hpp"
#include "tutti/reduce_op.hpp"

#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti::collectives {

/// The name of an argument in messages: "tensor", "out[3]", "out[3][7]". Made into text only when something
/// is wrong, because there may be thousands of tensors. Refers to `argument`, which is a literal or lives as
/// long as the call.
struct Name {
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  Name(std::string_view given) : argument(given) {}
  Name(const char* given) : argument(given) {}
  Name(const std::string& given) : argument(given) {}
  Name(std::string_view given, std::size_t first) : argument(given), row(first) {}
  Name(std::string_view given, std::size_t first, std::size_t second)
      : argument(given), row(first), column(second) {}

  std::string_view argument;
  std::size_t row = none;
  std::size_t column = none;
};

}  // namespace tutti::collectives

template <>
struct fmt::formatter<tutti::collectives::Name> : fmt::formatter<std::string_view> {
  fmt::format_context::iterator format(const tutti::collectives::Name& name,
                                       fmt::format_context& context) const;
};

namespace tutti::collectives {

/// Returns true if the library allocated the tensor's memory, and the tensor stays inside it: then nothing
/// has to be looked up.
[[nodiscard]] inline bool is_believed(const Tensor& tensor) noexcept {
  const Storage* const storage = tensor.storage().get();
  if (storage == nullptr || !tensor.defined() || !storage->is_library_memory()) return false;
  const auto* const begin = static_cast<const std::byte*>(storage->data());
  const auto* const data = static_cast<const std::byte*>(tensor.data());
  const std::size_t bytes = tensor.layout()->span_bytes();
  return storage->device() == tensor.device() && data >= begin && bytes <= storage->bytes() &&
         data <= begin + (storage->bytes() - bytes);
}

/// Returns true if the tensor is believed, dense, and on `device`, which is not the host: then it passes
/// every check of a single operand. In lists of thousands nearly all tensors are, and need no other check.
[[nodiscard]] inline bool is_plain(const Tensor& tensor, Device device) noexcept {
  return is_believed(tensor) && tensor.device() == device && !device.is_host() && tensor.layout()->is_dense();
}
/// Returns true if the tensor also has the layout of `pattern`: then it can be used without a copy.
[[nodiscard]] inline bool is_plain_as(const Tensor& pattern, const Tensor& tensor, Device device) noexcept {
  return is_plain(tensor, device) && *tensor.layout() == *pattern.layout();
}

/// Prefetches the data that checks read of the tensor some places behind `index`: storages and layouts of
/// long lists lie anywhere, and the checks would wait for one after the other. Most storages lie in two cache
/// lines.
inline void fetch_ahead(std::span<const Tensor> tensors, std::size_t index) noexcept {
  constexpr std::size_t places = 8;
  if (index + places >= tensors.size()) return;
  const Tensor& later = tensors[index + places];
  if (!later.defined()) return;
  const auto* const storage = reinterpret_cast<const std::byte*>(later.storage().get());
  __builtin_prefetch(storage);
  __builtin_prefetch(storage + sizeof(DeviceStorage) - 1);
  __builtin_prefetch(later.layout().get());
}

/// Checks of one call's arguments. Every message starts with the function's name and names argument, index,
/// what was given and what was expected. All checks throw Error(invalid_argument).
class Arguments {
 public:
  Arguments(Runtime& runtime, std::string_view function) : runtime_(runtime), function_(function) {}
  /// Checks the options.
  Arguments(Runtime& runtime, std::string_view function, const CollectiveOptions& options)
      : Arguments(runtime, function) {
    known_transport(options.transport);
    enumerator(options.determinism, Determinism::bitwise, "options.determinism");
    enumerator(options.blocking, Blocking::no, "options.blocking");
    enough_multiprocessors(options.multiprocessors, 0);
  }

  [[nodiscard]] Runtime& runtime() const noexcept { return runtime_; }

  template <class... Values>
  [[noreturn]] void fail(fmt::format_string<Values...> format, Values&&... values) const {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: {}", function_, fmt::format(format, std::forward<Values>(values)...)));
  }

  /// Fails with Error(unsupported), for arguments that are valid but not supported.
  template <class... Values>
  [[noreturn]] void unsupported(fmt::format_string<Values...> format, Values&&... values) const {
    throw Error(ErrorCode::unsupported,
                fmt::format("{}: {}", function_, fmt::format(format, std::forward<Values>(values)...)));
  }

  /// Checks that `value` is an enumerator; these are numbered from 0 to `last`.
  template <class Enum>
  void enumerator(Enum value, Enum last, std::string_view argument) const {
    require_enumerator(value, last, function_, argument);
  }
  /// Checks that `options.transport` is an enumerator.
  void known_transport(TransportKind transport) const;
  void enough_multiprocessors(std::optional<int> given, int least) const;
  void not_empty(std::size_t count, const Name& name) const;
  /// Returns the devices, with the current one by its index; a changed list is kept in `memory`.
  [[nodiscard]] DeviceList resolved(DeviceList devices, std::vector<Device>& memory) const;
  /// Checks that each `devices[i]` is an existing device, not the host.
  void existing_devices(DeviceList devices, std::string_view argument) const;
  void existing_device(Device device, const Name& name) const;
  /// Checks that a tensor is defined, on an existing device or the host, and that its memory is on that
  /// device and holds all elements. Memory that the library allocated is not looked up; other memory is.
  void usable(const Tensor& tensor, const Name& name) const {
    if (!is_believed(tensor)) look_into(tensor, name);
  }
  void on_some_device(const Tensor& tensor, const Name& name) const;
  void same_dtype(const Tensor& tensor, const Name& name, DType expected, const Name& expected_of) const;
  void same_sizes(const Tensor& tensor, const Name& name, std::span<const std::int64_t> expected,
                  const Name& expected_of) const;
  /// Checks that `tensor` has the dimensions of `pattern`, of the same sizes but along dimension `dim`.
  void same_sizes_but_one(const Tensor& tensor, const Name& name, const Tensor& pattern,
                          const Name& pattern_name, int dim) const;
  /// Checks that no two elements of the tensor share memory.
  void writable(const Tensor& tensor, const Name& name) const;
  /// Checks that the operation is an enumerator.
  void operation(const ReduceOp& operation) const;
  /// Checks that elements of the type have the operation, and that there is one factor, or one for each of
  /// `count` inputs.
  void operation(const ReduceOp& operation, DType dtype, std::size_t count) const;
  /// Compiles an operation that is given as source text for elements of the type on the device, which may
  /// take seconds. Throws the errors of compiling.
  void compiled_for(const ReduceOp& operation, DType dtype, Device device) const;
  /// Returns `dim`, counted from the front.
  [[nodiscard]] int dimension(int dim, int rank) const;
  /// Checks a workload: one element type for each tensor of the list, or none.
  void tensor_dtypes(std::size_t dtypes, std::size_t tensors) const;
  /// Checks the number of tensors in a workload's list; none where the collective takes no lists.
  void tensor_bytes(std::size_t count, Collective collective) const;
  /// Checks that there is one stream of each of the `devices`, or none; there is one for every `owner`.
  void streams(StreamList streams, std::span<const Device> devices, std::string_view owner) const;

 private:
  void look_into(const Tensor& tensor, const Name& name) const;

  Runtime& runtime_;
  std::string_view function_;
};

}  // namespace tutti::collectives
