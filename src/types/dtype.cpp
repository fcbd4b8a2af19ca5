// SPDX-License-Identifier: Apache-2.0
#include "tutti/dtype.hpp"

#include "tutti/error.hpp"

#include <algorithm>
#include <string>

namespace tutti {
namespace {

struct Spelling {
  std::string_view text;
  DType dtype;
};

// The first spelling of a type is its name.
constexpr std::array spellings{
    Spelling{"float16", DType::float16},
    Spelling{"bfloat16", DType::bfloat16},
    Spelling{"float32", DType::float32},
    Spelling{"float64", DType::float64},
    Spelling{"int8", DType::int8},
    Spelling{"uint8", DType::uint8},
    Spelling{"int16", DType::int16},
    Spelling{"int32", DType::int32},
    Spelling{"int64", DType::int64},
    Spelling{"bool", DType::boolean},
    Spelling{"complex64", DType::complex64},
    Spelling{"complex128", DType::complex128},
    Spelling{"float8_e4m3", DType::float8_e4m3},
    Spelling{"float8_e5m2", DType::float8_e5m2},
    Spelling{"uint16", DType::uint16},
    Spelling{"uint32", DType::uint32},
    Spelling{"uint64", DType::uint64},
    Spelling{"f16", DType::float16},
    Spelling{"half", DType::float16},
    Spelling{"bf16", DType::bfloat16},
    Spelling{"f32", DType::float32},
    Spelling{"float", DType::float32},
    Spelling{"f64", DType::float64},
    Spelling{"double", DType::float64},
    Spelling{"i8", DType::int8},
    Spelling{"u8", DType::uint8},
    Spelling{"i16", DType::int16},
    Spelling{"u16", DType::uint16},
    Spelling{"i32", DType::int32},
    Spelling{"u32", DType::uint32},
    Spelling{"int", DType::int32},
    Spelling{"i64", DType::int64},
    Spelling{"u64", DType::uint64},
    Spelling{"c64", DType::complex64},
    Spelling{"c128", DType::complex128},
    Spelling{"e4m3", DType::float8_e4m3},
    Spelling{"f8e4m3", DType::float8_e4m3},
    Spelling{"e5m2", DType::float8_e5m2},
    Spelling{"f8e5m2", DType::float8_e5m2},
};

}  // namespace

std::string_view name_of(DType dtype) noexcept {
  const auto* const found = std::ranges::find(spellings, dtype, &Spelling::dtype);
  return found == spellings.end() ? "unknown" : found->text;
}

DType parse_dtype(std::string_view text) {
  const auto* const found = std::ranges::find(spellings, text, &Spelling::text);
  if (found != spellings.end()) return found->dtype;
  std::string names;
  for (const DType dtype : all_dtypes) names += (names.empty() ? "" : ", ") + std::string(name_of(dtype));
  throw Error(ErrorCode::invalid_argument,
              "parse_dtype: text is \"" + std::string(text) + "\", expected one of " + names);
}

}  // namespace tutti
