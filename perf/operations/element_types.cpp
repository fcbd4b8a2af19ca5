// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/element_types.hpp"

#include "perf/operations/nearest.hpp"
#include "perf/processes/usage_error.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

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
    {"boolean", DType::boolean},      {"fp8e4m3", DType::float8_e4m3},  {"fp8e5m2", DType::float8_e5m2},
    {"fp8_e4m3", DType::float8_e4m3}, {"fp8_e5m2", DType::float8_e5m2},
};

/// Types that the library does not have, and one that is moved and added in the same way.
constexpr TypeAlias absent[] = {
    {"uint16", DType::int16}, {"uint32", DType::int32}, {"uint64", DType::int64},
    {"u16", DType::int16},    {"u32", DType::int32},    {"u64", DType::int64},
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

std::string meant_by(std::string_view text) {
  std::vector<std::string> names;
  for (const DType dtype : all_dtypes) names.emplace_back(name_of(dtype));
  for (const char* const name : {"float", "double", "half", "int"}) names.emplace_back(name);
  for (const TypeAlias& alias : type_aliases) names.emplace_back(alias.text);
  const std::string name = nearest(text, names);
  const std::optional<DType> dtype = known(name);
  return dtype ? std::string(name_of(*dtype)) : "";
}

}  // namespace

DType parse_element_type(std::string_view text, std::string_view where) {
  const std::string small = in_small_letters(text);
  if (const std::optional<DType> dtype = known(small)) return *dtype;
  const auto* const other = std::ranges::find(absent, small, &TypeAlias::text);
  if (other != std::ranges::end(absent)) {
    throw UsageError(
        fmt::format("{}: there is no element type {}: take {}, whose bits are moved and added in the "
                    "same way",
                    where, small, name_of(other->dtype)));
  }
  std::string expected;
  for (const DType dtype : all_dtypes)
    expected += fmt::format("{}{}", expected.empty() ? "" : ", ", name_of(dtype));
  throw UsageError(
      fmt::format("{}: {}", where, unknown_name(text, "an element type", meant_by(text), expected)));
}

}  // namespace tutti::perf
