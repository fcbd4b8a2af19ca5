// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tutti::perf {

/// Breaks `text` between words into lines of at most 80 characters. The first begins at column `indent` of
/// what it is put behind, the others with as many spaces.
[[nodiscard]] std::string wrapped(const std::string& text, std::size_t indent);

/// The command line as typed: words, not yet interpreted.
struct TypedOptions {
  std::vector<std::string> words;  ///< OP; topo; explain OP SIZE; tensors LIST
  /// The options that were typed with their values, each by its letter, or by its name if it has no letter.
  std::map<std::string, std::string> options;

  [[nodiscard]] bool has(const std::string& name) const { return options.contains(name); }
  [[nodiscard]] std::string text(const std::string& name, const char* otherwise = "") const;
  /// Returns the option's number; nothing if it was not typed. Throws UsageError if its value is not a number
  /// in that range.
  [[nodiscard]] std::optional<int> number(const std::string& name, int lowest, int highest) const;
};

/// Splits the command line into its options. Returns nothing if help or the version was asked for; the text
/// is then in `help`. If an option is given several times, the last one counts. Throws UsageError for an
/// option that does not exist or lacks its value; for other options of nccl-tests, the message says what to
/// use instead.
[[nodiscard]] std::optional<TypedOptions> split_command_line(int argc, const char* const* argv,
                                                             std::string& help);

}  // namespace tutti::perf
