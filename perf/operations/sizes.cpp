// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/sizes.hpp"

#include "perf/processes/failure.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <system_error>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

struct Suffix {
  char letter;
  unsigned shift;
};
constexpr Suffix suffixes[] = {{'G', 30}, {'M', 20}, {'K', 10}};

unsigned shift_of(char letter) {
  for (const Suffix& suffix : suffixes) {
    if (letter == suffix.letter || letter == suffix.letter + ('a' - 'A')) return suffix.shift;
  }
  return 0;
}

}  // namespace

void refuse_value(std::string_view option, std::string_view given, std::string_view expected) {
  throw UsageError(fmt::format("{}: '{}' is not valid: expected {}", option, given, expected));
}

std::size_t parse_size(std::string_view text, std::string_view what) {
  std::size_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const unsigned shift = rest + 1 == end ? shift_of(*rest) : 0;
  const bool well_formed = error != std::errc::invalid_argument && (rest == end || shift != 0);
  if (!well_formed) {
    throw UsageError(fmt::format(
        "{}: '{}' is not a size: expected a whole number with an optional suffix K, M or G, such as 64M",
        what, text));
  }
  constexpr std::size_t largest = std::numeric_limits<std::size_t>::max() / 2;
  if (error == std::errc::result_out_of_range || value > largest >> shift) {
    throw UsageError(fmt::format("{}: '{}' is too large", what, text));
  }
  return value << shift;
}

int parse_number(std::string_view text, std::string_view what, int lowest, int highest) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < lowest || value > highest) {
    const std::string range = highest == std::numeric_limits<int>::max()
                                  ? fmt::format("{} or more", lowest)
                                  : fmt::format("{} to {}", lowest, highest);
    refuse_value(what, text, fmt::format("a whole number, {}", range));
  }
  return value;
}

std::string in_small_letters(std::string_view text) {
  std::string small(text);
  std::ranges::transform(small, small.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + ('a' - 'A')) : letter;
  });
  return small;
}

std::string format_size(std::size_t bytes) {
  for (const Suffix& suffix : suffixes) {
    const std::size_t unit = std::size_t{1} << suffix.shift;
    if (bytes != 0 && bytes % unit == 0) return fmt::format("{}{}", bytes >> suffix.shift, suffix.letter);
  }
  return fmt::format("{}", bytes);
}

std::vector<std::size_t> sizes_of(const SizeSweep& sweep) {
  if (sweep.begin > sweep.end) {
    throw UsageError(fmt::format("-e: the largest size, {}, is below the smallest, {} (-b)",
                                 format_size(sweep.end), format_size(sweep.begin)));
  }
  if (sweep.increment == 0 && sweep.factor < 2) throw UsageError("-f: expected a factor of 2 or more");
  if (sweep.increment == 0 && sweep.begin == 0 && sweep.end != 0) {
    throw UsageError("-b: a size of 0 cannot be multiplied (-f): give an increment (-i) or a larger size");
  }
  constexpr std::size_t most = 100'000;
  if (sweep.increment != 0 && (sweep.end - sweep.begin) / sweep.increment >= most) {
    throw UsageError(fmt::format("-i: steps of {} from {} to {} are more than {} sizes",
                                 format_size(sweep.increment), format_size(sweep.begin),
                                 format_size(sweep.end), most));
  }
  std::vector<std::size_t> sizes{sweep.begin};
  while (true) {
    const std::size_t last = sizes.back();
    const bool overflows = sweep.increment != 0
                               ? last > sweep.end - sweep.increment || sweep.increment > sweep.end
                               : last > sweep.end / sweep.factor || last == 0;
    if (overflows) return sizes;
    sizes.push_back(sweep.increment != 0 ? last + sweep.increment : last * sweep.factor);
  }
}

}  // namespace tutti::perf
