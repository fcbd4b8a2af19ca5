// SPDX-License-Identifier: Apache-2.0
#include "support/values/reference_sum.hpp"

#include "support/collectives/compiled_reduction.hpp"
#include "support/values/number_formats.hpp"
#include "tutti/error.hpp"
#include "tutti/reduce_types.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace tutti::test {

namespace {

/// All finite magnitudes of a small format in ascending order, and the one that would come next: a result
/// closer to that one overflows. In all these formats ascending magnitudes have ascending bits, so the index
/// is the encoding.
std::vector<double> magnitudes(DType dtype) {
  const NumberFormat format = format_of(dtype);
  const std::uint32_t count = 1U << (format.exponent_bits + format.mantissa_bits);
  std::vector<double> values;
  for (std::uint32_t bits = 0; bits < count; ++bits) {
    const std::uint32_t exponent = bits >> format.mantissa_bits;
    const std::uint32_t mantissa = bits & ((1U << format.mantissa_bits) - 1U);
    const double fraction = std::ldexp(mantissa, -static_cast<int>(format.mantissa_bits));
    const int scale = static_cast<int>(std::max(exponent, 1U)) - static_cast<int>(format.bias());
    values.push_back(std::ldexp(exponent == 0 ? fraction : 1.0 + fraction, scale));
    const bool last_exponent = exponent == (1U << format.exponent_bits) - 1U;
    const bool past_largest =
        last_exponent && (format.has_infinity || mantissa == (1U << format.mantissa_bits) - 1U);
    if (past_largest) break;
  }
  return values;
}

const std::vector<double>& magnitude_table(DType dtype) {
  static const std::array<std::vector<double>, 4> tables{
      magnitudes(DType::float16), magnitudes(DType::bfloat16), magnitudes(DType::float8_e4m3),
      magnitudes(DType::float8_e5m2)};
  switch (dtype) {
    case DType::float16:
      return tables[0];
    case DType::bfloat16:
      return tables[1];
    case DType::float8_e4m3:
      return tables[2];
    case DType::float8_e5m2:
      return tables[3];
    default:
      throw std::logic_error("not a small float");
  }
}

std::uint32_t quiet_nan(const NumberFormat& format) {
  const std::uint32_t ones = ((1U << format.exponent_bits) - 1U) << format.mantissa_bits;
  return format.has_infinity ? ones | 1U << (format.mantissa_bits - 1U)
                             : ones | ((1U << format.mantissa_bits) - 1U);
}

/// Converts numbers of one small format, by its table.
class SmallFloats {
 public:
  explicit SmallFloats(DType dtype) : format_(format_of(dtype)), table_(magnitude_table(dtype)) {}

  [[nodiscard]] float decode(std::uint32_t bits) const {
    const std::uint32_t magnitude = bits & (sign_bit() - 1U);
    const double sign = (bits & sign_bit()) != 0U ? -1.0 : 1.0;
    const auto first_special = static_cast<std::uint32_t>(table_.size() - 1);
    if (magnitude < first_special) return static_cast<float>(std::copysign(table_[magnitude], sign));
    if (format_.has_infinity && magnitude == first_special) return static_cast<float>(sign * HUGE_VAL);
    return std::nanf("");
  }
  [[nodiscard]] std::uint32_t encode(float value) const {
    if (std::isnan(value)) return quiet_nan(format_);
    const std::size_t index = nearest(std::fabs(static_cast<double>(value)));
    if (index == table_.size() - 1 && !format_.has_infinity) return quiet_nan(format_);
    return (std::signbit(value) ? sign_bit() : 0U) | static_cast<std::uint32_t>(index);
  }

