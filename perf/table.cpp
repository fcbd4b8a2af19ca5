#include "table.hpp"

#include "tutti/version.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

/// Three to four significant digits in a column of seven.
std::string format_figure(double value) {
  const int decimals = value < 99.995 ? 2 : value < 999.95 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals);
}

std::string format_measurement_columns(std::string_view time, std::string_view algbw, std::string_view busbw,
                                       std::string_view wrong) {
  return fmt::format("{:>9} {:>7} {:>7} {:>6}", time, algbw, busbw, wrong);
}

std::string format_measurement(const Row& row, const std::optional<Measurement>& measurement,
                               Headline headline) {
  if (!measurement) return format_measurement_columns("N/A", "N/A", "N/A", "N/A");
  return format_measurement_columns(format_figure(measurement->microseconds(headline)),
                                    format_figure(algorithm_bandwidth(row, *measurement, headline)),
                                    format_figure(bus_bandwidth(row, *measurement, headline)),
                                    measurement->wrong ? fmt::format("{}", *measurement->wrong) : "N/A");
}

/// One line under the column titles, or the titles themselves.
struct Line {
  std::string size = {}, count = {}, type = {}, redop = {}, root = {};
  std::string out_of_place = {}, in_place = {};
  std::string p50 = {}, p99 = {}, chosen = {};
};

std::string format_line(char lead, const Line& line) {
  std::string text = fmt::format("{}{:>11} {:>11} {:>13} {:>5} {:>4}  {}  {}  {:>9} {:>9}  {}", lead,
                                 line.size, line.count, line.type, line.redop, line.root, line.out_of_place,
                                 line.in_place, line.p50, line.p99, line.chosen);
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

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

std::string describe_choice(const Row& row) {
  if (row.peer.empty()) return fmt::format("{}: {}", row.transport, row.algorithm);
  return fmt::format("peer {}: {}, {:.2f}x tutti's time", row.peer, row.algorithm,
                     row.peer_over_tutti.value_or(0.0));
}

std::string describe(Headline headline, const Job& job) {
  const std::string time =
      headline == Headline::latency ? "latency, from the call to completion" : "back to back";
  return job.mode == Mode::ranks ? time + " on the slowest rank" : time;
}

/// How many of what, for the first line.
std::string describe_devices(const Results& results) {
  const std::string_view kind = results.topology.backend == BackendKind::host ? "virtual" : "cuda";
  if (results.job.mode == Mode::single_process) {
    return fmt::format("{} {} device(s)", results.device_count, kind);
  }
  return fmt::format("{} rank(s) with {} {} device(s) each", results.job.ranks, results.job.devices_per_rank,
                     kind);
}

/// Rounded up.
std::size_t mebibytes(std::size_t bytes) {
  return (bytes + (std::size_t{1} << 20U) - 1) >> 20U;
}

/// Where every rank is, and what starting took.
std::string describe_ranks(const Job& job) {
  if (job.mode == Mode::single_process) return "";
  std::string text = fmt::format("ranks: {} on {} host(s)\n", job.ranks, job.hosts().size());
  for (std::size_t number = 0; number < job.members.size(); ++number) {
    const MemberDevice& member = job.members[number];
    text += fmt::format("  member {}: rank {} on {}, device {} {}{}{}\n", number, member.rank, member.host,
                        member.device, member.name, member.pci_bus_id.empty() ? "" : " ", member.pci_bus_id);
  }
  if (job.start_up) {
    text += fmt::format(
        "start-up: devices ready {:.1f} ms after MPI_Init, communicator {:.1f} ms, first collective "
        "complete {:.1f} ms after MPI_Init\n",
        job.start_up->devices, job.start_up->communicator, job.start_up->first_collective);
  }
  if (job.memory) {
    text += fmt::format("memory of the communicator: {} MiB per device", mebibytes(job.memory->created));
    if (job.memory->with_nccl) text += fmt::format(" ({} MiB with NCCL)", mebibytes(*job.memory->with_nccl));
    text += "\n";
  }
  return text;
}

/// A matrix of one figure over sources and destinations.
std::string format_matrix(const std::vector<const Row*>& rows, int devices, const std::string& title,
                          double (*figure)(const Row&, Headline), Headline headline) {
  std::string text = fmt::format("# {}\n#{:>9}", title, "from\\to");
  for (int target = 0; target < devices; ++target) text += fmt::format(" {:>8}", target);
  for (int source = 0; source < devices; ++source) {
    text += fmt::format("\n{:>10}", source);
    for (int target = 0; target < devices; ++target) {
      const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row* row) {
        return row->root == source && row->partner == target;
      });
      text += fmt::format(" {:>8}", found == rows.end() ? "-" : format_figure(figure(**found, headline)));
    }
  }
  return text + "\n";
}

