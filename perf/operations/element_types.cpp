// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/element_types.hpp"

#include "perf/operations/sizes.hpp"
#include "perf/processes/usage_error.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

struct TypeAlias {
  std::string_view text;
  DType dtype;
};
/// Names that the library itself does not take.
constexpr TypeAlias type_aliases[] = {
    {"fp16", DType::float16},         {"fp32", DType::float32},         {"fp64", DType::float64},
    {"bfloat", DType::bfloat16},      {"single", DType::float32},       {"char", DType::int8},
    {"byte", DType::uint8},           {"short", DType::int16},          {"long", DType::int64},
    {"ushort", DType::uint16},        {"uint", DType::uint32},          {"ulong", DType::uint64},
    {"boolean", DType::boolean},      {"fp8e4m3", DType::float8_e4m3},  {"fp8e5m2", DType::float8_e5m2},
    {"fp8_e4m3", DType::float8_e4m3}, {"fp8_e5m2", DType::float8_e5m2},
};

std::optional<DType> known(const std::string& text) {
  const auto* const alias = std::ranges::find(type_aliases, text, &TypeAlias::text);
  if (alias != std::ranges::end(type_aliases)) return alias->dtype;
  try {
    return parse_dtype(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

DType parse_element_type(std::string_view text, std::string_view where) {
  if (const std::optional<DType> dtype = known(in_small_letters(text))) return *dtype;
  std::string expected;
  for (const DType dtype : all_dtypes)
    expected += fmt::format("{}{}", expected.empty() ? "" : ", ", name_of(dtype));
  throw UsageError(fmt::format("{}: '{}' is not an element type: expected {}", where, text, expected));
}

}  // namespace tutti::perf
