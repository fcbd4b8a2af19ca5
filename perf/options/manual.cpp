// SPDX-License-Identifier: Apache-2.0
#include "perf/options/manual.hpp"

#include "perf/operations/operation.hpp"
#include "perf/processes/usage_error.hpp"
#include "tutti/dtype.hpp"
#include "tutti/version.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti::perf {
namespace {

/// Values that options take, where they are names.
struct Choices {
  const char* option;
  const char* values;
};
constexpr Choices choices[] = {
    {"--root", "all"},
    {"--dim", "0 1 all"},
    {"--transport", "auto p2p nccl staged"},
    {"--determinism", "fastest bitwise"},
    {"--op", "sum avg premul_sum min max prod band bor bxor absmax all"},
    {"--results", "out new"},
    {"--backend", "auto cuda host"},
    {"--topology", "island two-islands pcie pcie-p2p"},
    {"--peer", "none nccl mpi"},
    {"--average", "max min average rank0"},
    {"--per_iter_timing", "0 1"},
    {"--report_timestamps", "0 1"},
    {"--check", "0 1"},
    {"--tensors", "resnet50 gpt2"},
    {"--completion", "bash zsh"},
};
/// Options whose value may be a file.
constexpr std::string_view file_options[] = {"--topology", "--tensors", "--output_file", "--csv",
                                             "--baseline"};

struct Example {
  const char* command;
  const char* what;
};
constexpr Example examples[] = {
    {"tutti-perf all -b 1K -e 64M -f 4", "Every collective of one process, every byte checked."},
    {"tutti-perf broadcast -b 64M -e 1G -f 4 --peer nccl",
     "On GPUs: beside NCCL in the same run, with plain buffers, registered ones and symmetric windows."},
    {"tutti-perf broadcast_coalesced --tensors resnet50", "The parameters of a network as one operation."},
    {"tutti-perf all --backend host --devices 8 --topology two-islands",
     "Virtual devices, of another topology."},
    {"mpirun -np 8 tutti-perf all_reduce_add -J ranks.json",
     "A process per device; rank 0 prints and writes."},
    {"torchrun --no-python --nproc-per-node 8 tutti-perf all_reduce_add",
     "The same without MPI; srun does it, too."},
    {"tutti-perf explain broadcast 64M", "Which transport and algorithm, and why."},
};

std::vector<const CLI::Option*> options_of(const CLI::App& app, const std::string& group) {
  return app.get_options([&](const CLI::Option* option) { return option->get_group() == group; });
}

/// Those that help shows, in its order.
std::vector<std::string> groups_of(const CLI::App& app) {
  std::vector<std::string> groups;
  for (const std::string& group : app.get_groups()) {
    if (!group.empty()) groups.push_back(group);
  }
  return groups;
}

std::vector<std::string> operation_words() {
  std::vector<std::string> words;
  for (const Operation* operation : collective_operations(Mode::single_process))
    words.emplace_back(operation->name());
  for (const char* word : {"sendrecv", "all", "topo", "explain", "tensors"}) words.emplace_back(word);
  return words;
}

/// "-b" and "--minbytes": as typed.
std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& letter : option.get_snames()) names.push_back("-" + letter);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

bool takes_value(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

/// Text of a manual page: what roff would read as its own is escaped.
std::string roff(std::string_view text) {
  std::string result;
  bool begins_line = true;
  for (const char letter : text) {
    if (begins_line && (letter == '.' || letter == '\'')) result += "\\&";
    if (letter == '\\') {
      result += "\\e";
    } else if (letter == '-') {
      result += "\\-";
    } else if (letter == '`') {
      result += "\\(cq";
    } else {
      result += letter;
    }
    begins_line = letter == '\n';
  }
  return result;
}

/// Paragraphs of help: indented lines, which are columns, stay lines.
std::string paragraphs(const std::string& text) {
  std::string page;
  bool is_in_columns = false;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const bool is_column = line.starts_with("  ");
    if (is_column != is_in_columns) page += is_column ? ".nf\n" : ".fi\n";
    is_in_columns = is_column;
    page += line.empty() ? ".PP\n" : roff(line) + "\n";
  }
  return page + (is_in_columns ? ".fi\n" : "");
}

std::string values_of(const CLI::Option& option) {
  if (option.check_name("--datatype")) {
    std::string names = "all";
    for (const DType dtype : all_dtypes) names += fmt::format(" {}", name_of(dtype));
    return names;
  }
  for (const Choices& choice : choices) {
    if (option.check_name(choice.option)) return choice.values;
  }
  return {};
}

