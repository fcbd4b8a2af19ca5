// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::perf {

/// Breaks `text` between words into lines of at most 80 letters; a longer word has a longer line.
/// Neighbouring lines are one paragraph, except those that begin with two spaces: each of these stays a line
/// of its own, and if it is too long, goes on below its last column.
[[nodiscard]] std::string wrapped(std::string_view text);

/// The command line as typed: only words, no meaning yet.
struct TypedOptions {
  std::vector<std::string> words;  ///< OP; topo; explain OP SIZE; tensors LIST
  /// The options that were typed with their values, each by its letter, or its name if it has none.
  std::map<std::string, std::string> options;

  [[nodiscard]] bool has(const std::string& name) const { return options.contains(name); }
  [[nodiscard]] std::string text(const std::string& name, const char* otherwise = "") const;
  /// Nothing if it was not typed. Throws UsageError for what is no number in that range.
  [[nodiscard]] std::optional<int> number(const std::string& name, int lowest, int highest) const;
};

/// Sorts the command line into its options; nothing if help or the version was asked for, which then is in
/// `help`. Of an option that is given several times the last counts. Throws UsageError for
/// an option that does not exist or lacks its value: the message names what does what nccl-tests has the
/// option for.
[[nodiscard]] std::optional<TypedOptions> split_command_line(int argc, const char* const* argv,
                                                             std::string& help);

}  // namespace tutti::perf