double latency_of(const Row& row, Headline) {
  return row.out_of_place->timing.latency.median;
}
double bandwidth_of(const Row& row, Headline headline) {
  return algorithm_bandwidth(row, *row.out_of_place, headline);
}

}  // namespace

std::string format_header(const Options& options, const Results& results) {
  std::string text =
      fmt::format("# tutti-perf {}: {}, transport {}, {}{}, time is {}, check {}\n", tutti::version(),
                  describe_devices(results), name_of(options.collective.transport),
                  options.launch == LaunchForm::eager ? "eager" : "persistent",
                  options.results == ResultForm::given ? "" : ", results are new tensors",
                  describe(options.headline, results.job), options.check ? "on" : "off");
  text += commented(describe_ranks(results.job));
  text += commented(to_string(results.topology));
  if (!results.peer.empty()) text += fmt::format("# peer: {}\n", results.peer);
  return text;
}

std::string format_column_titles(const std::string& operation, ResultForm results) {
  const std::string titles = format_measurement_columns("time", "algbw", "busbw", "#wrong");
  const std::string units = format_measurement_columns("(us)", "(GB/s)", "(GB/s)", "");
  const auto centered = [&titles](std::string_view text) {
    return fmt::format("{:^{}}", text, titles.size());
  };
  return fmt::format("#\n# {}\n", operation) +
         format_line('#',
                     {.out_of_place = centered(results == ResultForm::given ? "out of place" : "returned"),
                      .in_place = centered("in place")}) +
         format_line('#',
                     {"size", "count", "type", "redop", "root", titles, titles, "p50", "p99", "chosen"}) +
         format_line('#', {"(B)", "(elements)", "", "", "", units, units, "(us)", "(us)", ""});
}

std::string format_row(const Row& row, Headline headline) {
  const Summary latency = row.leading() ? row.leading()->timing.latency : Summary{};
  return format_line(' ', {.size = fmt::format("{}", row.bytes),
                           .count = fmt::format("{}", row.count),
                           .type = std::string(name_of(row.dtype)),
                           .redop = row.sums ? "sum" : "none",
                           .root = fmt::format("{}", row.root),
                           .out_of_place = format_measurement(row, row.out_of_place, headline),
                           .in_place = format_measurement(row, row.in_place, headline),
                           .p50 = format_figure(latency.median),
                           .p99 = format_figure(latency.p99),
                           .chosen = describe_choice(row)});
}

std::string format_pair_matrices(const std::vector<Row>& rows, Headline headline) {
  std::set<std::string> peers;
  std::set<std::size_t> sizes;
  int devices = 0;
  for (const Row& row : rows) {
    peers.insert(row.peer);
    sizes.insert(row.bytes);
    devices = row.device_count;
  }
  std::string text;
  for (const std::string& peer : peers) {
    const std::string who = peer.empty() ? "" : "peer " + peer + ": ";
    for (const std::size_t bytes : sizes) {
      std::vector<const Row*> chosen;
      std::uint64_t wrong = 0;
      for (const Row& row : rows) {
        if (row.peer != peer || row.bytes != bytes) continue;
        chosen.push_back(&row);
        wrong += row.wrong();
      }
      const bool is_checked = std::ranges::all_of(chosen, [](const Row* row) { return row->is_checked(); });
      const std::string about = fmt::format("{}, {}", format_size(bytes),
                                            is_checked ? fmt::format("{} wrong", wrong) : "not checked");
      if (bytes == *sizes.begin()) {
        text += format_matrix(chosen, devices, fmt::format("{}latency (us), {}", who, about), latency_of,
                              headline);
      }
      if (bytes == *sizes.rbegin()) {
        text += format_matrix(chosen, devices, fmt::format("{}bandwidth (GB/s), {}", who, about),
                              bandwidth_of, headline);
      }
    }
  }
  return text;
}

std::string format_skipped(const Skipped& skipped) {
  return fmt::format("# not measured: {}: {}\n", skipped.what, skipped.reason);
}

std::string format_footer(const Results& results, const Options& options) {
  std::string text = "#\n";
  if (results.interrupted) text += "# interrupted: what was measured until then\n";
  if (!results.skipped.empty()) text += fmt::format("# not measured: {} case(s)\n", results.skipped.size());
  if (!results.failure.empty()) text += "# ended by a failure: what was measured until then\n";
  if (options.check && !results.rows.empty()) {
    text += fmt::format("# wrong elements: {} {}\n", results.wrong(), results.wrong() == 0 ? "OK" : "FAILED");
  } else {
    text += "# wrong elements: not checked\n";
  }
  return text + fmt::format("# average bus bandwidth: {:.3f} GB/s\n",
                            results.average_bus_bandwidth(options.headline));
}

}  // namespace tutti::perf