 private:
  [[nodiscard]] std::uint32_t sign_bit() const {
    return 1U << (format_.exponent_bits + format_.mantissa_bits);
  }
  /// Returns the index of the nearest magnitude; of two that are equally near, the even one.
  [[nodiscard]] std::size_t nearest(double magnitude) const {
    if (magnitude >= table_.back()) return table_.size() - 1;
    const std::size_t below = last_not_above(magnitude);
    const double to_lower = magnitude - table_[below];
    const double to_upper = table_[below + 1] - magnitude;
    return to_upper < to_lower || (to_upper == to_lower && below % 2 == 1) ? below + 1 : below;
  }
  /// Between two powers of two, the magnitudes are equally far apart; those below the second are as far apart
  /// as those above it.
  [[nodiscard]] std::size_t last_not_above(double magnitude) const {
    const int bias = static_cast<int>(format_.bias());
    const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
    const int mantissa_bits = static_cast<int>(format_.mantissa_bits);
    const auto steps = static_cast<std::size_t>(std::ldexp(magnitude, mantissa_bits - exponent));
    return (static_cast<std::size_t>(exponent + bias - 1) << format_.mantissa_bits) + steps;
  }

  NumberFormat format_;
  const std::vector<double>& table_;
};

template <class T>
T load_bits(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof value);
  return value;
}

/// Loads, combines and stores element by element; `load(bytes) -> Number`, `store(Number, bytes)`,
/// `times(Number, factor)`, `divide(Number, count)`.
template <class Number, class Load, class Store, class Times, class Divide, class Combine>
HostArray combine_all(std::span<const HostArray> inputs, const ReduceOp& operation, std::size_t width,
                      Load load, Store store, Times times, Divide divide, Combine combine) {
  const std::vector<double>& factors = operation.factors();
  HostArray result = inputs.front();
  for (std::size_t start = 0; start < result.bytes.size(); start += width) {
    const auto number = [&](std::size_t input) {
      const Number loaded = load(inputs[input].bytes.data() + start);
      if (factors.empty()) return loaded;
      return times(loaded, factors.size() == 1 ? factors[0] : factors[input]);
    };
    Number total = number(0);
    for (std::size_t input = 1; input < inputs.size(); ++input) total = combine(total, number(input));
    if (operation.kind() == ReduceKind::avg) total = divide(total, inputs.size());
    store(total, result.bytes.data() + start);
  }
  return result;
}

template <class Real>
Real lesser(Real a, Real b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<Real>::quiet_NaN();
  if (a == b) return std::signbit(a) ? a : b;
  return std::min(a, b);
}

/// `load` and `store` are those of the element type.
template <class Real, class Load, class Store>
HostArray combine_as_reals(std::span<const HostArray> inputs, const ReduceOp& operation, std::size_t width,
                           Load load, Store store) {
  const auto with = [&](auto combine) {
    return combine_all<Real>(
        inputs, operation, width, load, store,
        [](Real value, double factor) { return value * static_cast<Real>(factor); },
        [](Real sum, std::size_t count) { return sum / static_cast<Real>(count); }, combine);
  };
  switch (operation.kind()) {
    case ReduceKind::prod:
      return with([](Real a, Real b) { return a * b; });
    case ReduceKind::min:
      return with(lesser<Real>);
    case ReduceKind::max:
      return with([](Real a, Real b) { return -lesser(-a, -b); });
    default:
      return with([](Real a, Real b) { return a + b; });
  }
}

