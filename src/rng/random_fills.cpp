// SPDX-License-Identifier: Apache-2.0
#include "allocator/graph_pools/graph_captures.hpp"
#include "backend/philox.hpp"
#include "device/current_device.hpp"
#include "os/floating_point_environment.hpp"
#include "rng/random_draws.hpp"
#include "stream/thread_streams.hpp"
#include "tensor/tensor_factory.hpp"
#include "tutti/error.hpp"
#include "tutti/rng.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <random>

#include <fmt/format.h>

namespace tutti {
namespace {

/// The largest finite number of a floating-point element type that can be filled.
double largest_of(const Tensor& tensor, std::string_view function) {
  switch (tensor.dtype()) {
    case DType::float16:
      return static_cast<double>(static_cast<float>(std::bit_cast<Float16>(std::uint16_t{0x7bff})));
    case DType::bfloat16:
      return static_cast<double>(static_cast<float>(std::bit_cast<BFloat16>(std::uint16_t{0x7f7f})));
    case DType::float32:
      return std::numeric_limits<float>::max();
    case DType::float64:
      return std::numeric_limits<double>::max();
    default:
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: the tensor holds {}, expected float16, bfloat16, float32 or float64",
                              function, name_of(tensor.dtype())));
  }
}

void require_fillable(const Tensor& tensor, std::string_view function) {
  require_defined(tensor, function, "the tensor");
  if (tensor.device().is_host()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the tensor is on the host, expected a device", function));
  }
  Runtime::get().require_device(tensor.device(), function);
  require_writable(tensor, function, "the tensor");
}

void require_within(double value, double largest, std::string_view function, std::string_view argument,
                    DType dtype) {
  if (std::abs(value) <= largest) return;  // false for NaN
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: {} is {}, expected a finite {}", function, argument, value, name_of(dtype)));
}

/// The width counts in the arithmetic that makes the elements: float32's, but for float64.
[[gnu::noinline]] bool is_too_wide(double low, double high, double largest, DType dtype) {
  return dtype == DType::float64 ? high - low > largest
                                 : static_cast<float>(high) - static_cast<float>(low) > largest;
}

/// `task` says all but where and from what state. The tensor is dense.
void fill_dense(const Tensor& tensor, backend::RandomFill task, std::string_view function) {
  Runtime& runtime = Runtime::get();
  const int device = tensor.device().index();
  const backend::StreamRef stream = current_stream_ref(runtime, device);
  task.target = static_cast<std::byte*>(tensor.data());
  task.count = static_cast<std::size_t>(tensor.numel());
  task.dtype = tensor.dtype();
  const std::uint64_t words = backend::random_offset_advance(task.distribution, task.dtype, task.count);
  if (const auto graph = runtime.part<GraphCaptures>().of(stream)) {
    if (graph->launches() != GraphLaunches::of_library) {
      throw Error(
          ErrorCode::unsupported,
          fmt::format("{}: the stream of device {} is being captured, but not by the library: only the "
                      "launches of its graphs advance the generator",
                      function, device));
    }
    const RandomDraws::Place place = graph->attached<RandomDraws>().add(stream, words);
    task.state = place.state;
    task.offset = place.offset;
  } else {
    const PhiloxState state = take_random_words(runtime, device, words);
    task.seed = state.seed;
    task.offset = state.offset;
  }
  runtime.backend().random_fill(stream, task);
}

void fill(const Tensor& tensor, const backend::RandomFill& task, std::string_view function) {
  if (tensor.numel() == 0) return;
  if (tensor.layout()->is_dense()) return fill_dense(tensor, task, function);
  if (!tensor.layout()->is_non_overlapping()) {  // before the generator advances
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{}: the tensor has sizes {} and strides {}, under which several indices share an "
                    "element, expected one element for each",
                    function, to_string(tensor.sizes()), to_string(tensor.strides())));
  }
  const Tensor dense =
      allocate_tensor(dense_layout(tensor.layout()), tensor.device(), HostMemory::pageable, function);
  fill_dense(dense, task, function);
  tensor.copy_(dense);
  keep_if_captured(dense, tensor.device());
}

/// The least and the greatest number of an integer element type, as far as an argument can say it.
std::pair<std::int64_t, std::int64_t> bounds_of(const Tensor& tensor, std::string_view function) {
  return visit_dtype(tensor.dtype(), [&]<class T>() -> std::pair<std::int64_t, std::int64_t> {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
      return {std::numeric_limits<T>::min(),
              static_cast<std::int64_t>(std::min<std::uint64_t>(std::numeric_limits<T>::max(), most))};
    } else {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: the tensor holds {}, expected an integer type", function,
                              name_of(tensor.dtype())));
    }
  });
}

