// SPDX-License-Identifier: Apache-2.0
#include "perf/options/options.hpp"

#include "perf/operations/element_types.hpp"
#include "perf/operations/reductions.hpp"
#include "perf/options/command_line.hpp"
#include "perf/options/options_command.hpp"
#include "perf/options/options_report.hpp"
#include "perf/options/options_runs.hpp"
#include "perf/processes/usage_error.hpp"
#include "tutti/error.hpp"
#include "tutti/reduce_types.hpp"

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

SizeSweep parse_sweep(const TypedOptions& typed) {
  SizeSweep sweep;
  sweep.begin = parse_size(typed.begin, "-b");
  sweep.end = typed.end.empty() ? std::max(sweep.begin, sweep.end) : parse_size(typed.end, "-e");
  if (!typed.increment.empty() && !typed.factor.empty()) {
    throw UsageError(
        fmt::format("-i {} and -f {} exclude each other: expected one of them, how a size becomes the next",
                    typed.increment, typed.factor));
  }
  if (!typed.increment.empty()) {
    sweep.increment = parse_size(typed.increment, "-i");
    if (sweep.increment == 0) refuse_value("-i", typed.increment, "1 byte or more");
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

void parse_launches(const TypedOptions& typed, Options& options) {
  options.timing.iterations = optional_number(typed.iterations, "-n", 1, any_number);
  options.timing.warmup = optional_number(typed.warmup, "-w", 0, any_number);
  options.timing.repetitions = optional_number(typed.repetitions, "--repetitions", 1, any_number);
  if (typed.latency) options.headline = Headline::latency;
  const int graph_launches = parse_number(typed.graph_launches, "-G", 0, any_number);
  if (graph_launches > 0 && !typed.iterations.empty()) {
    throw UsageError(
        fmt::format("-G {} and -n {} exclude each other: both are launches per batch, expected one of them",
                    graph_launches, typed.iterations));
  }
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
std::vector<ReduceKind> parse_reductions(const std::string& typed, const Options& options) {
  const std::string_view text =
      typed == "mulsum" ? name_of_reduction(ReduceKind::premul_sum) : std::string_view(typed);
  if (text == "all") return {all_reduce_kinds.begin(), all_reduce_kinds.end()};
  const std::span<const ReduceKind> kinds = named_reductions();
  const auto named =
      std::ranges::find_if(kinds, [&](ReduceKind kind) { return name_of_reduction(kind) == text; });
  if (named == kinds.end())
    refuse_value("-o", text,
                 "sum, avg, premul_sum (or mulsum), min, max, prod, band, bor, bxor, absmax or all");
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
  if (options.collective.multiprocessors == 0 && !options.operations.empty() &&
      std::ranges::all_of(options.operations, &Operation::needs_communicator)) {
    throw UsageError(std::string(kernels_carry_communicators));
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
  // nccl-tests takes both of everything.
  const bool is_of_nccl_tests =
      std::ranges::any_of(typed.words, [](const std::string& word) { return word.ends_with("_perf"); });
  if (options.reductions != std::vector{ReduceKind::sum} && options.reductions.size() == 1 &&
      !is_of_nccl_tests && !any([](const Operation* op) { return op->sums(); })) {
    throw UsageError(fmt::format("-o {}: {} reduces nothing, expected an operation that does, as all_reduce",
                                 typed.reduction, options.operations.front()->name()));
  }
  if (options.root.value_or(0) != 0 && !is_of_nccl_tests &&
      !any([](const Operation* op) { return op->has_root() && !op->is_copy(); })) {
    throw UsageError(fmt::format("-r {}: {} has no root, expected an operation that has one, as broadcast",
                                 typed.root, options.operations.front()->name()));
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
  if (!options.operations.empty()) require_consistency(*typed, options);
  if (options.command == Command::explain) require_one_plan(options);
  parse_runs(*typed, options);
  parse_report(*typed, options);
  return options;
}

}  // namespace tutti::perf