/// In 128 bits, of which the lowest are kept: what wraps around.
template <class Integer>
HostArray combine_integers(std::span<const HostArray> inputs, const ReduceOp& operation) {
  __extension__ using Wide = __int128;
  __extension__ using Product = unsigned __int128;
  const auto wrapped = [](Wide value) { return static_cast<Integer>(static_cast<std::uint64_t>(value)); };
  const auto with = [&](auto combine) {
    return combine_all<Integer>(
        inputs, operation, sizeof(Integer), load_bits<Integer>,
        [](Integer value, std::byte* target) { std::memcpy(target, &value, sizeof value); },
        [=](Integer value, double factor) { return wrapped(Wide{value} * static_cast<Wide>(factor)); },
        [=](Integer sum, std::size_t count) { return wrapped(Wide{sum} / static_cast<std::int64_t>(count)); },
        combine);
  };
  switch (operation.kind()) {
    case ReduceKind::prod:
      return with([=](Integer a, Integer b) { return wrapped(static_cast<Wide>(Product(a) * Product(b))); });
    case ReduceKind::min:
      return with([](Integer a, Integer b) { return std::min(a, b); });
    case ReduceKind::max:
      return with([](Integer a, Integer b) { return std::max(a, b); });
    case ReduceKind::band:
      return with([=](Integer a, Integer b) { return wrapped(Wide{a} & Wide{b}); });
    case ReduceKind::bor:
      return with([=](Integer a, Integer b) { return wrapped(Wide{a} | Wide{b}); });
    case ReduceKind::bxor:
      return with([=](Integer a, Integer b) { return wrapped(Wide{a} ^ Wide{b}); });
    default:
      return with([=](Integer a, Integer b) { return wrapped(Wide{a} + b); });
  }
}

template <class Real>
void store_real(Real value, std::byte* target) {
  using Bits = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;
  const Bits bits = std::isnan(value) ? static_cast<Bits>(~Bits{0} >> 1U) : std::bit_cast<Bits>(value);
  std::memcpy(target, &bits, sizeof bits);
}

template <class Real>
HostArray combine_reals(std::span<const HostArray> inputs, const ReduceOp& operation) {
  return combine_as_reals<Real>(inputs, operation, sizeof(Real), load_bits<Real>, store_real<Real>);
}

/// Products; all else goes part by part.
template <class Real>
HostArray combine_complex(std::span<const HostArray> inputs, const ReduceOp& operation) {
  if (operation.kind() != ReduceKind::prod) return combine_reals<Real>(inputs, operation);
  using Pair = std::array<Real, 2>;
  return combine_all<Pair>(
      inputs, operation, sizeof(Pair), load_bits<Pair>,
      [](const Pair& value, std::byte* target) {
        store_real(value[0], target);
        store_real(value[1], target + sizeof(Real));
      },
      [](Pair value, double) { return value; }, [](Pair value, std::size_t) { return value; },
      [](Pair a, Pair b) {
        return Pair{a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]};
      });
}

template <class Bits>
HostArray combine_small_floats(std::span<const HostArray> inputs, const ReduceOp& operation) {
  const SmallFloats floats(inputs.front().dtype);
  return combine_as_reals<float>(
      inputs, operation, sizeof(Bits), [&](const std::byte* a) { return floats.decode(load_bits<Bits>(a)); },
      [&](float value, std::byte* target) {
        const auto bits = static_cast<Bits>(floats.encode(value));
        std::memcpy(target, &bits, sizeof bits);
      });
}

HostArray combine_truths(std::span<const HostArray> inputs, const ReduceOp& operation) {
  const auto with = [&](auto combine) {
    return combine_all<int>(
        inputs, operation, 1, [](const std::byte* a) { return *a == std::byte{0} ? 0 : 1; },
        [](int value, std::byte* target) { *target = std::byte{value != 0}; },
        [](int value, double) { return value; }, [](int value, std::size_t) { return value; }, combine);
  };
  switch (operation.kind()) {
    case ReduceKind::min:
    case ReduceKind::prod:
    case ReduceKind::band:
      return with([](int a, int b) { return a & b; });
    case ReduceKind::bxor:
      return with([](int a, int b) { return a ^ b; });
    default:
      return with([](int a, int b) { return a | b; });
  }
}

/// A sum, all of whose inputs but the first count negative.
HostArray reference_difference(std::span<const HostArray> inputs) {
  if (inputs.front().dtype == DType::boolean) return reference_reduction(inputs, ReduceOp::bxor);
  std::vector<double> factors(inputs.size(), -1.0);
  factors.front() = 1.0;
  return reference_reduction(inputs, ReduceOp::premul_sum(factors));
}

}  // namespace

