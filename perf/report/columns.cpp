// SPDX-License-Identifier: Apache-2.0
#include "perf/report/columns.hpp"

#include "perf/operations/reductions.hpp"
#include "perf/options/cases.hpp"
#include "perf/report/baseline_report.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

/// The turn of columns that are never left out.
constexpr std::size_t stays = 100;

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

Columns::Columns(const Options& options, bool has_peer, std::size_t width)
    : headline_(options.headline), results_(options.results), columns_(identifying(options)) {
  for (const Group placement : {Group::out_of_place, Group::in_place}) {
    columns_.push_back({placement, Figure::time, "time", "(us)", 7});
    columns_.push_back({placement, Figure::algbw, "algbw", "(GB/s)", 6});
    columns_.push_back({placement, Figure::busbw, "busbw", "(GB/s)", 6});
    columns_.push_back({placement, Figure::wrong, "#wrong", "", 6});
    if (!options.baseline_file.empty()) columns_.push_back({placement, Figure::change, "change", "(%)", 6});
  }
  columns_.push_back({Group::latency, Figure::p50, "p50", "(us)", 7});
  columns_.push_back({Group::latency, Figure::p99, "p99", "(us)", 7});
  if (options.shows_spread) {
    columns_.push_back({Group::latency, Figure::least, "min", "(us)", 7});
    columns_.push_back({Group::latency, Figure::most, "max", "(us)", 7});
    columns_.push_back({Group::latency, Figure::variation, "cv", "(%)", 6});
  }
  const bool cuts_dimension = std::ranges::any_of(options.operations, &Operation::cuts_dimension);
  if (cuts_dimension && options.dims != std::vector{0}) {
    const std::string same = options.dims.size() == 1 ? fmt::format("{}", options.dims.front()) : "";
    columns_.push_back({Group::whose, Figure::dim, "dim", "", 3, same});
  }
  if (has_peer) {
    columns_.push_back({Group::whose, Figure::by, "by", "", 5});
    if (options.peer == PeerChoice::nccl) columns_.push_back({Group::whose, Figure::mode, "-R", "", 2});
    columns_.push_back({Group::whose, Figure::peer, "peer", "/tutti", 7});
  }
  if (options.shows_timestamps)
    columns_.push_back({Group::when, Figure::timestamp, "timestamp", "(UTC)", 19});
  full_width_ = this->width();
  leave_out(width, options);
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
  const auto is_any = [&options](auto&& property) {
    return std::ranges::any_of(options.operations, property);
  };
  std::string only_type;
  if (options.dtypes.size() == 1) only_type = name_of(options.dtypes.front());
  std::string only_redop;
  if (options.reductions.size() == 1) only_redop = name_of_reduction(options.reductions.front());
  if (!is_any(&Operation::sums)) only_redop = "none";
  std::string only_root;
  if (options.root) only_root = fmt::format("{}", *options.root);
  if (!is_any(&Operation::has_root)) only_root = "-1";
  const std::size_t elements = bytes / std::max<std::size_t>(narrowest, 1);
  return {{Group::what, Figure::size, "size", "(B)", std::max<std::size_t>(digits_of(bytes), 7)},
          {Group::what, Figure::count, "count", "(elems)", std::max<std::size_t>(digits_of(elements), 7)},
          {Group::what, Figure::type, "type", "", type, only_type},
          {Group::what, Figure::redop, "redop", "", redop, only_redop},
          {Group::what, Figure::root, "root", "", 4, only_root}};
}

std::size_t Columns::turn_of(const Column& column, const Options& options) noexcept {
  switch (column.figure) {
    case Figure::redop:
    case Figure::root:
    case Figure::type:
    case Figure::dim:
      return column.same.empty() ? stays : 1;
    case Figure::count:
      return 2;
    case Figure::algbw:
      return column.group == Group::in_place ? 3 : 4;
    case Figure::p50:
    case Figure::p99:
      return options.shows_spread ? 7 : 5;
    case Figure::busbw:
      return column.group == Group::in_place ? 6 : 8;
    case Figure::least:
      return 9;
    case Figure::most:
      return 10;
    case Figure::variation:
      return 11;
    case Figure::timestamp:
      return 12;
    default:
      return stays;
  }
}

