#include "driver.hpp"
#include "interrupt.hpp"
#include "json.hpp"
#include "options.hpp"
#include "peer.hpp"
#include "session.hpp"
#include "table.hpp"
#include "tutti/error.hpp"
#include "usage_error.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

namespace tutti::perf {
namespace {

enum ExitStatus : int { all_right = 0, wrong_data = 1, bad_usage = 2, run_failed = 3, was_interrupted = 130 };

/// Shows what is being measured on the standard error stream, if that is a terminal.
class Progress {
 public:
  void show(const std::string& text) const {
    if (visible_) fmt::print(stderr, "\r\033[K{}", text);
  }
  void clear() const { show(""); }

 private:
  bool visible_ = isatty(STDERR_FILENO) == 1;
};

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

/// Prints the table row by row.
class TablePrinter final : public Listener {
 public:
  explicit TablePrinter(const Options& options) : options_(options) {}

  void start_operation(const Operation& operation) override {
    dim_ = 0;
    print(operation.collective() ? format_column_titles(std::string(operation.name()), options_.results)
                                 : fmt::format("#\n# {}\n", operation.name()));
  }
  void start_row(const Operation& operation, const Case& what) override {
    progress_.show(fmt::format("{} {} {} ...", operation.name(), name_of(what.dtype),
                               what.tensors.empty() ? format_size(what.bytes) : options_.tensors_name));
  }
  void finish_row(const Operation& operation, const Row& row) override {
    progress_.clear();
    if (!operation.collective()) {
      pairs_.push_back(row);
      return;
    }
    if (row.dim != dim_) print(fmt::format("# along dimension {}\n", row.dim));
    dim_ = row.dim;
    print(format_row(row, options_.headline));
  }
  void skip_row(const Skipped& skipped) override {
    progress_.clear();
    print(format_skipped(skipped));
  }
  void finish_operation(const Operation&) override {
    progress_.clear();
    for (const DType dtype : options_.dtypes) {
      std::vector<Row> rows;
      for (const Row& row : pairs_) {
        if (row.dtype == dtype) rows.push_back(row);
      }
      print(format_pair_matrices(rows, options_.headline));
    }
    pairs_.clear();
  }

 private:
  const Options& options_;
  Progress progress_;
  int dim_ = 0;
  std::vector<Row> pairs_;
};

/// Opened before anything is measured: a name that cannot be written should not cost a run. What the file
/// held stays there until something takes its place.
class JsonFile {
 public:
  explicit JsonFile(const std::string& name) : name_(name) {
    if (name_.empty()) return;
    file_.open(name_, std::ios::app);
    if (!file_) throw UsageError(fmt::format("-J: '{}' cannot be written", name_));
  }

  [[nodiscard]] bool is_wanted() const noexcept { return !name_.empty(); }
  void write(const std::string& text) {
    std::error_code failure;
    if (std::filesystem::is_regular_file(name_, failure)) std::filesystem::resize_file(name_, 0, failure);
    file_ << text << std::flush;
    if (!file_ || failure) throw UsageError(fmt::format("-J: '{}' could not be written", name_));
  }

 private:
  std::string name_;
  std::ofstream file_;
};

int measure(const Options& options, const std::vector<std::string>& command_line) {
  const Session session(options);
  if (options.inject_corruption && session.topology().backend != BackendKind::host) {
    throw UsageError("--inject-corruption needs virtual devices (--backend host)");
  }
  if (session.device_count() < 2 && options.operations.front() == &copy_operation()) {
    throw UsageError("sendrecv needs two devices or more");
  }
  const std::unique_ptr<Peer> peer =
      options.peer == PeerChoice::nccl ? make_nccl_peer(session.streams()) : std::unique_ptr<Peer>();
  JsonFile json_file(options.json_file);
  Results results;
  results.topology = session.topology();
  results.device_count = session.device_count();
  if (peer) results.peer = peer->describe();

  watch_interrupt();
  print(format_header(options, results));
  TablePrinter printer(options);
  try {
    run_measurements(options, session, peer.get(), results, printer);
  } catch (const Interrupted&) {
    results.interrupted = true;
  } catch (const Error& error) {
    results.failure = error.what();  // what was measured until then is worth keeping
  }
  print(format_footer(results, options));
  if (json_file.is_wanted()) json_file.write(to_json(options, results, command_line));
  if (!results.failure.empty()) {
    fmt::print(stderr, "tutti-perf: {}\n", results.failure);
    return run_failed;
  }
  if (results.interrupted) {
    fmt::print(stderr, "tutti-perf: interrupted after {} row(s)\n", results.rows.size());
    return was_interrupted;
  }
  if (results.rows.empty()) {
    throw UsageError(fmt::format("nothing could be measured: {}",
                                 results.skipped.empty() ? "no case" : results.skipped.front().reason));
  }
  return results.wrong() == 0 ? all_right : wrong_data;
}

int show_topology(const Options& options) {
  print(to_string(Session(options).topology()));
  return all_right;
}

int explain_operation(const Options& options) {
  const Session session(options);
  const Operation& operation = *options.operations.front();
  Workload workload;
  workload.collective = *operation.collective();
  workload.bytes = options.explain_bytes;
  workload.dtype = options.dtypes.front();
  workload.root = options.root.value_or(0);
  workload.dim = options.dims.front();
  workload.options = options.collective;
  for (int device = 0; device < session.device_count(); ++device) workload.devices.emplace_back(device);
  if (operation.is_coalesced()) {
    Case what;
    what.bytes = options.explain_bytes;
    what.tensors = options.tensors;
    what.dtype = workload.dtype;
    for (const TensorSpec& spec : payload_tensors(what, true)) {
      workload.tensor_bytes.push_back(Layout(*spec.dtype, spec.sizes).nbytes());
    }
  }
  print(explain(workload));
  return all_right;
}

int run(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  switch (options.command) {
    case Command::help:
      print(options.help);
      return all_right;
    case Command::topo:
      return show_topology(options);
    case Command::explain:
      return explain_operation(options);
    case Command::tensors:
      print(format_tensor_lines(options.tensors));
      return all_right;
    case Command::measure:
      break;
  }
  return measure(options, {argv, argv + argc});
}

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) {
  using namespace tutti::perf;
  try {
    return run(argc, argv);
  } catch (const UsageError& error) {
    fmt::print(stderr, "tutti-perf: {}\n", error.what());
    return bad_usage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "tutti-perf: {}\n", error.what());
    return run_failed;
  }
}
