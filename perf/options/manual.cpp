// SPDX-License-Identifier: Apache-2.0
#include "perf/options/manual.hpp"

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

}  // namespace tutti::perf
