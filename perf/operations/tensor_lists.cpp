// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/tensor_lists.hpp"

#include "perf/operations/found_in.hpp"
#include "perf/operations/sizes.hpp"
#include "perf/processes/failure.hpp"
#include "perf/report/files.hpp"
#include "tutti/error.hpp"
#include "tutti/layout.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <ranges>
#include <regex>
#include <sstream>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

/// Names that the library itself does not take.
constexpr std::pair<std::string_view, DType> type_aliases[] = {
    {"fp16", DType::float16},         {"fp32", DType::float32},         {"fp64", DType::float64},
    {"bfloat", DType::bfloat16},      {"single", DType::float32},       {"char", DType::int8},
    {"byte", DType::uint8},           {"short", DType::int16},          {"long", DType::int64},
    {"ushort", DType::uint16},        {"uint", DType::uint32},          {"ulong", DType::uint64},
    {"boolean", DType::boolean},      {"fp8e4m3", DType::float8_e4m3},  {"fp8e5m2", DType::float8_e5m2},
    {"fp8_e4m3", DType::float8_e4m3}, {"fp8_e5m2", DType::float8_e5m2},
};

std::optional<DType> known(const std::string& text) {
  if (const std::optional<DType> alias = found_in(type_aliases, text)) return alias;
  try {
    return parse_dtype(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

constexpr std::size_t most_tensors = 1'000'000;

/// The words of one line, without its comment.
std::vector<std::string> words_of(std::string_view line) {
  std::istringstream stream{std::string(line.substr(0, line.find('#')))};
  return {std::istream_iterator<std::string>(stream), {}};
}

std::vector<std::int64_t> parse_shape(const std::string& text, std::string_view where) {
  std::vector<std::int64_t> sizes;
  if (text == "scalar") return sizes;
  for (const auto part : std::views::split(text, 'x')) {
    const char* const begin = text.data() + (part.begin() - text.begin());
    const char* const end = begin + std::ranges::distance(part);
    std::int64_t& size = sizes.emplace_back();
    const auto [rest, error] = std::from_chars(begin, end, size);
    if (error != std::errc() || size < 0 || rest != end) {
      throw UsageError(fmt::format(
          "{}: '{}' is not a shape: expected sizes joined by x, such as 64x3x7x7, or scalar", where, text));
    }
  }
  if (sizes.size() > static_cast<std::size_t>(max_dimensions)) {
    throw UsageError(fmt::format("{}: '{}' has {} dimensions, expected at most {}", where, text, sizes.size(),
                                 max_dimensions));
  }
  return sizes;
}

TensorSpec parse_line(const std::vector<std::string>& words, std::string_view where) {
  if (words.size() > 2) {
    throw UsageError(fmt::format("{}: unexpected '{}' after shape and element type", where, words[2]));
  }
  TensorSpec spec{parse_shape(words[0], where), std::nullopt};
  try {
    if (words.size() == 2) spec.dtype = parse_element_type(words[1], where);
    static_cast<void>(
        Layout(spec.dtype.value_or(DType::float32), spec.sizes));  // refuses what no tensor can have
  } catch (const Error& error) {
    throw UsageError(fmt::format("{}: {}", where, error.what()));
  }
  return spec;
}

/// COUNTxSIZE, or nothing if `text` does not look like it.
std::optional<std::vector<TensorSpec>> parse_repeated(const std::string& text, DType dtype) {
  static const std::regex form("([0-9]+)x([0-9].*)");
  std::smatch found;
  if (!std::regex_match(text, found, form)) return std::nullopt;
  const std::size_t count = parse_size(found[1].str(), "--tensors");
  const std::size_t bytes = parse_size(found[2].str(), "--tensors");
  if (count == 0 || count > most_tensors) {
    throw UsageError(
        fmt::format("--tensors: '{}' asks for {} tensors, expected 1 to {}", text, count, most_tensors));
  }
  if (bytes % size_of(dtype) != 0) {
    throw UsageError(fmt::format("--tensors: {} bytes are not a whole number of {} elements ({} bytes each)",
                                 bytes, name_of(dtype), size_of(dtype)));
  }
  return std::vector<TensorSpec>(count, {{static_cast<std::int64_t>(bytes / size_of(dtype))}, std::nullopt});
}

/// What does not depend on the element type.
std::vector<TensorSpec> parse_named(const std::string& text) {
  if (text == "resnet50") return resnet50_tensors();
  if (text == "gpt2") return gpt2_tensors();
  const std::string refusal = fmt::format(
      "--tensors: '{}' is neither resnet50, gpt2, COUNTxSIZE such as 1000x1K, nor a file that can be read",
      text);
  return parse_tensor_lines(read_named_file(text, refusal), text);
}

}  // namespace

DType parse_element_type(std::string_view text, std::string_view where) {
  if (const std::optional<DType> dtype = known(in_small_letters(text))) return *dtype;
  std::string expected;
  for (const DType dtype : all_dtypes)
    expected += fmt::format("{}{}", expected.empty() ? "" : ", ", name_of(dtype));
  throw UsageError(fmt::format("{}: '{}' is not an element type: expected {}", where, text, expected));
}

std::vector<TensorSpec> parse_tensor_lines(std::string_view content, std::string_view name) {
  std::vector<TensorSpec> tensors;
  std::istringstream stream{std::string(content)};
  std::string line;
  for (std::size_t number = 1; std::getline(stream, line); ++number) {
    const std::vector<std::string> words = words_of(line);
    if (words.empty()) continue;
    tensors.push_back(parse_line(words, fmt::format("{}:{}", name, number)));
    if (tensors.size() > most_tensors)
      throw UsageError(fmt::format("{}: more than {} tensors", name, most_tensors));
  }
  if (tensors.empty()) throw UsageError(fmt::format("{}: no tensor in it", name));
  return tensors;
}

std::vector<std::vector<TensorSpec>> parse_tensors(const std::string& text, std::span<const DType> dtypes) {
  std::vector<std::vector<TensorSpec>> lists;
  for (const DType dtype : dtypes) {
    if (auto repeated = parse_repeated(text, dtype)) lists.push_back(*std::move(repeated));
  }
  if (lists.empty()) lists.assign(dtypes.size(), parse_named(text));
  return lists;
}

std::string format_tensor_lines(const std::vector<TensorSpec>& tensors) {
  std::string text;
  for (const TensorSpec& tensor : tensors) {
    text += tensor.sizes.empty() ? "scalar" : fmt::format("{}", fmt::join(tensor.sizes, "x"));
    if (tensor.dtype) text += fmt::format(" {}", name_of(*tensor.dtype));
    text += '\n';
  }
  return text;
}

std::vector<TensorSpec> split_evenly(std::size_t bytes, DType dtype, int count) {
  const auto elements = static_cast<std::int64_t>(bytes / size_of(dtype));
  const std::int64_t tensors = std::clamp<std::int64_t>(elements, 1, count);
  std::vector<TensorSpec> specs;
  for (std::int64_t index = 0; index < tensors; ++index) {
    specs.push_back({{elements / tensors + (index < elements % tensors ? 1 : 0)}, std::nullopt});
  }
  return specs;
}

}  // namespace tutti::perf
