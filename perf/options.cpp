// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "command_line.hpp"
#include "element_types.hpp"
#include "nearest.hpp"
#include "options_report.hpp"
#include "options_runs.hpp"
#include "reductions.hpp"
#include "tutti/error.hpp"
#include "tutti/reduce_types.hpp"
#include "usage_error.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

constexpr int most_devices_of_a_rank = 16;  ///< that a Communicator takes
constexpr int any_number = std::numeric_limits<int>::max();

std::optional<int> optional_number(const std::string& text, std::string_view what, int lowest, int highest) {
  if (text.empty()) return std::nullopt;
  return parse_number(text, what, lowest, highest);
}

[[noreturn]] void refuse_operation(const std::string& name, Mode mode) {
  std::vector<std::string> names;
  for (const Operation* operation : collective_operations(mode)) names.emplace_back(operation->name());
  if (mode == Mode::single_process) names.emplace_back("sendrecv");
  for (const char* const other : {"all", "topo", "explain", "tensors"}) names.emplace_back(other);
  const std::string meant = nearest(name, names);
  const std::string last = names.back();
  names.pop_back();
  throw UsageError(
      unknown_name(name, "an operation", meant, fmt::format("{} or {}", fmt::join(names, ", "), last)));
}

std::vector<const Operation*> parse_operations(const std::string& name, Mode mode) {
  if (name == "all") {
    const auto collectives = collective_operations(mode);
    std::vector<const Operation*> all(collectives.begin(), collectives.end());
    if (mode == Mode::single_process) all.push_back(&copy_operation());
    return all;
  }
  const Operation* const operation = find_operation(name, mode);
  if (operation == nullptr) refuse_operation(name, mode);
  return {operation};
}

SizeSweep parse_sweep(const TypedOptions& typed) {
  SizeSweep sweep;
  sweep.begin = parse_size(typed.begin, "-b");
  sweep.end = typed.end.empty() ? std::max(sweep.begin, sweep.end) : parse_size(typed.end, "-e");
  if (!typed.increment.empty() && !typed.factor.empty()) throw UsageError("-i and -f exclude each other");
  if (!typed.increment.empty()) {
    sweep.increment = parse_size(typed.increment, "-i");
    if (sweep.increment == 0) throw UsageError("-i: expected 1 byte or more");
  }
  if (!typed.factor.empty())
    sweep.factor = static_cast<std::size_t>(parse_number(typed.factor, "-f", 2, any_number));
  static_cast<void>(sizes_of(sweep));  // refuses what does not fit together
  return sweep;
}

std::vector<DType> parse_dtypes(const std::string& text) {
  if (text == "all") return {all_dtypes.begin(), all_dtypes.end()};
  return {parse_element_type(text, "-d")};
}

/// Numbers with commas between them.
std::vector<int> parse_cpus(const std::string& text) {
  std::vector<int> cpus;
  for (std::size_t start = 0; !text.empty() && start <= text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    cpus.push_back(parse_number(std::string_view(text).substr(start, end - start), "--cpu", 0, any_number));
    start = end + 1;
  }
  return cpus;
}

void parse_launches(const TypedOptions& typed, Options& options) {
  options.timing.iterations = optional_number(typed.iterations, "-n", 1, any_number);
  options.timing.warmup = optional_number(typed.warmup, "-w", 0, any_number);
  options.timing.repetitions = optional_number(typed.repetitions, "--repetitions", 1, any_number);
  options.buffer_sets = optional_number(typed.buffer_sets, "--buffer-sets", 1, 1024);
  options.cpus = parse_cpus(typed.cpus);
  if (typed.latency) options.headline = Headline::latency;
  const int graph_launches = parse_number(typed.graph_launches, "-G", 0, any_number);
  if (graph_launches > 0 && !typed.iterations.empty())
    throw UsageError("-G and -n exclude each other: both are launches per batch");
  if (graph_launches > 0) options.timing.iterations = graph_launches;
  options.replays = graph_launches > 0;
  if (graph_launches > 0 || typed.persistent) options.launch = LaunchForm::persistent;
}

void parse_devices(const TypedOptions& typed, Options& options) {
  options.backend = typed.backend;
  options.virtual_topology = typed.topology;
  options.virtual_devices = optional_number(typed.virtual_devices, "--devices", 1, 1024);
  options.devices_used = optional_number(typed.devices_used, "-g", 1,
                                         options.mode == Mode::ranks ? most_devices_of_a_rank : any_number);
  if (!typed.backend.empty() && typed.backend != "auto" && typed.backend != "cuda" &&
      typed.backend != "host") {
    refuse_value("--backend", typed.backend, "auto, cuda or host");
  }
  const bool wants_virtual = !typed.virtual_devices.empty() || !typed.topology.empty();
  if (wants_virtual && typed.backend == "cuda") {
    throw UsageError("--devices and --topology describe virtual devices; choose among GPUs with -g");
  }
  if (wants_virtual) options.backend = "host";
}

