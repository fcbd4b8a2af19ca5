// SPDX-License-Identifier: Apache-2.0
#include "perf/report/table.hpp"

#include "perf/report/baseline.hpp"
#include "tutti/version.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

/// Every line of `text` as a comment.
std::string commented(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    result += end == 0 ? "#" : "# ";
    result += text.substr(0, end);
    result += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

constexpr std::pair<OverRanks, std::string_view> over_ranks_in_words[] = {
    {OverRanks::rank0, "on rank 0"},
    {OverRanks::average, "on average over ranks"},
    {OverRanks::minimum, "on the fastest rank"},
    {OverRanks::maximum, "on the slowest rank"}};

std::string time_in_words(const Options& options, const Job& job) {
  std::string time = "back to back";
  if (job.mode == Mode::ranks)
    time += fmt::format(" {}", *found_in(over_ranks_in_words, options.timing.over_ranks));
  return time;
}

/// Which devices had their clocks kept down, in a line; empty if none had.
std::string format_throttled(const Job& job) {
  std::vector<std::string> all;
  for (const MemberDevice& member : job.members) {
    if (!member.health.throttled || !member.health.throttled->any()) continue;
    const std::string rank = job.mode == Mode::ranks ? fmt::format("rank {} ", member.rank) : "";
    all.push_back(fmt::format("{}device {} ({})", rank, member.device,
                              fmt::join(names_of(*member.health.throttled), ", ")));
  }
  return all.empty() ? "" : fmt::format("# throttled: {}\n", fmt::join(all, ", "));
}

/// Which rank took most time, how often, and by how much at most, of tutti's rows; empty for a single rank.
std::string format_slowest(const Results& results) {
  std::vector<int> times(static_cast<std::size_t>(results.job.ranks));
  double most = 0.0;
  std::string where;
  for (const Row& row : results.rows) {
    if (!row.peer.empty()) continue;
    for (const auto* const measurement : {&row.out_of_place, &row.in_place}) {
      if (!*measurement) continue;
      const std::optional<SlowestRank> slowest = slowest_of((*measurement)->timing.back_to_back_of_ranks);
      if (!slowest) continue;
      ++times[static_cast<std::size_t>(slowest->rank)];
      if (slowest->over_fastest <= most) continue;
      most = slowest->over_fastest;
      where = row.in_words() + (measurement == &row.in_place ? " in place" : "");
    }
  }
  if (where.empty()) return "";
  const auto rank = std::ranges::max_element(times);
  return fmt::format(
      "# slowest rank: {} in {} of {} measurements; over the fastest one {:.2f}x at most: {}\n",
      rank - times.begin(), *rank, std::accumulate(times.begin(), times.end(), 0), most, where);
}

/// How many of what, for the first line.
std::string format_devices(const Results& results) {
  const std::string_view kind = results.topology.backend == BackendKind::host ? "virtual" : "cuda";
  if (results.job.mode == Mode::single_process) {
    return fmt::format("{} {} device(s)", results.device_count, kind);
  }
  return fmt::format("{} rank(s) with {} {} device(s) each", results.job.ranks, results.job.devices_per_rank,
                     kind);
}

/// What starting took.
std::string format_start(const Job& job) {
  if (!job.start_up) return "";
  return fmt::format(
      "start-up: devices ready {:.1f} ms after ranks have met, communicator {:.1f} ms, first collective "
      "complete {:.1f} ms after\n",
      job.start_up->devices, job.start_up->communicator, job.start_up->first_collective);
}

/// The first devices of a topology.
Topology first_of(Topology topology, int count) {
  const auto devices = std::min(static_cast<std::size_t>(count), topology.devices.size());
  topology.devices.resize(devices);
  topology.peers.resize(std::min(devices, topology.peers.size()));
  for (std::vector<PeerLink>& links : topology.peers) links.resize(std::min(devices, links.size()));
  return topology;
}

/// A matrix of one figure over sources and destinations.
std::string format_matrix(const std::vector<const Row*>& rows, const std::string& title,
                          std::optional<double> (*figure)(const Row&)) {
  const int devices = rows.front()->device_count;
  std::string text = fmt::format("# {}\n#{:>9}", title, "from\\to");
  for (int target = 0; target < devices; ++target) text += fmt::format(" {:>8}", target);
  for (int source = 0; source < devices; ++source) {
    text += fmt::format("\n{:>10}", source);
    for (int target = 0; target < devices; ++target) {
      const auto found = std::ranges::find_if(
          rows, [&](const Row* row) { return row->root == source && row->partner == target; });
      const std::optional<double> value = found == rows.end() ? std::nullopt : figure(**found);
      text += fmt::format(" {:>8}", value ? format_figure(*value) : "-");
    }
  }
  return text + "\n";
}

/// Virtual devices of different processes have the same numbers, and are different ones.
std::string device_in_words(const MemberDevice& member) {
  if (member.pci_bus_id.empty()) return fmt::format("its own {} {}", member.name, member.device);
  return fmt::format("device {} {} {}", member.device, member.name, member.pci_bus_id);
}

}  // namespace

