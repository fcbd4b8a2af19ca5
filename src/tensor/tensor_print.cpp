// SPDX-License-Identifier: Apache-2.0
#include "device/runtime.hpp"
#include "stream/thread_streams.hpp"
#include "tensor/tensor_factory.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <complex>
#include <cstdint>
#include <functional>
#include <ostream>
#include <vector>

#include <fmt/format.h>

namespace tutti {
namespace {

constexpr std::int64_t most_shown_whole = 1000;
constexpr std::int64_t edge = 3;  ///< of each end of a dimension

/// Copies the visible part of `whole` to `shown`: of its dimensions from `dimension` on, the ends.
void copy_edges(const Tensor& shown, const Tensor& whole, int dimension) {
  if (dimension == whole.dim()) {
    shown.copy_(whole);
    return;
  }
  const std::int64_t size = whole.size(dimension);
  if (size <= 2 * edge) return copy_edges(shown, whole, dimension + 1);
  for (const bool is_end : {false, true}) {
    copy_edges(shown.narrow(dimension, is_end ? edge : 0, edge),
               whole.narrow(dimension, is_end ? size - edge : 0, edge), dimension + 1);
  }
}

/// Returns the visible elements, on the host.
Tensor shown_part(const Tensor& tensor) {
  if (tensor.numel() <= most_shown_whole) return tensor.to(Device::host());
  std::vector<std::int64_t> sizes(tensor.sizes().begin(), tensor.sizes().end());
  for (std::int64_t& size : sizes) size = std::min(size, 2 * edge);
  Tensor shown = empty(sizes, {.dtype = tensor.dtype()});
  copy_edges(shown, tensor, 0);
  return shown;
}

/// Returns a function that formats the element at an index, in index order.
std::function<std::string(std::size_t)> shower_of(const Tensor& values) {
  switch (values.dtype()) {
    case DType::boolean:
      return [bytes = values.to_bytes()](std::size_t i) {
        return std::string(bytes[i] != std::byte{0} ? "true" : "false");
      };
    case DType::int8:
    case DType::uint8:
    case DType::int16:
    case DType::uint16:
    case DType::int32:
    case DType::uint32:
    case DType::int64:
      return [numbers = values.to(DType::int64).to_vector<std::int64_t>()](std::size_t i) {
        return fmt::format("{}", numbers[i]);
      };
    case DType::uint64:
      return [numbers = values.to_vector<std::uint64_t>()](std::size_t i) {
        return fmt::format("{}", numbers[i]);
      };
    case DType::complex64:
    case DType::complex128:
      return [numbers = values.to(DType::complex128).to_vector<std::complex<double>>()](std::size_t i) {
        return fmt::format("{:.6g}{:+.6g}i", numbers[i].real(), numbers[i].imag());
      };
    default:
      return [numbers = values.to(DType::float64).to_vector<double>()](std::size_t i) {
        return fmt::format("{:.6g}", numbers[i]);
      };
  }
}

class ValuePrinter {
 public:
  ValuePrinter(const Tensor& tensor, const Tensor& shown)
      : tensor_(tensor), shown_(shown), element_(shower_of(shown)) {}

  [[nodiscard]] std::string print() {
    print_from(0);
    return std::move(text_);
  }

 private:
  void print_from(int dimension) {
    if (dimension == tensor_.dim()) {
      text_ += element_(next_++);
      return;
    }
    text_ += '[';
    const bool is_abbreviated = shown_.size(dimension) < tensor_.size(dimension);
    for (std::int64_t i = 0; i < shown_.size(dimension); ++i) {
      if (i != 0) separate(dimension);
      if (is_abbreviated && i == edge) {
        text_ += "...";
        separate(dimension);
      }
      print_from(dimension + 1);
    }
    text_ += ']';
  }
  void separate(int dimension) {
    if (dimension + 1 == tensor_.dim()) {
      text_ += ", ";
    } else {
      text_ += ",\n ";
      text_.append(static_cast<std::size_t>(dimension), ' ');
    }
  }

  const Tensor& tensor_;
  const Tensor& shown_;
  std::function<std::string(std::size_t)> element_;
  std::size_t next_ = 0;
  std::string text_;
};

bool is_being_captured(const Tensor& tensor) {
  if (tensor.device().is_host()) return false;
  Runtime& runtime = Runtime::get();
  return runtime.backend().is_capturing(current_stream_ref(runtime, tensor.device().index()));
}

}  // namespace

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "Tensor (undefined)";
  std::string text = fmt::format("Tensor of {} {} on {}", name_of(tensor.dtype()), to_string(tensor.sizes()),
                                 to_string(tensor.device()));
  if (tensor.numel() == 0) return text;
  if (is_being_captured(tensor)) return text + ", whose stream is being captured";
  const Tensor shown = shown_part(tensor);
  return text + "\n" + ValuePrinter(tensor, shown).print();
}

std::ostream& operator<<(std::ostream& stream, const Tensor& tensor) {
  return stream << to_string(tensor);
}

}  // namespace tutti
