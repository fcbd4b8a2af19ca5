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

std::string format_measurement(const Row& row, const std::optional<Measurement>& measurement,
                               Headline headline) {
  if (!measurement) return fmt::format("{:>9} {:>7} {:>7} {:>6}", "N/A", "N/A", "N/A", "N/A");
  const std::string wrong = measurement->wrong ? fmt::format("{}", *measurement->wrong) : "N/A";
  return fmt::format("{:>9} {:>7} {:>7} {:>6}", format_figure(measurement->microseconds(headline)),
                     format_figure(algorithm_bandwidth(row, *measurement, headline)),
                     format_figure(bus_bandwidth(row, *measurement, headline)), wrong);
}

std::string describe_choice(const Row& row) {
  if (row.peer.empty()) return fmt::format("{}: {}", row.transport, row.algorithm);
  return fmt::format("peer {}: {}, {:.2f}x tutti's time", row.peer, row.algorithm,
                     row.peer_over_tutti.value_or(0.0));
}

std::string_view describe(Headline headline) {
  return headline == Headline::latency ? "latency, from the call to completion" : "back to back";
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
  std::string text = fmt::format(
      "# tutti-perf {}: {} {} device(s), transport {}, {}, time is {}, check {}\n", tutti::version(),
      results.device_count, results.topology.backend == BackendKind::host ? "virtual" : "cuda",
      name_of(options.collective.transport), options.launch == LaunchForm::eager ? "eager" : "persistent",
      describe(options.headline), options.check ? "on" : "off");
  std::string topology = to_string(results.topology);
  if (!topology.empty() && topology.back() == '\n') topology.pop_back();
  text += "# ";
  for (const char letter : topology) {
    text += letter;
    if (letter == '\n') text += "# ";
  }
  text += '\n';
  if (!results.peer.empty()) text += fmt::format("# peer: {}\n", results.peer);
  return text;
}

std::string format_column_titles(const std::string& operation, const Options& options) {
  return fmt::format(
      "#\n# {}\n"
      "#{:>49} {:<32} {:<32}\n"
      "#{:>11} {:>11} {:>13} {:>5} {:>4}  {:>9} {:>7} {:>7} {:>6}  {:>9} {:>7} {:>7} {:>6}  {:>9} {:>9}  {}\n"
      "#{:>11} {:>11} {:>13} {:>5} {:>4}  {:>9} {:>7} {:>7} {:>6}  {:>9} {:>7} {:>7} {:>6}  {:>9} {:>9}\n",
      operation, "", "out of place", "in place", "size", "count", "type", "redop", "root", "time", "algbw",
      "busbw", "#wrong", "time", "algbw", "busbw", "#wrong", "p50", "p99", "chosen", "(B)", "(elements)", "",
      "", "", "(us)", "(GB/s)", "(GB/s)", options.check ? "" : "(off)", "(us)", "(GB/s)", "(GB/s)",
      options.check ? "" : "(off)", "(us)", "(us)");
}

std::string format_row(const Row& row, Headline headline) {
  const Summary latency = row.out_of_place ? row.out_of_place->timing.latency : Summary{};
  return fmt::format(" {:>11} {:>11} {:>13} {:>5} {:>4}  {}  {}  {:>9} {:>9}  {}\n", row.bytes, row.count,
                     name_of(row.dtype), row.sums ? "sum" : "none", row.root,
                     format_measurement(row, row.out_of_place, headline),
                     format_measurement(row, row.in_place, headline), format_figure(latency.median),
                     format_figure(latency.p99), describe_choice(row));
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
      const std::string about = fmt::format("{}, {} wrong", format_size(bytes), wrong);
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
  text += options.check ? fmt::format("# wrong elements: {} {}\n", results.wrong(),
                                      results.wrong() == 0 ? "OK" : "FAILED")
                        : std::string("# wrong elements: not checked\n");
  return text + fmt::format("# average bus bandwidth: {:.3f} GB/s\n",
                            results.average_bus_bandwidth(options.headline));
}

}  // namespace tutti::perf
