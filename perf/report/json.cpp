// SPDX-License-Identifier: Apache-2.0
#include "perf/report/json.hpp"

#include "perf/operations/reductions.hpp"
#include "perf/report/baseline.hpp"
#include "perf/session/provenance.hpp"
#include "tutti/version.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include <unistd.h>

namespace tutti::perf {
namespace {

/// Returns whether files have the variable: one of the library, of CUDA, NCCL or PyTorch's symmetric memory
/// whose name sounds of no secret.
bool is_recorded(std::string_view name) {
  constexpr std::string_view owners[] = {"TUTTI_", "CUDA_", "NCCL_", "TORCH_SYMM_"};
  constexpr std::string_view secrets[] = {"SECRET", "TOKEN", "PASS", "KEY", "CREDENTIAL"};
  std::string letters(name);
  std::ranges::transform(letters, letters.begin(),
                         [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  return std::ranges::any_of(owners, [&](std::string_view owner) { return name.starts_with(owner); }) &&
         std::ranges::none_of(
             secrets, [&](std::string_view secret) { return letters.find(secret) != std::string::npos; });
}

/// Such variables, without those that name files of this machine.
Json environment() {
  Json variables = Json::object();
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    const std::string_view value = text.substr(std::min(name.size() + 1, text.size()));
    if (is_recorded(name) && value.find('/') == std::string_view::npos) variables[std::string(name)] = value;
  }
  return variables;
}

Json devices_of(const Topology& topology) {
  Json devices = Json::array();
  for (std::size_t index = 0; index < topology.devices.size(); ++index) {
    const DeviceProperties& device = topology.devices[index];
    devices.push_back({{"index", index},
                       {"name", device.name},
                       {"compute_capability", {device.major, device.minor}},
                       {"total_memory", device.total_memory},
                       {"multiprocessors", device.multiprocessor_count},
                       {"l2_cache", device.l2_cache_size},
                       {"pci_bus_id", device.pci_bus_id},
                       {"numa_node", device.numa_node}});
  }
  return devices;
}

Json state_of(const DeviceState& state) {
  return {{"sm_clock_mhz", or_null(state.sm_clock_mhz)},
          {"memory_clock_mhz", or_null(state.memory_clock_mhz)},
          {"power_w", or_null(state.power_w)},
          {"temperature_c", or_null(state.temperature_c)}};
}

Json members_of(const Job& job) {
  Json members = Json::array();
  for (const MemberDevice& member : job.members) {
    members.push_back(
        {{"rank", member.rank},
         {"host", member.host},
         {"device", member.device},
         {"name", member.name},
         {"pci_bus_id", member.pci_bus_id},
         {"before", state_of(member.health.before)},
         {"after", state_of(member.health.after)},
         {"throttled", member.health.throttled ? Json(names_of(*member.health.throttled)) : Json()}});
  }
  return members;
}

Json start_up_of(const Job& job) {
  if (!job.start_up) return nullptr;
  return {{"devices", job.start_up->devices},
          {"communicator", job.start_up->communicator},
          {"first_collective", job.start_up->first_collective}};
}

Json links_of(const Topology& topology) {
  Json links = Json::array();
  for (const std::vector<PeerLink>& row : topology.peers) {
    Json line = Json::array();
    for (const PeerLink& peer : row) {
      line.push_back({{"link", name_of(peer.link)},
                      {"state", name_of(peer.state)},
                      {"lanes", peer.lanes},
                      {"nominal_gbps", peer.gigabytes_per_s}});
    }
    links.push_back(std::move(line));
  }
  return links;
}

Json settings_of(const Options& options) {
  Json operations = Json::array();
  for (const Operation* operation : options.operations) operations.push_back(operation->name());
  return {{"operations", std::move(operations)},
          {"transport", name_of(options.collective.transport)},
          {"multiprocessors", or_null(options.collective.multiprocessors)},
          {"determinism", name_in(determinism_names, options.collective.determinism)},
          {"launch", name_in(launch_names, options.launch)},
          {"results", name_in(result_names, options.results)},
          {"over_ranks", name_in(over_ranks_names, options.timing.over_ranks)},
          {"latencies_skipped", options.timing.skipped},
          {"check", options.check},
          {"calls_of_a_launch", options.calls_of_a_launch},
          {"first_element", options.first_element},
          {"memory", name_in(memory_names, options.memory)},
          {"groups", options.groups}};
}

Json baseline_of(const Results& results) {
  const BaselineVerdict verdict = compare_with_baseline(results);
  Json slower = Json::array();
  for (const BaselineVerdict::Change& change : verdict.slower)
    slower.push_back(
        {{"what", change.what}, {"time_us", change.microseconds}, {"baseline_us", change.before}});
  return {{"file", results.baseline->file()},
          {"about", results.baseline->about()},
          {"tolerance_percent", results.baseline->tolerance()},
          {"compared", verdict.compared},
          {"slower", std::move(slower)},
          {"not_in_baseline", verdict.unaccounted},
          {"in_baseline_alone", results.baseline->left_over()}};
}

/// All but the rows.
Json circumstances_of(const Options& options, const Results& results,
                      const std::vector<std::string>& command_line) {
  return {{"schema", "tutti-perf/2"},
          {"version", tutti::version()},
          {"date", or_null(results.provenance.date)},
          {"commit", or_null(results.provenance.commit)},
          {"compiler", or_null(results.provenance.compiler)},
          {"host", or_null(results.provenance.host)},
          {"cpu", or_null(results.provenance.cpu)},
          {"system", or_null(results.provenance.system)},
          {"driver", or_null(results.provenance.driver)},
          {"cuda", or_null(results.provenance.cuda)},
          {"command_line", command_line},
          {"mode", name_of(results.job.mode)},
          {"ranks", results.job.ranks},
          {"devices_per_rank", results.job.devices_per_rank},
          {"hosts", results.job.hosts()},
          {"members", members_of(results.job)},
          {"start_up_ms", start_up_of(results.job)},
          {"backend", name_of(results.topology.backend)},
          {"nccl", results.topology.nccl},
          {"nccl_library", or_null(results.provenance.nccl_library)},
          {"peer", or_null(results.peer)},
          {"baseline", results.baseline ? baseline_of(results) : Json()},
          {"devices_used", results.device_count},
          {"devices", devices_of(results.topology)},
          {"links", links_of(results.topology)},
          {"environment", environment()},
          {"settings", settings_of(options)}};
}

Json summary_of(const Summary& summary) {
  return {{"samples", summary.count}, {"min", summary.minimum}, {"median", summary.median},
          {"p99", summary.p99},       {"max", summary.maximum}, {"mean", summary.mean},
          {"cv", summary.variation}};
}

Json ranks_of(const Measurement& measurement) {
  const std::vector<double>& times = measurement.timing.back_to_back_of_ranks;
  const std::optional<SlowestRank> slowest = slowest_of(times);
  if (!slowest) return nullptr;
  return {{"time_us", times}, {"slowest", slowest->rank}, {"over_fastest", slowest->over_fastest}};
}

Json measurement_of(const Row& row, const std::optional<Measurement>& measurement, Detail detail) {
  if (!measurement) return nullptr;
  const Timing& timing = measurement->timing;
  Json result = {{"time_us", measurement->microseconds()},
                 {"algbw_gbps", or_null(algorithm_bandwidth(row, *measurement))},
                 {"busbw_gbps", or_null(bus_bandwidth(row, *measurement))},
                 {"wrong", or_null(measurement->wrong)},
                 {"back_to_back_us", summary_of(timing.back_to_back)},
                 {"iterations", timing.iterations},
                 {"latency_us", summary_of(timing.latency)},
                 {"ranks", ranks_of(*measurement)}};
  if (detail == Detail::each_latency) result["latency_us"]["each"] = timing.latencies;
  if (measurement->over_tutti) result["time_over_tutti"] = *measurement->over_tutti;
  if (!row.peer.empty()) result["fastest"] = measurement->is_fastest_peer;
  if (measurement->baseline_microseconds) {
    result["baseline_us"] = *measurement->baseline_microseconds;
    result["time_over_baseline"] = *measurement->over_baseline();
  }
  return result;
}

}  // namespace

std::string to_json(const Options& options, const Results& results,
                    const std::vector<std::string>& command_line) {
  Json document = circumstances_of(options, results, command_line);
  document["rows"] = Json::array();
  document["not_measured"] = Json::array();
  const bool is_checked = results.are_any_checked();
  document["summary"] = {{"wrong", is_checked ? Json(results.wrong()) : Json()},
                         {"wrong_by_tutti", is_checked ? Json(results.own_wrong()) : Json()},
                         {"average_busbw_gbps", or_null(results.average_bus_bandwidth())},
                         {"interrupted", results.interrupted},
                         {"failure", or_null(results.failure)}};
  const Detail detail = options.shows_spread ? Detail::each_latency : Detail::summaries;
  for (const Row& row : results.rows) document["rows"].push_back(row_of(row, detail));
  for (const Skipped& skipped : results.skipped) {
    document["not_measured"].push_back(
        {{"case", skipped.what}, {"cause", name_in(cause_names, skipped.cause)}, {"reason", skipped.reason}});
  }
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json row_of(const Row& row, Detail detail) {
  Json result = {{"operation", row.operation},
                 {"by", row.peer.empty() ? "tutti" : row.peer},
                 {"mode", or_null(row.peer_mode)},
                 {"size", row.bytes},
                 {"count", row.count},
                 {"tensors", row.tensors},
                 {"tensor_list", or_null(row.tensor_list)},
                 {"dtype", name_of(row.dtype)},
                 {"redop", row.redop ? name_of_reduction(*row.redop) : "none"},
                 {"root", row.root},
                 {"dim", row.dim},
                 {"devices", row.device_count},
                 {"launch", name_in(launch_names, row.launch)},
                 {"results", name_in(result_names, row.results)},
                 {"buffer_sets", row.buffer_sets},
                 {"cycle", row.cycle},
                 {"bus_factor", row.bus_factor},
                 {"transport", row.transport},
                 {"algorithm", row.algorithm},
                 {"timestamp", utc_text(row.finished, "%Y-%m-%dT%H:%M:%SZ")},
                 {"out_of_place", measurement_of(row, row.out_of_place, detail)},
                 {"in_place", measurement_of(row, row.in_place, detail)}};
  if (row.partner >= 0) result["destination"] = row.partner;
  if (row.memory != "tutti") result["memory"] = row.memory;
  if (row.leading() && row.leading()->over_tutti) result["time_over_tutti"] = *row.leading()->over_tutti;
  if (!row.peer.empty()) result["fastest"] = row.leading() && row.leading()->is_fastest_peer;
  return result;
}

}  // namespace tutti::perf