float decode_small_float(DType dtype, std::uint32_t bits) {
  return SmallFloats(dtype).decode(bits);
}

std::uint32_t encode_small_float(DType dtype, float value) {
  return SmallFloats(dtype).encode(value);
}

HostArray reference_sum(std::span<const HostArray> inputs) {
  return reference_reduction(inputs, ReduceOp::sum);
}

HostArray reference_reduction(std::span<const HostArray> inputs, const ReduceOp& operation) {
  if (operation.kind() == ReduceKind::compiled) {
    if (operation != compiled_difference())
      throw Error(ErrorCode::internal, "there is no reference for " + operation.source());
    return reference_difference(inputs);
  }
  switch (inputs.front().dtype) {
    case DType::float16:
    case DType::bfloat16:
      return combine_small_floats<std::uint16_t>(inputs, operation);
    case DType::float8_e4m3:
    case DType::float8_e5m2:
      return combine_small_floats<std::uint8_t>(inputs, operation);
    case DType::float32:
      return combine_reals<float>(inputs, operation);
    case DType::complex64:
      return combine_complex<float>(inputs, operation);
    case DType::float64:
      return combine_reals<double>(inputs, operation);
    case DType::complex128:
      return combine_complex<double>(inputs, operation);
    case DType::int8:
      return combine_integers<std::int8_t>(inputs, operation);
    case DType::uint8:
      return combine_integers<std::uint8_t>(inputs, operation);
    case DType::int16:
      return combine_integers<std::int16_t>(inputs, operation);
    case DType::uint16:
      return combine_integers<std::uint16_t>(inputs, operation);
    case DType::int32:
      return combine_integers<std::int32_t>(inputs, operation);
    case DType::uint32:
      return combine_integers<std::uint32_t>(inputs, operation);
    case DType::int64:
      return combine_integers<std::int64_t>(inputs, operation);
    case DType::uint64:
      return combine_integers<std::uint64_t>(inputs, operation);
    case DType::boolean:
      break;
  }
  return combine_truths(inputs, operation);
}

std::vector<ReduceOp> operations_of(DType dtype, std::size_t inputs) {
  std::vector<ReduceOp> operations{ReduceOp::sum, ReduceOp::prod};
  const bool is_complex = dtype == DType::complex64 || dtype == DType::complex128;
  const bool is_floating = format_of(dtype).is_floating();
  if (!is_complex) operations.insert(operations.end(), {ReduceOp::min, ReduceOp::max});
  if (!is_floating) operations.insert(operations.end(), {ReduceOp::band, ReduceOp::bor, ReduceOp::bxor});
  if (dtype == DType::boolean) return operations;
  operations.emplace_back(ReduceOp::avg);
  operations.push_back(ReduceOp::premul_sum(is_floating ? 0.3 : -3.0));
  std::vector<double> factors;
  for (std::size_t i = 0; i < inputs; ++i)
    factors.push_back(static_cast<double>(i) * (is_floating ? 0.7 : 5.0) - 1.0);
  operations.push_back(ReduceOp::premul_sum(factors));
  return operations;
}

std::vector<ReduceOp> operations_of(std::span<const DType> dtypes, std::size_t inputs) {
  // Factors for integers are whole.
  const auto integers =
      std::ranges::find_if(dtypes, [](DType dtype) { return !format_of(dtype).is_floating(); });
  std::vector<ReduceOp> operations =
      operations_of(integers == dtypes.end() ? DType::float32 : *integers, inputs);
  std::erase_if(operations, [&](const ReduceOp& op) {
    return !std::ranges::all_of(dtypes, [&](DType dtype) { return has_operation(dtype, op.kind()); });
  });
  return operations;
}

}  // namespace tutti::test
