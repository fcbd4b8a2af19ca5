// SPDX-License-Identifier: Apache-2.0
#include "jit/jit_source.hpp"

#include "tutti/error.hpp"
#include "tutti/layout.hpp"

#include <fmt/format.h>

/// The texts around a user's function. Names of their own begin with `tutti_`.
namespace tutti {
namespace {

constexpr std::size_t jit_rank = max_dimensions;

/// The types in which elements are stored and computed, and their conversions, as text.
struct JitTypes {
  std::string_view stored;
  std::string_view computed;
  std::string_view load;
  std::string_view store;
};

JitTypes jit_types(DType dtype) noexcept {
  switch (dtype) {
    case DType::float16:
      return {"unsigned short", "float", "tutti_from_half", "tutti_to_half"};
    case DType::bfloat16:
      return {"unsigned short", "float", "tutti_from_bfloat", "tutti_to_bfloat"};
    case DType::float32:
      return {"float", "float", "", ""};
    case DType::float64:
      return {"double", "double", "", ""};
    case DType::int8:
      return {"signed char", "signed char", "", ""};
    case DType::uint8:
      return {"unsigned char", "unsigned char", "", ""};
    case DType::int16:
      return {"short", "short", "", ""};
    case DType::uint16:
      return {"unsigned short", "unsigned short", "", ""};
    case DType::int32:
      return {"int", "int", "", ""};
    case DType::uint32:
      return {"unsigned", "unsigned", "", ""};
    case DType::int64:
      return {"long long", "long long", "", ""};
    case DType::uint64:
      return {"unsigned long long", "unsigned long long", "", ""};
    case DType::boolean:
      return {"unsigned char", "bool", "static_cast<bool>", ""};  // all but 0 are true
    default:
      return {};
  }
}

/// Before the user's text.
constexpr std::string_view prelude = R"(
#if defined(__CUDACC_RTC__)
#define TUTTI_INLINE __device__ __forceinline__
#else
#include <math.h>
#include <stdlib.h>
#include <string.h>
#define TUTTI_INLINE inline
#endif
)";

/// Numbers of 16 bits, rounded to nearest, ties to even.
constexpr std::string_view short_floats = R"(
#if defined(__CUDACC_RTC__)
TUTTI_INLINE unsigned tutti_bits(float value) { return __float_as_uint(value); }
TUTTI_INLINE float tutti_float(unsigned bits) { return __uint_as_float(bits); }
#else
TUTTI_INLINE unsigned tutti_bits(float value) { unsigned bits; memcpy(&bits, &value, sizeof bits); return bits; }
TUTTI_INLINE float tutti_float(unsigned bits) { float value; memcpy(&value, &bits, sizeof value); return value; }
#endif
TUTTI_INLINE float tutti_from_half(unsigned short half) {
  const unsigned sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31u, mantissa = half & 1023u;
  if (exponent == 31u) return tutti_float(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0u) return tutti_float(sign | (exponent + 112u) << 23 | mantissa << 13);
  const float small = static_cast<float>(mantissa) * tutti_float(0x33800000u);
  return tutti_float(sign | tutti_bits(small));
}
TUTTI_INLINE unsigned short tutti_to_half(float value) {
  const unsigned sign = tutti_bits(value) >> 16 & 0x8000u;
  unsigned bits = tutti_bits(value) & 0x7fffffffu;
  if (bits > 0x7f800000u) return static_cast<unsigned short>(sign | 0x7e00u);
  if (bits >= 0x477ff000u) return static_cast<unsigned short>(sign | 0x7c00u);
  if (bits < 0x38800000u)
    return static_cast<unsigned short>(sign | (tutti_bits(tutti_float(bits) + 0.5f) - 0x3f000000u));
  bits += 0xc8000fffu + (bits >> 13 & 1u);
  return static_cast<unsigned short>(sign | bits >> 13);
}
TUTTI_INLINE float tutti_from_bfloat(unsigned short value) {
  return tutti_float(static_cast<unsigned>(value) << 16);
}
TUTTI_INLINE unsigned short tutti_to_bfloat(float value) {
  const unsigned bits = tutti_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<unsigned short>(bits >> 16 & 0x8000u | 0x7fc0u);
  return static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
)";

/// The entry, which calls `tutti_element` for each index. Behind the user's text.
constexpr std::string_view jit_entry = R"(
#if defined(__CUDACC_RTC__)
extern "C" __global__ void __launch_bounds__(256) tutti_entry(const tutti_parameters p) {
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < p.count; i += step)
    tutti_element(p, i);
}
#else
extern "C" __attribute__((visibility("default"))) void tutti_entry(const tutti_parameters* parameters) {
  const tutti_parameters p = *parameters;
  for (unsigned long long i = 0; i < p.count; ++i) tutti_element(p, i);
}
#endif
)";

std::string_view type_of(JitScalarKind kind) {
  switch (kind) {
    case JitScalarKind::boolean:
      return "bool";
    case JitScalarKind::integer:
      return "long long";
    case JitScalarKind::real:
      return "double";
    case JitScalarKind::unsigned_integer:
      return "unsigned long long";
  }
  return "double";
}