TransportKind parse_transport_option(const std::string& text) {
  try {
    return parse_transport(text);
  } catch (const Error&) {
    refuse_value("--transport", text, "auto, p2p, nccl or staged");
  }
}

/// All that need no compiler, or the one that is named, which at least one of the element types has.
std::vector<ReduceKind> parse_reductions(const std::string& text, const Options& options) {
  if (text == "all") return {all_reduce_kinds.begin(), all_reduce_kinds.end()};
  const std::span<const ReduceKind> kinds = named_reductions();
  const auto named =
      std::ranges::find_if(kinds, [&](ReduceKind kind) { return name_of_reduction(kind) == text; });
  if (named == kinds.end())
    refuse_value("-o", text, "sum, avg, premul_sum, min, max, prod, band, bor, bxor, absmax or all");
  const bool is_had =
      std::ranges::any_of(options.dtypes, [&](DType dtype) { return has_operation(dtype, *named); });
  if (!is_had)
    throw UsageError(
        fmt::format("-o {}: elements of {} do not have it", text, name_of(options.dtypes.front())));
  return {*named};
}

void parse_collective(const TypedOptions& typed, Options& options) {
  options.collective.transport = parse_transport_option(typed.transport);
  options.collective.multiprocessors =
      optional_number(typed.multiprocessors, "--multiprocessors", 0, std::numeric_limits<int>::max());
  if (options.collective.multiprocessors == 0 &&
      std::ranges::any_of(options.operations, &Operation::needs_communicator)) {
    throw UsageError("--multiprocessors 0: kernels carry what a communicator does, expected at least 1");
  }
  if (typed.determinism == "bitwise") {
    options.collective.determinism = Determinism::bitwise;
  } else if (typed.determinism != "fastest") {
    refuse_value("--determinism", typed.determinism, "fastest or bitwise");
  }
  if (typed.results == "new") {
    options.results = ResultForm::returned;
  } else if (typed.results != "out") {
    refuse_value("--results", typed.results, "out or new");
  }
  options.reductions = parse_reductions(typed.reduction, options);
  const bool is_every_root = typed.root == "all" || typed.root == "-1";
  options.root = is_every_root ? std::nullopt : std::optional(parse_number(typed.root, "-r", 0, any_number));
  if (typed.dim == "all") {
    options.dims = {0, 1};
  } else if (!typed.dim.empty()) {
    options.dims = {parse_number(typed.dim, "--dim", 0, 1)};
  }
}

/// What each option applies to.
void require_consistency(const TypedOptions& typed, const Options& options) {
  const auto any = [&](auto&& property) {
    return std::any_of(options.operations.begin(), options.operations.end(), property);
  };
  if (!typed.tensors.empty() && !any([](const Operation* op) { return op->is_coalesced(); })) {
    throw UsageError(fmt::format("--tensors applies to coalesced operations, not to {}",
                                 options.operations.front()->name()));
  }
  if (!typed.dim.empty() && !any([](const Operation* op) { return op->cuts_dimension(); })) {
    throw UsageError(
        fmt::format("--dim applies to scatter and gather, not to {}", options.operations.front()->name()));
  }
  if (options.launch == LaunchForm::persistent && !any([](const Operation* op) { return !op->is_copy(); })) {
    throw UsageError("sendrecv measures plain copies, which have no persistent form (-G, --persistent)");
  }
  if (options.mode != Mode::ranks && options.peer == PeerChoice::mpi) {
    throw UsageError("--peer mpi compares collectives between processes: start them with mpirun");
  }
  if (options.peer == PeerChoice::mpi && options.launch == LaunchForm::persistent)
    throw UsageError("--peer mpi makes plain calls: expected no -G or --persistent with it");
  if (options.results == ResultForm::returned) {
    if (!any([](const Operation* op) { return op->has(Placement::returned); })) {
      throw UsageError(
          fmt::format("{} returns no new tensors (--results)", options.operations.front()->name()));
    }
    if (options.launch == LaunchForm::persistent) {
      throw UsageError("--results new and --persistent exclude each other: a bound call has its outputs");
    }
    if (options.peer != PeerChoice::none) {
      throw UsageError("--results new and --peer exclude each other: a peer writes into given outputs");
    }
  }
}

void parse_explain(const TypedOptions& typed, Options& options) {
  const std::vector<std::string>& words = typed.words;
  if (words.size() < 2)
    throw UsageError("explain: which operation? For instance: tutti-perf explain broadcast 64M");
  options.operations = parse_operations(words[1], options.mode);
  if (options.operations.size() != 1 || !options.operations.front()->collective()) {
    throw UsageError(fmt::format("explain: '{}' is not one collective", words[1]));
  }
  if (options.operations.front()->has_unequal_parts()) {
    throw UsageError(fmt::format("explain: '{}' has parts of unequal lengths, expected equal ones, as {}",
                                 words[1], name_of(*options.operations.front()->collective())));
  }
  if (words.size() < 3 && typed.tensors.empty()) {
    throw UsageError(fmt::format("explain: which size? For instance: tutti-perf explain {} 64M", words[1]));
  }
  if (words.size() >= 3 && !typed.tensors.empty()) {
    throw UsageError(
        fmt::format("explain: '{}' and --tensors exclude each other: both say how much there is", words[2]));
  }
  if (words.size() >= 3) options.explain_bytes = parse_size(words[2], "explain");
}

