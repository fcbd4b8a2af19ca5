// SPDX-License-Identifier: Apache-2.0
#include "perf/beside/beside_bench.hpp"
#include "perf/beside/contention.hpp"
#include "perf/operations/sizes.hpp"
#include "perf/processes/exit_status.hpp"
#include "perf/processes/usage_error.hpp"
#include "perf/report/guarded.hpp"
#include "perf/report/output.hpp"
#include "perf/report/result_file.hpp"
#include "perf/session/provenance.hpp"
#include "tutti/tutti.hpp"

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

/// What a collective and a matrix product on the same devices cost one another, by how many multiprocessors
/// the collective's kernels may hold.
namespace tutti::perf {
namespace {

struct Given {
  std::string bytes = "64M";
  std::int64_t order = 8192;
  int runs = 5;
  double milliseconds = 30;
  std::string json_file;
};

struct Row {
  std::string operation;
  std::optional<int> multiprocessors;
  ContendedTimes collective;
  ContendedTimes product;
  std::size_t wrong = 0;  ///< outputs that were not what they should be
};

std::string bound_in_words(std::optional<int> multiprocessors) {
  if (!multiprocessors) return "not bounded";
  return *multiprocessors == 0 ? "none: copy engines" : fmt::format("{}", *multiprocessors);
}

std::vector<std::vector<std::byte>> bytes_of_all(const std::vector<Tensor>& tensors) {
  std::vector<std::vector<std::byte>> all;
  for (const Tensor& tensor : tensors) all.push_back(tensor.to_bytes());
  return all;
}

Row measure(const Measured& collective, const Bench& bench,
            const std::vector<std::vector<std::byte>>& products_alone, const Given& given) {
  Row row{collective.operation, collective.multiprocessors, {}, {}, 0};
  for (const Tensor& output : collective.outputs) output.fill_(0);
  for (const Stream& stream : collective.contender.streams) synchronize(stream.device());
  const double run_us = given.milliseconds * 1e3;
  row.collective = measure_contention(collective.contender, bench.product(), given.runs, run_us);
  row.product = measure_contention(bench.product(), collective.contender, given.runs, run_us);
  const std::vector<std::vector<std::byte>> outputs = bytes_of_all(collective.outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    row.wrong += outputs[i] == collective.expected[i] ? 0U : 1U;
  const std::vector<std::vector<std::byte>> products = bench.products();
  for (std::size_t i = 0; i < products.size(); ++i) row.wrong += products[i] == products_alone[i] ? 0U : 1U;
  return row;
}

std::string line_of(const Row& row) {
  return fmt::format("| `{}` | {} | {:.1f} | {:.1f} | {:.2f}x | {:.1f} | {:.1f} | {:.2f}x | {} |\n",
                     row.operation, bound_in_words(row.multiprocessors), row.collective.alone,
                     row.collective.beside, row.collective.slowdown(), row.product.alone, row.product.beside,
                     row.product.slowdown(), row.wrong);
}

nlohmann::json json_of(const ContendedTimes& times) {
  return {{"alone_us", times.alone}, {"beside_us", times.beside}};
}

nlohmann::json json_of(const std::vector<Row>& rows, const Given& given, std::uint64_t bytes) {
  const Provenance provenance = find_provenance(backend_kind());
  nlohmann::json document = {{"schema", "tutti-beside-product/1"},
                             {"date", provenance.date},
                             {"commit", provenance.commit},
                             {"cpu", provenance.cpu},
                             {"system", provenance.system},
                             {"driver", provenance.driver},
                             {"cuda", provenance.cuda},
                             {"bytes", bytes},
                             {"order", given.order},
                             {"runs", given.runs},
                             {"rows", nlohmann::json::array()}};
  for (int device = 0; device < device_count(); ++device)
    document["devices"].push_back(get_device_name(Device(device)));
  for (const Row& row : rows) {
    nlohmann::json one = {{"operation", row.operation},
                          {"multiprocessors", nullptr},
                          {"collective", json_of(row.collective)},
                          {"product", json_of(row.product)},
                          {"wrong", row.wrong}};
    if (row.multiprocessors) one["multiprocessors"] = *row.multiprocessors;
    document["rows"].push_back(std::move(one));
  }
  return document;
}

int run(const Given& given, const Output& output) {
  const std::uint64_t bytes = parse_size(given.bytes, "-b");
  const int gpus = backend_kind() == BackendKind::cuda ? device_count() : 0;
  if (gpus < 2) throw UsageError(fmt::format("there are {} GPUs, expected 2 or more", gpus));
  ResultFile file("-J", given.json_file);
  Bench bench(given.order, bytes);
  bench.product().enqueue();
  for (int device = 0; device < device_count(); ++device) synchronize(Device(device));
  const std::vector<std::vector<std::byte>> products_alone = bench.products();
  output.print(
      fmt::format("{} bytes of float32 on each of {} devices ({}), beside products of two {} x {} matrices "
                  "of bfloat16; µs, medians of {} runs.\n\n"
                  "| operation | multiprocessors | alone | beside | | product alone | beside | | wrong |\n"
                  "|---|---|--:|--:|--:|--:|--:|--:|--:|\n",
                  bytes, device_count(), get_device_name(Device(0)), given.order, given.order, given.runs));
  std::vector<Row> rows;
  std::size_t wrong = 0;
  bench.for_each_collective([&](const Measured& collective) {
    rows.push_back(measure(collective, bench, products_alone, given));
    wrong += rows.back().wrong;
    output.print(line_of(rows.back()));
  });
  if (file.is_wanted()) file.write(json_of(rows, given, bytes).dump(2) + "\n");
  return wrong == 0 ? all_right : wrong_data;
}

int run(int argc, char** argv) {
  Given given;
  CLI::App app(
      "Measures what collectives of all GPUs of this process and matrix products on the same GPUs cost one "
      "another,\n"
      "by how many multiprocessors the collectives' kernels may hold, and checks all results.\n"
      "The collectives are queued on streams of higher priority.\n"
      "Prints a Markdown table, in microseconds.",
      "tutti-beside-product");
  app.add_option("-b", given.bytes, "payload of a device, such as 64M")->capture_default_str();
  app.add_option("-n", given.order, "order of the matrices")
      ->check(CLI::Range(16, 65536))
      ->capture_default_str();
  app.add_option("-r", given.runs, "runs of each side, of which medians are told")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("-t", given.milliseconds, "about how many milliseconds a run takes")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("-J", given.json_file, "also write what was measured to this file, as JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? all_right : bad_usage;
  }
  const Output output(true, app.get_name());
  return guarded(output, [&] { return run(given, output); });
}

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) {
  return tutti::perf::run(argc, argv);
}