std::size_t Columns::width() const {
  return joined(' ', [](const Column&) { return std::string(); }).size();
}

void Columns::leave_out(std::size_t width, const Options& options) {
  const auto turn = [&](const Column& column) { return turn_of(column, options); };
  while (this->width() > width) {
    const auto next = std::ranges::min_element(columns_, {}, turn);
    if (turn(*next) == stays) return;
    std::string what(next->title);
    if (next->group == Group::in_place) what += " in place";
    if (!next->same.empty()) what += fmt::format(" ({})", next->same);
    left_out_.push_back(std::move(what));
    columns_.erase(next);
  }
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
  std::string groups(width(), ' ');
  groups.front() = '#';
  const auto put = [&](Group group, std::string_view name) {
    std::size_t first = 0;
    std::size_t last = 0;
    std::size_t at = 1;
    const Column* before = nullptr;
    for (const Column& column : columns_) {
      if (before != nullptr) at += before->group == column.group ? 1 : 2;
      if (column.group == group && first == 0) first = at;
      at += column.width;
      if (column.group == group) last = at;
      before = &column;
    }
    groups.replace(first + (last - first - name.size()) / 2, name.size(), name);
  };
  put(Group::out_of_place, results_ == ResultForm::given ? "out of place" : "returned");
  put(Group::in_place, "in place");
  groups.erase(groups.find_last_not_of(' ') + 1);
  std::string units = joined('#', [](const Column& column) { return column.unit; });
  units.erase(units.find_last_not_of(' ') + 1);
  return fmt::format("{}\n{}\n{}\n", groups, joined('#', [](const Column& column) { return column.title; }),
                     units);
}

std::string Columns::line(const Row& row) const {
  std::string line = joined(' ', [&](const Column& column) { return value(column, row); });
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string Columns::value(const Column& column, const Row& row) const {
  const std::optional<Measurement>& measured =
      column.group == Group::out_of_place ? row.out_of_place : row.in_place;
  const Summary latency = row.leading() ? row.leading()->timing.latency : Summary{};
  switch (column.figure) {
    case Figure::size:
      return fmt::format("{}", row.bytes);
    case Figure::count:
      return fmt::format("{}", row.count);
    case Figure::type:
      return std::string(name_of(row.dtype));
    case Figure::redop:
      return std::string(row.redop ? name_of_reduction(*row.redop) : "none");
    case Figure::root:
      return fmt::format("{}", row.root);
    case Figure::time:
      return measured ? format_figure(measured->microseconds(headline_)) : "N/A";
    case Figure::algbw:
      return or_not_available(measured ? algorithm_bandwidth(row, *measured, headline_) : std::nullopt);
    case Figure::busbw:
      return or_not_available(measured ? bus_bandwidth(row, *measured, headline_) : std::nullopt);
    case Figure::wrong:
      return measured && measured->wrong ? fmt::format("{}", *measured->wrong) : "N/A";
    case Figure::change:
      if (!measured) return "N/A";
      return measured->baseline_microseconds ? format_change(*measured->over_baseline(headline_)) : "new";
    case Figure::p50:
      return format_figure(latency.median);
    case Figure::p99:
      return format_figure(latency.p99);
    case Figure::least:
      return format_figure(latency.minimum);
    case Figure::most:
      return format_figure(latency.maximum);
    case Figure::variation:
      return format_figure(100.0 * latency.variation);
    case Figure::timestamp:
      return utc_text(row.finished, "%Y-%m-%d %H:%M:%S");
    case Figure::dim:
      return fmt::format("{}", row.dim);
    case Figure::by:
      return row.peer.empty() ? "tutti" : row.peer;
    case Figure::mode:
      return row.peer_mode.empty() ? "-" : row.peer_mode;
    case Figure::peer:
      if (!row.peer.empty() && row.wrong() != 0) return "wrong";
      return row.leading() && row.leading()->is_fastest_peer
                 ? fmt::format("{:.2f}x", *row.leading()->over_tutti)
                 : "-";
  }
  return "";
}

}  // namespace tutti::perf