void fill_with_integers(const Tensor& tensor, std::int64_t low, std::int64_t high,
                        std::string_view function) {
  require_fillable(tensor, function);
  const auto [least, greatest] = bounds_of(tensor, function);
  if (low >= high || low < least || high - 1 > greatest) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{}: low is {} and high is {}, expected low < high and integers of {}, from {} to "
                    "{}",
                    function, low, high, name_of(tensor.dtype()), least, greatest));
  }
  fill(tensor,
       {.distribution = backend::Distribution::integers,
        .low = low,
        .range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low)},
       function);
}

void fill_uniformly(const Tensor& tensor, double low, double high, std::string_view function) {
  require_fillable(tensor, function);
  const double largest = largest_of(tensor, function);
  require_within(low, largest, function, "low", tensor.dtype());
  require_within(high, largest, function, "high", tensor.dtype());
  const backend::FloatingPointScope scope;
  if (low > high || is_too_wide(low, high, largest, tensor.dtype())) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: low is {} and high is {}, expected low <= high and high - low <= {}",
                            function, low, high, largest));
  }
  fill(tensor, {.distribution = backend::Distribution::uniform, .first = low, .second = high}, function);
}

void fill_normally(const Tensor& tensor, double mean, double standard_deviation, std::string_view function) {
  require_fillable(tensor, function);
  const double largest = largest_of(tensor, function);
  require_within(mean, largest, function, "mean", tensor.dtype());
  require_within(standard_deviation, largest, function, "standard_deviation", tensor.dtype());
  if (standard_deviation < 0.0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: standard_deviation is {}, expected 0 or more",
                                                         function, standard_deviation));
  }
  fill(tensor, {.distribution = backend::Distribution::normal, .first = mean, .second = standard_deviation},
       function);
}

}  // namespace

void uniform_(const Tensor& tensor, double low, double high) {
  fill_uniformly(tensor, low, high, "uniform_");
}

void normal_(const Tensor& tensor, double mean, double standard_deviation) {
  fill_normally(tensor, mean, standard_deviation, "normal_");
}

void random_(const Tensor& tensor, std::int64_t low, std::int64_t high) {
  fill_with_integers(tensor, low, high, "random_");
}

void bernoulli_(const Tensor& tensor, double probability) {
  require_fillable(tensor, "bernoulli_");
  if (tensor.dtype() == DType::complex64 || tensor.dtype() == DType::complex128) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("bernoulli_: the tensor holds {}, expected a real type", name_of(tensor.dtype())));
  }
  const bool is_probability = probability >= 0.0 && probability <= 1.0;  // no NaN is
  if (!is_probability) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("bernoulli_: probability is {}, expected 0 to 1", probability));
  }
  fill(tensor,
       {.distribution = backend::Distribution::bernoulli,
        .range = static_cast<std::uint64_t>(probability * 0x1p32 + 0.5)},
       "bernoulli_");
}

Tensor rand(IntList sizes, const TensorOptions& options) {
  Tensor result = make_empty(sizes, options, "rand");
  fill_uniformly(result, 0.0, 1.0, "rand");
  return result;
}

Tensor randn(IntList sizes, const TensorOptions& options) {
  Tensor result = make_empty(sizes, options, "randn");
  fill_normally(result, 0.0, 1.0, "randn");
  return result;
}

Tensor randint(std::int64_t low, std::int64_t high, IntList sizes, const TensorOptions& options) {
  Tensor result = make_empty(sizes, options, "randint");
  fill_with_integers(result, low, high, "randint");
  return result;
}

Tensor rand_like(const Tensor& other, const LikeOptions& options) {
  Tensor result = make_like(other, options, "rand_like");
  fill_uniformly(result, 0.0, 1.0, "rand_like");
  return result;
}

Tensor randn_like(const Tensor& other, const LikeOptions& options) {
  Tensor result = make_like(other, options, "randn_like");
  fill_normally(result, 0.0, 1.0, "randn_like");
  return result;
}

Tensor randint_like(const Tensor& other, std::int64_t low, std::int64_t high, const LikeOptions& options) {
  Tensor result = make_like(other, options, "randint_like");
  fill_with_integers(result, low, high, "randint_like");
  return result;
}

}  // namespace tutti