bool takes_file(const CLI::Option& option) {
  return std::ranges::any_of(file_options,
                             [&](std::string_view name) { return option.check_name(std::string(name)); });
}

std::vector<const CLI::Option*> shown_options(const CLI::App& app) {
  std::vector<const CLI::Option*> shown;
  for (const std::string& group : groups_of(app)) {
    for (const CLI::Option* option : options_of(app, group)) {
      if (!names_of(*option).empty()) shown.push_back(option);
    }
  }
  return shown;
}

std::string bash_completion(const CLI::App& app) {
  std::vector<std::string> options;
  std::string cases;
  for (const CLI::Option* option : shown_options(app)) {
    const std::vector<std::string> names = names_of(*option);
    options.insert(options.end(), names.begin(), names.end());
    if (!takes_value(*option)) continue;
    const char* const files = takes_file(*option) ? "; compopt -o default" : "";
    cases += fmt::format("    {}) mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$word\"){}; return ;;\n",
                         fmt::join(names, " | "), values_of(*option), files);
  }
  return fmt::format(
      R"(# Completes tutti-perf in bash; printed by `tutti-perf --completion bash`.
_tutti_perf() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}}
  COMPREPLY=()
  case $before in
{}  esac
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W '{}' -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -W '{}' -- "$word")
  fi
}}
complete -F _tutti_perf tutti-perf
)",
      cases, fmt::join(options, " "), fmt::join(operation_words(), " "));
}

/// For a specification of _arguments, in single quotes.
std::string zsh_text(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    if (letter == '[' || letter == ']' || letter == ':') result += '\\';
    result += letter == '\'' ? '"' : letter;
  }
  return result;
}

std::string zsh_completion(const CLI::App& app) {
  std::string specifications;
  for (const CLI::Option* option : shown_options(app)) {
    const std::vector<std::string> names = names_of(*option);
    std::string value;
    if (takes_value(*option)) {
      const std::string values = values_of(*option);
      value = fmt::format(":{}:", zsh_text(option->get_type_name()));
      if (takes_file(*option) && !values.empty()) {
        value += fmt::format("_alternative \"names\\:name\\:({})\" \"files\\:file\\:_files\"", values);
      } else if (takes_file(*option)) {
        value += "_files";
      } else if (!values.empty()) {
        value += fmt::format("({})", values);
      }
    }
    for (const std::string& name : names) {
      specifications += fmt::format("    '({}){}[{}]{}' \\\n", fmt::join(names, " "), name,
                                    zsh_text(option->get_description()), value);
    }
  }
  return fmt::format(
      R"(#compdef tutti-perf
# Completes tutti-perf in zsh; printed by `tutti-perf --completion zsh`.
_tutti_perf() {{
  _arguments -s \
{}    '*:operation:({})'
}}
_tutti_perf "$@"
)",
      specifications, fmt::join(operation_words(), " "));
}

}  // namespace

std::string manual_page(const CLI::App& app) {
  std::string page = fmt::format(
      ".TH TUTTI\\-PERF 1 \"\" \"tutti {}\" \"tutti\"\n.SH NAME\ntutti\\-perf \\- checks and measures "
      "tutti's collectives\n.SH SYNOPSIS\n.B tutti\\-perf\n.I OP... [OPTION...]\n.SH DESCRIPTION\n{}",
      version(), paragraphs(app.get_description()));
  page += ".SH OPTIONS\n";
  for (const std::string& group : groups_of(app)) {
    std::string entries;
    for (const CLI::Option* option : options_of(app, group)) {
      if (names_of(*option).empty()) continue;
      const std::string type =
          takes_value(*option) ? fmt::format(" \\fI{}\\fR", option->get_type_name()) : "";
      entries +=
          fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(fmt::format("{}", fmt::join(names_of(*option), ", "))),
                      type, roff(option->get_description()));
    }
    if (!entries.empty()) page += fmt::format(".SS {}\n{}", group, entries);
  }
  page += ".SH MEASURES AND EXIT STATUS\n" + paragraphs(app.get_footer()) + ".SH EXAMPLES\n";
  for (const Example& example : examples)
    page += fmt::format(".TP\n.B {}\n{}\n", roff(example.command), roff(example.what));
  return page;
}

std::string completion_script(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") return bash_completion(app);
  if (shell == "zsh") return zsh_completion(app);
  throw UsageError(fmt::format("--completion: '{}' is not valid: expected bash or zsh", shell));
}

}  // namespace tutti::perf
