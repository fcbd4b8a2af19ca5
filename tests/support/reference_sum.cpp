// SPDX-License-Identifier: Apache-2.0
#include "support/reference_sum.hpp"

#include "support/number_formats.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
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

/// Loads, adds and stores element by element; `Load(bytes) -> Sum`, `store(Sum, bytes)`.
template <class Sum, class Load, class Store>
HostArray add_all(std::span<const HostArray> inputs, std::size_t width, Load load, Store store) {
  HostArray result = inputs.front();
  for (std::size_t start = 0; start < result.bytes.size(); start += width) {
    Sum sum = load(inputs.front().bytes.data() + start);
    for (const HostArray& input : inputs.subspan(1))
      sum = static_cast<Sum>(sum + load(input.bytes.data() + start));
    store(sum, result.bytes.data() + start);
  }
  return result;
}

template <class T>
T load_bits(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof value);
  return value;
}

template <class Unsigned>
HostArray add_integers(std::span<const HostArray> inputs) {
  return add_all<Unsigned>(inputs, sizeof(Unsigned), load_bits<Unsigned>,
                           [](Unsigned sum, std::byte* target) { std::memcpy(target, &sum, sizeof sum); });
}

template <class Real, class Bits>
HostArray add_reals(std::span<const HostArray> inputs) {
  return add_all<Real>(inputs, sizeof(Real), load_bits<Real>, [](Real sum, std::byte* target) {
    const Bits bits = std::isnan(sum) ? static_cast<Bits>(~Bits{0} >> 1U) : std::bit_cast<Bits>(sum);
    std::memcpy(target, &bits, sizeof bits);
  });
}

template <class Bits>
HostArray add_small_floats(std::span<const HostArray> inputs) {
  const DType dtype = inputs.front().dtype;
  return add_all<float>(
      inputs, sizeof(Bits), [&](const std::byte* a) { return decode_small_float(dtype, load_bits<Bits>(a)); },
      [&](float sum, std::byte* target) {
        const auto bits = static_cast<Bits>(encode_small_float(dtype, sum));
        std::memcpy(target, &bits, sizeof bits);
      });
}

HostArray any_true(std::span<const HostArray> inputs) {
  return add_all<int>(
      inputs, 1, [](const std::byte* a) { return *a == std::byte{0} ? 0 : 1; },
      [](int sum, std::byte* target) { *target = std::byte{sum > 0}; });
}

}  // namespace

float decode_small_float(DType dtype, std::uint32_t bits) {
  const NumberFormat format = format_of(dtype);
  const std::uint32_t sign_bit = 1U << (format.exponent_bits + format.mantissa_bits);
  const std::vector<double>& table = magnitude_table(dtype);
  const std::uint32_t magnitude = bits & (sign_bit - 1U);
  const double sign = (bits & sign_bit) != 0U ? -1.0 : 1.0;
  const auto first_special = static_cast<std::uint32_t>(table.size() - 1);
  if (magnitude < first_special) return static_cast<float>(std::copysign(table[magnitude], sign));
  if (format.has_infinity && magnitude == first_special) return static_cast<float>(sign * HUGE_VAL);
  return std::nanf("");
}

std::uint32_t encode_small_float(DType dtype, float value) {
  const NumberFormat format = format_of(dtype);
  if (std::isnan(value)) return quiet_nan(format);
  const std::vector<double>& table = magnitude_table(dtype);
  const double magnitude = std::fabs(static_cast<double>(value));
  // The first entry not below `magnitude`; it or its predecessor is nearest.
  const auto above = std::lower_bound(table.begin(), table.end(), magnitude);
  std::size_t index = static_cast<std::size_t>(above - table.begin());
  if (above == table.end()) {
    index = table.size() - 1;
  } else if (above != table.begin() && *above != magnitude) {
    const double to_upper = *above - magnitude;
    const double to_lower = magnitude - *(above - 1);
    if (to_lower < to_upper || (to_lower == to_upper && (index - 1) % 2 == 0)) --index;
  }
  if (index == table.size() - 1 && !format.has_infinity) return quiet_nan(format);
  const std::uint32_t sign = std::signbit(value) ? 1U << (format.exponent_bits + format.mantissa_bits) : 0U;
  return sign | static_cast<std::uint32_t>(index);
}

HostArray reference_sum(std::span<const HostArray> inputs) {
  switch (inputs.front().dtype) {
    case DType::float16:
    case DType::bfloat16:
      return add_small_floats<std::uint16_t>(inputs);
    case DType::float8_e4m3:
    case DType::float8_e5m2:
      return add_small_floats<std::uint8_t>(inputs);
    case DType::float32:
    case DType::complex64:
      return add_reals<float, std::uint32_t>(inputs);
    case DType::float64:
    case DType::complex128:
      return add_reals<double, std::uint64_t>(inputs);
    case DType::int8:
    case DType::uint8:
      return add_integers<std::uint8_t>(inputs);
    case DType::int16:
      return add_integers<std::uint16_t>(inputs);
    case DType::int32:
      return add_integers<std::uint32_t>(inputs);
    case DType::int64:
      return add_integers<std::uint64_t>(inputs);
    case DType::boolean:
      break;
  }
  return any_true(inputs);
}

}  // namespace tutti::test
