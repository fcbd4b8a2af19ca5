// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Parses and formats sizes and numbers.
namespace tutti::perf {

/// Throws UsageError: "-d: 'x' is not valid: expected y".
[[noreturn]] void refuse_value(std::string_view option, std::string_view given, std::string_view expected);
/// Parses a whole number with an optional binary suffix K, M or G (either case): "64M" is 67108864. Throws
/// UsageError for anything else; `what` names the value in its message.
[[nodiscard]] std::size_t parse_size(std::string_view text, std::string_view what);
/// Parses a whole number in [lowest, highest]. Throws UsageError.
[[nodiscard]] int parse_number(std::string_view text, std::string_view what, int lowest, int highest);
/// Returns `text` in lower case.
[[nodiscard]] std::string in_small_letters(std::string_view text);
/// Returns the shortest exact spelling: 65536 is "64K", 1500 is "1500".
[[nodiscard]] std::string format_size(std::size_t bytes);

/// The payloads that a run measures: `begin`, then larger ones up to and including `end`.
struct SizeSweep {
  std::size_t begin = 8;
  std::size_t end = std::size_t{64} << 20U;
  std::size_t increment = 0;  ///< bytes added from one to the next; 0: multiply by `factor`
  std::size_t factor = 2;
};

/// Returns the payloads of a sweep, ascending. Throws UsageError if `end` is below `begin`, or the factor is
/// below 2 without an increment.
[[nodiscard]] std::vector<std::size_t> sizes_of(const SizeSweep& sweep);

}  // namespace tutti::perf
