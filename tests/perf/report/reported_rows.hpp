// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/measure/results.hpp"

#include <cstdint>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

/// Returns results as a run may have them.
namespace tutti::perf {

inline std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

inline Measurement measured(double microseconds, std::uint64_t wrong = 0) {
  Measurement measurement;
  measurement.timing.back_to_back = summarize({microseconds});
  measurement.timing.latency = summarize({2 * microseconds});
  measurement.timing.iterations = 20;
  measurement.wrong = wrong;
  return measurement;
}

inline Row scatter_row() {
  Row row;
  row.operation = "scatter";
  row.bytes = 8'000'000;
  row.count = 2'000'000;
  row.device_count = 4;
  row.bus_factor = 0.75;
  row.transport = "p2p";
  row.algorithm = "copy engines";
  row.out_of_place = measured(100.0);
  return row;
}

inline Results results_of(std::vector<Row> rows) {
  Results results;
  results.device_count = 4;
  results.rows = std::move(rows);
  return results;
}

inline Results results_of_ranks() {
  Results results = results_of({scatter_row()});
  results.job = {.mode = Mode::ranks,
                 .ranks = 2,
                 .devices_per_rank = 2,
                 .members = {},
                 .start_up = StartUp{.devices = 2.0, .communicator = 5.0, .first_collective = 20.0}};
  for (int member = 0; member < 4; ++member) {
    results.job.members.push_back(
        {member / 2, "node" + std::to_string(member / 2), 100 + member / 2, member % 2, "a device", ""});
  }
  return results;
}

}  // namespace tutti::perf
