// SPDX-License-Identifier: Apache-2.0
#include "perf/report/columns.hpp"

#include "perf/operations/reductions.hpp"
#include "perf/options/cases.hpp"
#include "perf/report/baseline.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

/// The largest payload of a run, in bytes.
std::size_t largest_payload(const Options& options) {
  std::size_t largest = 0;
  for (const Operation* const operation : options.operations) {
    for (std::size_t type = 0; type < options.dtypes.size(); ++type) {
      Case what;
      what.bytes = options.sizes.end;
      what.dtype = options.dtypes[type];
      if (operation->is_coalesced() && !options.tensors.empty()) what.tensors = options.tensors[type];
      largest = std::max(largest, what.tensors.empty() ? what.bytes : payload_bytes(*operation, what));
    }
  }
  return largest;
}

std::size_t digits_of(std::size_t number) {
  return fmt::formatted_size("{}", number);
}

std::string or_not_available(const std::optional<double>& value) {
  return value ? format_figure(*value) : "N/A";
}

}  // namespace

std::string format_figure(double value) {
  const int decimals = value < 99.995 ? 2 : value < 999.95 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals);
}

Columns::Columns(const Options& options, bool has_peer)
    : results_(options.results), columns_(identifying(options)) {
  const auto add = [this](Group group, std::string_view title, std::string_view unit, std::size_t width,
                          std::function<std::string(const Row&)> value) {
    columns_.push_back({group, title, unit, width, std::move(value)});
  };
  add_placement(options, Group::out_of_place, &Row::out_of_place);
  add_placement(options, Group::in_place, &Row::in_place);
  add_latencies(options);
  const bool cuts_dimension = std::ranges::any_of(options.operations, &Operation::cuts_dimension);
  if (cuts_dimension && options.dims != std::vector{0}) {
    add(Group::whose, "dim", "", 3, [](const Row& row) { return fmt::format("{}", row.dim); });
  }
  if (has_peer) {
    add(Group::whose, "by", "", 5, [](const Row& row) { return row.peer.empty() ? "tutti" : row.peer; });
    if (options.peer == PeerChoice::nccl) {
      add(Group::whose, "-R", "", 2,
          [](const Row& row) { return row.peer_mode.empty() ? "-" : row.peer_mode; });
    }
    add(Group::whose, "peer", "/tutti", 7, [](const Row& row) -> std::string {
      if (!row.peer.empty() && row.wrong() != 0) return "wrong";
      const bool is_fastest = row.leading() && row.leading()->is_fastest_peer;
      return is_fastest ? fmt::format("{:.2f}x", *row.leading()->over_tutti) : "-";
    });
  }
  if (options.shows_timestamps) {
    add(Group::when, "timestamp", "(UTC)", 19,
        [](const Row& row) { return utc_text(row.finished, "%Y-%m-%d %H:%M:%S"); });
  }
}

void Columns::add_placement(const Options& options, Group group, std::optional<Measurement> Row::*part) {
  using Text = std::function<std::string(const Row&, const Measurement&)>;
  const auto add = [&](std::string_view title, std::string_view unit, std::size_t width, Text text) {
    columns_.push_back({group, title, unit, width, [part, text = std::move(text)](const Row& row) {
                          return row.*part ? text(row, *(row.*part)) : "N/A";
                        }});
  };
  add("time", "(us)", 7,
      [](const Row&, const Measurement& measured) { return format_figure(measured.microseconds()); });
  add("algbw", "(GB/s)", 6, [](const Row& row, const Measurement& measured) {
    return or_not_available(algorithm_bandwidth(row, measured));
  });
  add("busbw", "(GB/s)", 6, [](const Row& row, const Measurement& measured) {
    return or_not_available(bus_bandwidth(row, measured));
  });
  add("#wrong", "", 6, [](const Row&, const Measurement& measured) {
    return measured.wrong ? fmt::format("{}", *measured.wrong) : "N/A";
  });
  if (options.baseline_file.empty()) return;
  add("change", "(%)", 6, [](const Row&, const Measurement& measured) {
    return measured.baseline_microseconds ? format_change(*measured.over_baseline()) : "new";
  });
}

void Columns::add_latencies(const Options& options) {
  const auto add = [this](std::string_view title, std::string_view unit, std::size_t width,
                          double Summary::*figure, double factor = 1.0) {
    columns_.push_back({Group::latency, title, unit, width, [figure, factor](const Row& row) {
                          return format_figure(
                              row.leading() ? factor * (row.leading()->timing.latency.*figure) : 0.0);
                        }});
  };
  add("p50", "(us)", 7, &Summary::median);
  add("p99", "(us)", 7, &Summary::p99);
  if (!options.shows_spread) return;
  add("min", "(us)", 7, &Summary::minimum);
  add("max", "(us)", 7, &Summary::maximum);
  add("cv", "(%)", 6, &Summary::variation, 100.0);
}

std::vector<Columns::Column> Columns::identifying(const Options& options) {
  const std::size_t bytes = largest_payload(options);
  std::size_t type = 4;
  std::size_t narrowest = bytes;
  for (const DType dtype : options.dtypes) {
    type = std::max(type, name_of(dtype).size());
    narrowest = std::min(narrowest, size_of(dtype));
  }
  std::size_t redop = 5;
  for (const ReduceKind kind : options.reductions) redop = std::max(redop, name_of_reduction(kind).size());
  const std::size_t elements = bytes / std::max<std::size_t>(narrowest, 1);
  return {{Group::what, "size", "(B)", std::max<std::size_t>(digits_of(bytes), 7),
           [](const Row& row) { return fmt::format("{}", row.bytes); }},
          {Group::what, "count", "(elems)", std::max<std::size_t>(digits_of(elements), 7),
           [](const Row& row) { return fmt::format("{}", row.count); }},
          {Group::what, "type", "", type, [](const Row& row) { return std::string(name_of(row.dtype)); }},
          {Group::what, "redop", "", redop,
           [](const Row& row) { return std::string(row.redop ? name_of_reduction(*row.redop) : "none"); }},
          {Group::what, "root", "", 4, [](const Row& row) { return fmt::format("{}", row.root); }}};
}

template <class Text>
std::string Columns::joined(char lead, Text&& text) const {
  std::string line(1, lead);
  Group group = Group::what;
  bool is_first = true;
  for (const Column& column : columns_) {
    if (!is_first) line += column.group == group ? " " : "  ";
    is_first = false;
    group = column.group;
    line += fmt::format("{:>{}}", text(column), column.width);
  }
  return line;
}

std::string Columns::titles() const {
  std::string groups = "#";
  for (auto column = columns_.begin(); column != columns_.end();) {
    const Group group = column->group;
    std::size_t width = 0;
    for (; column != columns_.end() && column->group == group; ++column) width += 1 + column->width;
    const std::string_view name = group == Group::in_place        ? "in place"
                                  : group != Group::out_of_place  ? ""
                                  : results_ == ResultForm::given ? "out of place"
                                                                  : "returned";
    groups += fmt::format("{}{:^{}}", groups.size() == 1 ? "" : "  ", name, width - 1);
  }
  groups.erase(groups.find_last_not_of(' ') + 1);
  std::string units = joined('#', [](const Column& column) { return column.unit; });
  units.erase(units.find_last_not_of(' ') + 1);
  return fmt::format("{}\n{}\n{}\n", groups, joined('#', [](const Column& column) { return column.title; }),
                     units);
}

std::string Columns::line(const Row& row) const {
  std::string line = joined(' ', [&](const Column& column) { return column.value(row); });
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace tutti::perf
