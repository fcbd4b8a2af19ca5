// SPDX-License-Identifier: Apache-2.0
#include "perf/options/options_command.hpp"

#include "perf/processes/usage_error.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

[[noreturn]] void refuse_operation(const std::string& name, Mode mode) {
  std::string names;
  for (const Operation* operation : collective_operations(mode))
    names += fmt::format("{}, ", operation->name());
  if (mode == Mode::single_process) names += "sendrecv, ";
  throw UsageError(
      fmt::format("'{}' is not an operation: expected {}all, topo, explain or tensors", name, names));
}

std::vector<const Operation*> parse_operations(const std::string& name, Mode mode) {
  if (name == "all") {
    const auto collectives = collective_operations(mode);
    std::vector<const Operation*> all(collectives.begin(), collectives.end());
    if (mode == Mode::single_process) all.push_back(&copy_operation());
    return all;
  }
  const Operation* const operation = find_operation(name, mode);
  if (operation == nullptr) refuse_operation(name, mode);
  return {operation};
}

/// One after another, each once.
std::vector<const Operation*> parse_operations(const std::vector<std::string>& names, Mode mode) {
  std::vector<const Operation*> all = parse_operations(names.front(), mode);
  for (std::size_t i = 1; i < names.size(); ++i) {
    if (names[i] != "all" && find_operation(names[i], Mode::ranks) == nullptr &&
        find_operation(names[i], Mode::single_process) == nullptr) {
      throw UsageError(
          fmt::format("unexpected '{}' after '{}' (sizes are given with -b and -e)", names[i], names[i - 1]));
    }
    for (const Operation* const operation : parse_operations(names[i], mode)) {
      if (std::ranges::find(all, operation) == all.end()) all.push_back(operation);
    }
  }
  return all;
}

/// What `topo` and `explain` have a use of, which measure nothing: what chooses devices and transports. Of
/// files (-J, --baseline) parse_report says more.
constexpr std::string_view used_by_both[] = {"-g",         "--backend",   "--devices",    "--topology",
                                             "--groups",   "--transport", "-J",           "--multiprocessors",
                                             "--baseline", "--tolerance", "--determinism"};
constexpr std::string_view used_by_explain[] = {"-d", "-o", "-r", "--dim", "--tensors"};

void require_used_options(const TypedOptions& typed, Command command) {
  const auto is_in = [](const auto& names, const std::string& name) {
    return std::ranges::find(names, name) != std::end(names);
  };
  for (const auto& [name, value] : typed.options) {
    if (is_in(used_by_both, name) || (command == Command::explain && is_in(used_by_explain, name))) continue;
    throw UsageError(fmt::format("{}: expected no {}: nothing is measured",
                                 command == Command::explain ? "explain" : "topo", name));
  }
}

void parse_explain(const TypedOptions& typed, Options& options) {
  const std::vector<std::string>& words = typed.words;
  if (words.size() < 2)
    throw UsageError("explain: which operation? For instance: tutti-perf explain broadcast 64M");
  options.operations = parse_operations(words[1], options.mode);
  if (options.operations.size() != 1 || !options.operations.front()->collective()) {
    throw UsageError(fmt::format("explain: '{}' is not one collective", words[1]));
  }
  if (!options.operations.front()->moves_tensors()) {
    throw UsageError(
        fmt::format("explain: '{}' moves nothing that a transport would carry, expected an "
                    "operation with a size, as broadcast",
                    words[1]));
  }
  if (options.operations.front()->has_unequal_parts()) {
    throw UsageError(fmt::format("explain: '{}' has parts of unequal lengths, expected equal ones, as {}",
                                 words[1], name_of(*options.operations.front()->collective())));
  }
  if (words.size() < 3 && !typed.has("--tensors")) {
    throw UsageError(fmt::format("explain: which size? For instance: tutti-perf explain {} 64M", words[1]));
  }
  if (words.size() >= 3 && typed.has("--tensors")) {
    throw UsageError(
        fmt::format("explain: '{}' and --tensors exclude each other: both say how much there is", words[2]));
  }
  if (words.size() >= 3) options.explain_bytes = parse_size(words[2], "explain");
}

}  // namespace

void parse_command(const TypedOptions& typed, Options& options) {
  const std::vector<std::string>& words = typed.words;
  if (words.empty())
    throw UsageError("what to measure is missing: name an operation, topo, explain or tensors (see -h)");
  const auto take_at_most = [&words](std::size_t most) {
    if (words.size() > most)
      throw UsageError(fmt::format("unexpected '{}' after '{}'", words[most], words[most - 1]));
  };
  if (words[0] == "topo") {
    take_at_most(1);
    options.command = Command::topo;
    require_used_options(typed, options.command);
  } else if (words[0] == "explain") {
    take_at_most(3);
    options.command = Command::explain;
    require_used_options(typed, options.command);
    parse_explain(typed, options);
  } else if (words[0] == "tensors") {
    if (words.size() < 2) throw UsageError("tensors: which list? For instance: tutti-perf tensors resnet50");
    take_at_most(2);
    options.command = Command::tensors;
    options.tensors_name = words[1];
  } else {
    options.command = Command::measure;
    options.operations = parse_operations(words, options.mode);
  }
}

void require_one_plan(const Options& options) {
  if (options.dtypes.size() > 1) throw UsageError("explain: -d is all, expected one type");
  if (options.reductions.size() > 1) throw UsageError("explain: -o is all, expected one reduction");
  if (!options.root) throw UsageError("explain: -r is all, expected one root");
  if (options.dims.size() > 1) throw UsageError("explain: --dim is all, expected 0 or 1");
}

}  // namespace tutti::perf