std::string format_members(const Job& job) {
  if (job.mode == Mode::single_process) return "";
  std::string text = fmt::format("ranks: {} on {} host(s)\n", job.ranks, job.hosts().size());
  for (std::size_t number = 0; number < job.members.size(); ++number) {
    const MemberDevice& member = job.members[number];
    const std::string group = job.groups > 1 ? fmt::format(" (group {})", job.group_of(member.rank)) : "";
    text += fmt::format("  member {}: rank {}{} on {}, process {}, {}\n", number, member.rank, group,
                        member.host, member.process, device_in_words(member));
  }
  return text;
}

std::string format_header(const Options& options, const Results& results) {
  std::string text = fmt::format("# tutti-perf {}: {}, transport {}, {}{}, time is {}, check {}\n",
                                 tutti::version(), format_devices(results),
                                 name_of(options.collective.transport), name_in(launch_names, options.launch),
                                 options.results == ResultForm::given ? "" : ", results are new tensors",
                                 time_in_words(options, results.job), options.check ? "on" : "off");
  text += commented(format_members(results.job) + format_start(results.job));
  if (results.job.groups > 1) {
    text += fmt::format(
        "# {} groups of {} ranks measure at the same time: bus bandwidths are of one, times, over all "
        "of them, those {}\n",
        results.job.groups, results.job.ranks_of_group(),
        *found_in(over_ranks_in_words, options.timing.over_ranks));
  }
  if (options.calls_of_a_launch > 1)
    text += fmt::format("# a launch is {} calls: times are divided by them\n", options.calls_of_a_launch);
  if (options.first_element > 0)
    text += fmt::format("# tensors begin with element {} of memory that is aligned\n", options.first_element);
  if (options.memory != MemoryChoice::tutti)
    text += fmt::format("# operands are in {} memory (--memory)\n", name_in(memory_names, options.memory));
  if (results.job.mode == Mode::ranks) text += "# seen by rank 0:\n";
  text += commented(to_string(first_of(results.topology, results.devices_shown)));
  if (!results.peer.empty()) {
    text += fmt::format(
        "# peer: {}, {}: rows of its own; the fastest right one ends with its time over tutti's\n",
        results.peer, options.launch == LaunchForm::eager ? "plain calls" : "graph replays");
    for (const std::string& mode : results.peer_modes) text += fmt::format("#   {}\n", mode);
  }
  return text;
}

std::string format_column_titles(const std::string& operation, const Columns& columns) {
  return fmt::format("#\n# {}\n", operation) + columns.titles();
}

std::string format_choice(const Row& row) {
  return fmt::format("# {}: {}\n", row.transport, row.algorithm);
}