std::string text_before(std::string_view source, const JitTypes& types) {
  return fmt::format(
      "{}{}\n#line 1 \"source\"\n{}\n#line 1 \"tutti\"\ntypedef {} tutti_stored;\n"
      "typedef {} tutti_computed;\n"
      "TUTTI_INLINE tutti_computed tutti_load(const void* p, long long i) {{\n"
      "  return {}(static_cast<const tutti_stored*>(p)[i]);\n}}\n"
      "TUTTI_INLINE void tutti_store(void* p, unsigned long long i, tutti_computed value) {{\n"
      "  static_cast<tutti_stored*>(p)[i] = {}(value);\n}}\n",
      prelude, types.stored == "unsigned short" ? short_floats : std::string_view(), source, types.stored,
      types.computed, types.load, types.store);
}

}  // namespace

bool is_jit_dtype(DType dtype) noexcept {
  return !jit_types(dtype).stored.empty();
}

void require_jit_dtype(DType dtype, std::string_view function) {
  if (is_jit_dtype(dtype)) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("{}: the tensors hold {}, expected float16, bfloat16, float32, float64, bool or an "
                          "integer type",
                          function, name_of(dtype)));
}

std::size_t ElementwisePlaces::strides(std::size_t input) const noexcept {
  return sizes + jit_rank * (1 + input);
}
std::size_t ElementwisePlaces::input(std::size_t i) const noexcept {
  return strides(inputs_count) + i;
}
std::size_t ElementwisePlaces::output(std::size_t i) const noexcept {
  return input(inputs_count) + i;
}
std::size_t ElementwisePlaces::scalar(std::size_t i) const noexcept {
  return output(outputs_count) + i;
}
std::size_t ElementwisePlaces::total() const noexcept {
  return scalar(scalars_count);
}

backend::CodeText elementwise_text(std::string_view source, std::string_view name, DType dtype,
                                   const ElementwisePlaces& places, const std::vector<JitScalarKind>& scalars,
                                   bool returns_output) {
  std::string members;
  std::string arguments;
  for (std::size_t i = 0; i < places.inputs_count; ++i)
    arguments += fmt::format("{}tutti_load(p.inputs[{}], at[{}])", i == 0 ? "" : ", ", i, i);
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    const std::string_view type = type_of(scalars[i]);
    members += fmt::format("  union {{ {} value; unsigned long long word; }} scalar{};\n", type, i);
    arguments += fmt::format(", p.scalar{}.value", i);
  }
  std::string call;
  if (returns_output) {
    call = fmt::format("  tutti_store(p.outputs[0], i, ::{}<tutti_computed>({}));\n", name, arguments);
  } else {
    for (std::size_t i = 0; i < places.outputs_count; ++i) {
      call += fmt::format("  tutti_computed out{} = tutti_computed();\n", i);
      arguments += fmt::format(", out{}", i);
    }
    call += fmt::format("  ::{}<tutti_computed>({});\n", name, arguments);
    for (std::size_t i = 0; i < places.outputs_count; ++i)
      call += fmt::format("  tutti_store(p.outputs[{}], i, out{});\n", i, i);
  }
  return {
      text_before(source, jit_types(dtype)) +
          fmt::format("struct tutti_parameters {{\n"
                      "  unsigned long long count, is_dense, rank, sizes[{0}];\n"
                      "  long long strides[{1}][{0}];\n"
                      "  const void* inputs[{1}];\n  void* outputs[{2}];\n{3}}};\n"
                      "TUTTI_INLINE void tutti_element(const tutti_parameters& p, unsigned long long i) "
                      "{{\n"
                      "  long long at[{1}];\n"
                      "  for (int k = 0; k < {1}; ++k) at[k] = p.is_dense ? static_cast<long long>(i) : 0;\n"
                      "  if (!p.is_dense) {{\n"
                      "    unsigned long long rest = i;\n"
                      "    for (int d = static_cast<int>(p.rank) - 1; d >= 0; --d) {{\n"
                      "      const long long place = static_cast<long long>(rest % p.sizes[d]);\n"
                      "      rest /= p.sizes[d];\n"
                      "      for (int k = 0; k < {1}; ++k) at[k] += place * p.strides[k][d];\n"
                      "    }}\n  }}\n{4}}}\n",
                      jit_rank, places.inputs_count, places.outputs_count, members, call) +
          std::string(jit_entry),
      "tutti_entry"};
}

backend::CodeText combination_text(std::string_view source, std::string_view name, DType dtype) {
  return {text_before(source, jit_types(dtype)) +
              fmt::format("struct tutti_parameters {{\n"
                          "  unsigned long long count, operands_count;\n"
                          "  void* target;\n  const void* operands[{}];\n}};\n"
                          "TUTTI_INLINE void tutti_element(const tutti_parameters& p, unsigned long long i) "
                          "{{\n"
                          "  const long long at = static_cast<long long>(i);\n"
                          "  tutti_computed result = tutti_load(p.operands[0], at);\n"
                          "  for (unsigned long long k = 1; k < p.operands_count; ++k)\n"
                          "    result = ::{}<tutti_computed>(result, tutti_load(p.operands[k], at));\n"
                          "  tutti_store(p.target, i, result);\n}}\n",
                          most_combined, name) +
              std::string(jit_entry),
          "tutti_entry"};
}

}  // namespace tutti