/// One plan is shown, of a call.
void require_one_plan(const TypedOptions& typed, const Options& options) {
  if (options.dtypes.size() > 1) throw UsageError("explain: -d is all, expected one type");
  if (options.reductions.size() > 1) throw UsageError("explain: -o is all, expected one reduction");
  if (!options.root) throw UsageError("explain: -r is all, expected one root");
  if (options.dims.size() > 1) throw UsageError("explain: --dim is all, expected 0 or 1");
  if (options.launch == LaunchForm::persistent || !typed.iterations.empty())
    throw UsageError("explain: expected no -n, -G or --persistent: nothing is launched");
}

/// One after another, each once.
std::vector<const Operation*> parse_operations(const std::vector<std::string>& names, Mode mode) {
  std::vector<const Operation*> all = parse_operations(names.front(), mode);
  for (std::size_t i = 1; i < names.size(); ++i) {
    if (names[i] != "all" && find_operation(names[i], Mode::ranks) == nullptr &&
        find_operation(names[i], Mode::single_process) == nullptr) {
      throw UsageError(
          fmt::format("unexpected '{}' after '{}' (sizes are given with -b and -e)", names[i], names[i - 1]));
    }
    for (const Operation* const operation : parse_operations(names[i], mode)) {
      if (std::ranges::find(all, operation) == all.end()) all.push_back(operation);
    }
  }
  return all;
}

void parse_command(const TypedOptions& typed, Options& options) {
  const std::vector<std::string>& words = typed.words;
  if (words.empty())
    throw UsageError("what to measure is missing: name an operation, topo, explain or tensors (see -h)");
  const auto take_at_most = [&words](std::size_t most) {
    if (words.size() > most)
      throw UsageError(fmt::format("unexpected '{}' after '{}'", words[most], words[most - 1]));
  };
  if (words[0] == "topo") {
    take_at_most(1);
    options.command = Command::topo;
  } else if (words[0] == "explain") {
    take_at_most(3);
    options.command = Command::explain;
    parse_explain(typed, options);
  } else if (words[0] == "tensors") {
    if (words.size() < 2) throw UsageError("tensors: which list? For instance: tutti-perf tensors resnet50");
    take_at_most(2);
    options.command = Command::tensors;
    options.tensors_name = words[1];
  } else {
    options.command = Command::measure;
    options.operations = parse_operations(words, options.mode);
  }
}

void parse_comparison(const TypedOptions& typed, Options& options) {
  if (typed.peer == "nccl") {
    options.peer = PeerChoice::nccl;
  } else if (typed.peer == "mpi") {
    options.peer = PeerChoice::mpi;
  } else if (typed.peer != "none") {
    refuse_value("--peer", typed.peer, "nccl or mpi");
  }
  options.peer_mode = optional_number(typed.local_register, "-R", 0, 2);
  if (options.peer_mode && options.peer != PeerChoice::nccl)
    throw UsageError("-R chooses the buffers of NCCL's calls: expected --peer nccl with it");
  options.check = parse_number(typed.check, "-c", 0, any_number) > 0;
  options.inject_corruption = typed.inject_corruption;
  if (options.inject_corruption && !options.check)
    throw UsageError("--inject-corruption needs the check (-c 1)");
}

std::uint64_t parse_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, seed);
  if (error != std::errc() || rest != end) refuse_value("--seed", text, "a whole number, 0 to 2^64 - 1");
  return seed;
}

}  // namespace

Options parse_options(int argc, const char* const* argv, Mode mode) {
  Options options;
  options.mode = mode;
  const std::optional<TypedOptions> typed = split_command_line(argc, argv, options.help);
  if (!typed) return options;
  parse_command(*typed, options);
  options.sizes = parse_sweep(*typed);
  options.dtypes = parse_dtypes(typed->dtype);
  parse_launches(*typed, options);
  parse_devices(*typed, options);
  parse_collective(*typed, options);
  parse_comparison(*typed, options);
  if (!typed->tensors.empty()) options.tensors_name = typed->tensors;
  if (!options.tensors_name.empty()) {
    options.tensors = parse_tensors(options.tensors_name, options.dtypes);
  }
  options.seed = parse_seed(typed->seed);
  if (!options.operations.empty()) require_consistency(*typed, options);
  if (options.command == Command::explain) require_one_plan(*typed, options);
  parse_runs(*typed, options);
  parse_report(*typed, options);
  return options;
}

}  // namespace tutti::perf