std::string format_pair_matrices(const std::vector<Row>& rows) {
  if (rows.empty()) return "";
  std::map<std::pair<std::string, std::size_t>, std::vector<const Row*>> matrices;
  for (const Row& row : rows) matrices[{row.contender(), row.bytes}].push_back(&row);
  const auto [least, most] = std::ranges::minmax(rows, {}, &Row::bytes);
  std::string text;
  for (const auto& [of, pairs] : matrices) {
    const auto& [peer, bytes] = of;
    std::uint64_t wrong = 0;
    for (const Row* const row : pairs) wrong += row->wrong();
    const bool is_checked = std::ranges::all_of(pairs, &Row::is_checked);
    const std::string who = peer.empty() ? "" : "peer " + peer + ": ";
    const std::string about = fmt::format("{} {}, {}", format_size(bytes), name_of(rows.front().dtype),
                                          is_checked ? fmt::format("{} wrong", wrong) : "not checked");
    if (bytes == least.bytes)
      text += format_matrix(pairs, fmt::format("{}latency (us), {}", who, about), [](const Row& row) {
        return std::optional(row.out_of_place->timing.latency.median);
      });
    if (bytes == most.bytes)
      text += format_matrix(pairs, fmt::format("{}bandwidth (GB/s), {}", who, about),
                            [](const Row& row) { return algorithm_bandwidth(row, *row.out_of_place); });
  }
  return text;
}

std::string format_skipped(const Skipped& skipped) {
  std::string reason = skipped.reason;
  // The rest is what to do about it, the same of every case.
  if (skipped.cause == Skipped::Cause::out_of_memory)
    reason.resize(std::min(reason.find(". "), reason.size()));
  return fmt::format("# not measured: {}: {}\n", skipped.what, reason);
}

std::string format_footer(const Results& results) {
  std::string text = "#\n";
  if (results.interrupted) text += "# interrupted: what was measured until then\n";
  if (!results.skipped.empty()) {
    text += fmt::format("# not measured: {} case(s)", results.skipped.size());
    if (results.out_of_memory() > 0)
      text += fmt::format(", {} of them for lack of memory", results.out_of_memory());
    text += '\n';
  }
  if (!results.failure.empty()) text += "# ended by a failure: what was measured until then\n";
  if (results.are_any_checked()) {
    const std::string who = results.who_is_wrong();
    text += who.empty() ? "# wrong elements: 0 OK\n"
                        : fmt::format("# wrong elements: {} FAILED: {}\n", results.wrong(), who);
  } else {
    text += "# wrong elements: not checked\n";
  }
  text += format_throttled(results.job);
  text += format_slowest(results);
  if (results.baseline) text += format_baseline(results);
  const std::optional<double> bandwidth = results.average_bus_bandwidth();
  if (bandwidth) return text + fmt::format("# average bus bandwidth: {:.3f} GB/s\n", *bandwidth);
  return text + "# average bus bandwidth: N/A: nothing has gone from device to device\n";
}

void TablePrinter::start_operation(const Operation& operation) {
  choice_.clear();
  output_.print(operation.is_copy() ? fmt::format("#\n# {}\n", operation.name())
                                    : format_column_titles(std::string(operation.name()), columns_));
}

void TablePrinter::start_cycle(int cycle) {
  if (options_.cycles != 1) output_.print(fmt::format("#\n# cycle {}\n", cycle));
}

void TablePrinter::finish_row(const Operation& operation, const Row& row) {
  if (operation.is_copy()) {
    pairs_.push_back(row);
    return;
  }
  if (row.peer.empty()) {
    if (const std::string choice = format_choice(row); choice != choice_) {
      output_.print(choice);
      choice_ = choice;
    }
  }
  output_.print(columns_.line(row));
}

void TablePrinter::skip_row(const Skipped& skipped) {
  output_.print(format_skipped(skipped));
}

void TablePrinter::finish_operation() {
  for (const DType dtype : options_.dtypes) {
    std::vector<Row> rows;
    for (const Row& row : pairs_) {
      if (row.dtype == dtype) rows.push_back(row);
    }
    output_.print(format_pair_matrices(rows));
  }
  pairs_.clear();
}

}  // namespace tutti::perf
