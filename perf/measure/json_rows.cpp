// SPDX-License-Identifier: Apache-2.0
#include "perf/measure/json_rows.hpp"

#include "perf/operations/reductions.hpp"
#include "perf/session/provenance.hpp"

namespace tutti::perf {
namespace {

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
                 {"algbw_gbps", number_or_null(algorithm_bandwidth(row, *measurement))},
                 {"busbw_gbps", number_or_null(bus_bandwidth(row, *measurement))},
                 {"wrong", nullptr},
                 {"back_to_back_us", summary_of(timing.back_to_back)},
                 {"iterations", timing.iterations},
                 {"latency_us", summary_of(timing.latency)},
                 {"ranks", ranks_of(*measurement)}};
  if (detail == Detail::each_latency) result["latency_us"]["each"] = timing.latencies;
  if (measurement->wrong) result["wrong"] = *measurement->wrong;
  if (measurement->over_tutti) result["time_over_tutti"] = *measurement->over_tutti;
  if (!row.peer.empty()) result["fastest"] = measurement->is_fastest_peer;
  if (measurement->baseline_microseconds) {
    result["baseline_us"] = *measurement->baseline_microseconds;
    result["time_over_baseline"] = *measurement->over_baseline();
  }
  return result;
}

}  // namespace

std::string_view name_of(ResultForm form) noexcept {
  return form == ResultForm::given ? "out" : "new";
}

Json number_or_null(const std::optional<double>& number) {
  return number ? Json(*number) : Json(nullptr);
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json row_of(const Row& row, Detail detail) {
  Json result = {{"operation", row.operation},
                 {"by", row.peer.empty() ? "tutti" : row.peer},
                 {"mode", text_or_null(row.peer_mode)},
                 {"size", row.bytes},
                 {"count", row.count},
                 {"tensors", row.tensors},
                 {"tensor_list", nullptr},
                 {"dtype", name_of(row.dtype)},
                 {"redop", row.redop ? name_of_reduction(*row.redop) : "none"},
                 {"root", row.root},
                 {"dim", row.dim},
                 {"devices", row.device_count},
                 {"launch", row.launch == LaunchForm::eager ? "eager" : "persistent"},
                 {"results", name_of(row.results)},
                 {"buffer_sets", row.buffer_sets},
                 {"cycle", row.cycle},
                 {"bus_factor", row.bus_factor},
                 {"transport", row.transport},
                 {"algorithm", row.algorithm},
                 {"timestamp", utc_text(row.finished, "%Y-%m-%dT%H:%M:%SZ")},
                 {"out_of_place", measurement_of(row, row.out_of_place, detail)},
                 {"in_place", measurement_of(row, row.in_place, detail)}};
  if (!row.tensor_list.empty()) result["tensor_list"] = row.tensor_list;
  if (row.partner >= 0) result["destination"] = row.partner;
  if (row.leading() && row.leading()->over_tutti) result["time_over_tutti"] = *row.leading()->over_tutti;
  if (!row.peer.empty()) result["fastest"] = row.leading() && row.leading()->is_fastest_peer;
  return result;
}

}  // namespace tutti::perf
