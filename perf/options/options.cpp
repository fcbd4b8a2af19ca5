// SPDX-License-Identifier: Apache-2.0
#include "perf/options/options.hpp"

#include "perf/operations/found_in.hpp"
#include "perf/operations/reductions.hpp"
#include "perf/operations/tensor_lists.hpp"
#include "perf/options/command_line.hpp"
#include "perf/processes/failure.hpp"
#include "tutti/reduce_types.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <ranges>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

void require_that(bool is_so, const std::string& message) {
  if (!is_so) throw UsageError(message);
}

[[noreturn]] void refuse_operation(const std::string& name, Mode mode) {
  std::string names;
  for (const Operation* operation : collective_operations(mode))
    names += fmt::format("{}, ", operation->name());
  if (mode == Mode::single_process) names += "sendrecv, ";
  throw UsageError(
      fmt::format("'{}' is not an operation: expected {}all, topo, explain or tensors", name, names));
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

/// What `topo` and `explain` have a use of, which measure nothing: what chooses devices and transports.
/// Of files (-J, --baseline) parse_report says more.
constexpr std::string_view used_by_both[] = {"-g",         "--backend",   "--devices",    "--topology",
                                             "--groups",   "--transport", "-J",           "--multiprocessors",
                                             "--baseline", "--tolerance", "--determinism"};
constexpr std::string_view used_by_explain[] = {"-d", "-o", "-r", "--dim", "--tensors"};

void require_used_options(const TypedOptions& typed, Command command) {
  const auto is_in = [](const auto& names, const std::string& name) {
    return std::ranges::find(names, name) != std::end(names);
  };
  for (const auto& [name, value] : typed.options) {
    if (is_in(used_by_both, name) || (command == Command::explain && is_in(used_by_explain, name))) continue;
    throw UsageError(fmt::format("{}: expected no {}: nothing is measured",
                                 command == Command::explain ? "explain" : "topo", name));
  }
}

void parse_explain(const TypedOptions& typed, Options& options) {
  const std::vector<std::string>& words = typed.words;
  if (words.size() < 2)
    throw UsageError("explain: which operation? For instance: tutti-perf explain broadcast 64M");
  options.operations = parse_operations(words[1], options.mode);
  const Operation& operation = *options.operations.front();
  require_that(options.operations.size() == 1 && operation.collective(),
               fmt::format("explain: '{}' is not one collective", words[1]));
  require_that(
      operation.moves_tensors(),
      fmt::format("explain: '{}' moves no bytes, expected an operation with a size, such as broadcast",
                  words[1]));
  require_that(!operation.has_unequal_parts(),
               fmt::format("explain: '{}' has parts of unequal lengths, expected equal parts, as in {}",
                           words[1], name_of(*operation.collective())));
  require_that(words.size() >= 3 || typed.has("--tensors"),
               fmt::format("explain: which size? For instance: tutti-perf explain {} 64M", words[1]));
  require_that(words.size() < 3 || !typed.has("--tensors"),
               fmt::format("explain: '{}' and --tensors exclude each other: both say how much there is",
                           words.back()));
  if (words.size() >= 3) options.explain_bytes = parse_size(words[2], "explain");
}

/// What is to be done, and with which operations. The mode of `options` is known.
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
    require_used_options(typed, options.command);
  } else if (words[0] == "explain") {
    take_at_most(3);
    options.command = Command::explain;
    require_used_options(typed, options.command);
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

/// Of `explain`, which shows one plan, of a call: called when the types, reductions, roots and dimensions of
/// `options` are known.
void require_one_plan(const Options& options) {
  require_that(options.dtypes.size() == 1, "explain: -d is all, expected one type");
  require_that(options.reductions.size() == 1, "explain: -o is all, expected one reduction");
  require_that(options.root.has_value(), "explain: -r is all, expected one root");
  require_that(options.dims.size() == 1, "explain: --dim is all, expected 0 or 1");
}

constexpr int most_devices_of_a_rank = 16;  ///< that a Communicator takes
constexpr int any_number = std::numeric_limits<int>::max();
constexpr int longest_timeout = 86'400;  ///< in seconds
constexpr int most_calls_of_a_launch = 1024;
constexpr int farthest_element = 1 << 20U;
constexpr int most_skipped = 1'000'000;

constexpr Named<std::string_view> backend_names[] = {{"auto", "auto"}, {"cuda", "cuda"}, {"host", "host"}};
constexpr Named<TransportKind> transport_names[] = {{"auto", TransportKind::automatic},
                                                    {"p2p", TransportKind::p2p},
                                                    {"nccl", TransportKind::nccl},
                                                    {"staged", TransportKind::staged}};
constexpr Named<PeerChoice> peer_names[] = {
    {"none", PeerChoice::none}, {"nccl", PeerChoice::nccl}, {"mpi", PeerChoice::mpi}};

/// Sets `target` to what the name stands for that was typed, if one was.
template <class Value>
void choose(Value& target, const TypedOptions& typed, const char* option,
            std::span<const Named<Value>> names) {
  if (!typed.has(option)) return;
  const std::optional<Value> chosen = found_in(names, typed.text(option));
  if (!chosen) {
    const auto all = std::views::keys(names);
    refuse_value(option, typed.text(option),
                 fmt::format("{} or {}", fmt::join(all.begin(), all.end() - 1, ", "), all.back()));
  }
  target = *chosen;
}

[[noreturn]] void refuse_both(const TypedOptions& typed, const char* one, const char* other,
                              const char* reason) {
  throw UsageError(fmt::format("{} {} and {} {} exclude each other: {}", one, typed.text(one), other,
                               typed.text(other), reason));
}

SizeSweep parse_sweep(const TypedOptions& typed) {
  SizeSweep sweep;
  sweep.begin = parse_size(typed.text("-b", "8"), "-b");
  sweep.end = typed.has("-e") ? parse_size(typed.text("-e"), "-e") : std::max(sweep.begin, sweep.end);
  if (typed.has("-i") && typed.has("-f"))
    refuse_both(typed, "-i", "-f", "expected one of them, the step between sizes");
  if (typed.has("-i")) {
    sweep.increment = parse_size(typed.text("-i"), "-i");
    if (sweep.increment == 0) refuse_value("-i", typed.text("-i"), "1 byte or more");
  }
  if (const auto factor = typed.number("-f", 2, any_number)) sweep.factor = static_cast<std::size_t>(*factor);
  static_cast<void>(sizes_of(sweep));  // refuses what does not fit together
  return sweep;
}

std::vector<DType> parse_dtypes(const std::string& text) {
  if (text == "all") return {all_dtypes.begin(), all_dtypes.end()};
  return {parse_element_type(text, "-d")};
}

void parse_launches(const TypedOptions& typed, Options& options) {
  options.timing.iterations = typed.number("-n", 1, any_number);
  options.timing.warmup = typed.number("-w", 0, any_number);
  options.timing.repetitions = typed.number("--repetitions", 1, any_number);
  const int graph_launches = typed.number("-G", 0, any_number).value_or(0);
  options.replays = graph_launches > 0;
  if (options.replays && typed.has("-n"))
    refuse_both(typed, "-G", "-n", "both are launches per batch, expected one of them");
  if (options.replays) options.timing.iterations = graph_launches;
  if (options.replays || typed.has("--persistent")) options.launch = LaunchForm::persistent;
}

void parse_devices(const TypedOptions& typed, Options& options) {
  std::string_view backend;
  choose<std::string_view>(backend, typed, "--backend", backend_names);
  options.backend = backend;
  options.virtual_topology = typed.text("--topology");
  options.virtual_devices = typed.number("--devices", 1, 1024);
  options.devices_used =
      typed.number("-g", 1, options.mode == Mode::ranks ? most_devices_of_a_rank : any_number);
  const bool wants_virtual = typed.has("--devices") || typed.has("--topology");
  if (wants_virtual && options.backend == "cuda") {
    throw UsageError("--devices and --topology describe virtual devices; choose among GPUs with -g");
  }
  if (wants_virtual) options.backend = "host";
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
        fmt::format("-o {}: expected a reduction that {} supports", text, name_of(options.dtypes.front())));
  return {*named};
}

void parse_collective(const TypedOptions& typed, Options& options) {
  choose<TransportKind>(options.collective.transport, typed, "--transport", transport_names);
  options.collective.multiprocessors = typed.number("--multiprocessors", 0, any_number);
  if (options.collective.multiprocessors == 0 && !options.operations.empty() &&
      std::ranges::all_of(options.operations, &Operation::needs_communicator)) {
    throw UsageError(std::string(kernels_carry_communicators));
  }
  choose<Determinism>(options.collective.determinism, typed, "--determinism", determinism_names);
  choose<ResultForm>(options.results, typed, "--results", result_names);
  options.reductions = parse_reductions(typed.text("-o", "sum"), options);
  const bool is_every_root = typed.text("-r") == "all" || typed.text("-r") == "-1";
  options.root = is_every_root ? std::nullopt : std::optional(typed.number("-r", 0, any_number).value_or(0));
  if (typed.text("--dim") == "all") {
    options.dims = {0, 1};
  } else {
    options.dims = {typed.number("--dim", 0, 1).value_or(0)};
  }
}

/// What each option applies to.
void require_consistency(const TypedOptions& typed, const Options& options) {
  const auto any = [&](auto&& property) { return std::ranges::any_of(options.operations, property); };
  const std::string_view first = options.operations.front()->name();
  require_that(!typed.has("--tensors") || any(&Operation::is_coalesced),
               fmt::format("--tensors applies to coalesced operations, not to {}", first));
  require_that(!typed.has("--dim") || any(&Operation::cuts_dimension),
               fmt::format("--dim applies to scatter and gather, not to {}", first));
  // nccl-tests takes both of everything.
  const bool is_of_nccl_tests =
      std::ranges::any_of(typed.words, [](const std::string& word) { return word.ends_with("_perf"); });
  const bool is_plain = options.reductions.front() == ReduceKind::sum || options.reductions.size() > 1;
  require_that(is_plain || is_of_nccl_tests || any(&Operation::sums),
               fmt::format("-o {}: {} does not reduce, expected an operation that does, such as all_reduce",
                           typed.text("-o"), first));
  const auto takes_root = [](const Operation* operation) {
    return operation->has_root() && !operation->is_copy();
  };
  require_that(options.root.value_or(0) == 0 || is_of_nccl_tests || any(takes_root),
               fmt::format("-r {}: {} has no root, expected an operation that has one, such as broadcast",
                           typed.text("-r"), first));
  const bool is_bound = options.launch == LaunchForm::persistent;
  require_that(!is_bound || !std::ranges::all_of(options.operations, &Operation::is_copy),
               "sendrecv measures plain copies, which have no persistent form (-G, --persistent)");
  require_that(options.mode == Mode::ranks || options.peer != PeerChoice::mpi,
               "--peer mpi compares collectives between processes: start them with mpirun");
  require_that(!is_bound || options.peer != PeerChoice::mpi,
               "--peer mpi makes plain calls: expected no -G or --persistent with it");
  if (options.results != ResultForm::returned) return;
  require_that(any([](const Operation* operation) { return operation->has(Placement::returned); }),
               fmt::format("{} returns no new tensors (--results)", first));
  require_that(!is_bound, "--results new and --persistent exclude each other: a bound call has its outputs");
  require_that(options.peer == PeerChoice::none,
               "--results new and --peer exclude each other: a peer writes into given outputs");
}

void parse_comparison(const TypedOptions& typed, Options& options) {
  choose<PeerChoice>(options.peer, typed, "--peer", peer_names);
  options.peer_mode = typed.number("-R", 0, 2);
  if (options.peer_mode && options.peer != PeerChoice::nccl)
    throw UsageError("-R chooses the buffers of NCCL's calls: expected --peer nccl with it");
  options.check = typed.number("-c", 0, any_number) != 0;
  options.baseline_file = typed.text("--baseline");
  if (!typed.has("--tolerance")) return;
  if (!typed.has("--baseline"))
    throw UsageError("--tolerance needs a comparison: expected --baseline with it");
  const std::string text = typed.text("--tolerance");
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, options.tolerance);
  if (error != std::errc() || rest != end || !std::isfinite(options.tolerance) || options.tolerance < 0.0)
    refuse_value("--tolerance", text, "per cent, 0 or more");
}

/// How often what is measured, and by how many at a time.
void parse_runs(const TypedOptions& typed, Options& options) {
  options.cycles = typed.number("-N", 0, any_number).value_or(options.cycles);
  if (const int seconds = typed.number("-T", 0, longest_timeout).value_or(0); seconds > 0)
    options.row_timeout = std::chrono::seconds(seconds);
  options.calls_of_a_launch = typed.number("-m", 1, most_calls_of_a_launch).value_or(1);
  if (options.calls_of_a_launch > 1 && options.results == ResultForm::returned)
    refuse_both(typed, "-m", "--results", "each call of a launch would return new tensors, expected -m 1");
  options.first_element = typed.number("-u", 0, farthest_element).value_or(0);
  choose<MemoryChoice>(options.memory, typed, "--memory", memory_names);
  if (options.memory != MemoryChoice::tutti && options.results == ResultForm::returned)
    refuse_both(typed, "--memory", "--results", "new tensors are tutti's own, expected --results out");
  options.groups = typed.number("--groups", 1, any_number).value_or(1);
  if (options.groups == 1) return;
  require_that(
      options.mode == Mode::ranks,
      fmt::format(
          "--groups {}: there is one process, expected ranks: start them with mpirun, torchrun or srun",
          options.groups));
  require_that(options.peer == PeerChoice::none,
               fmt::format("--groups {} and --peer exclude each other: a peer measures all ranks together",
                           options.groups));
}

/// What is told besides times, and where it goes.
void parse_report(const TypedOptions& typed, Options& options) {
  choose<OverRanks>(options.timing.over_ranks, typed, "-a", over_ranks_names);
  options.timing.skipped = typed.number("-K", 0, most_skipped).value_or(0);
  if (options.timing.iterations && options.timing.skipped >= *options.timing.iterations) {
    throw UsageError(fmt::format("-K: {} of {} latencies are left out, expected fewer",
                                 options.timing.skipped, *options.timing.iterations));
  }
  options.shows_spread = typed.number("-I", 0, 1) == 1;
  options.shows_timestamps = typed.number("-S", 0, 1) == 1;
  options.json_file = typed.text("-J");
  if (options.command == Command::measure) return;
  for (const auto& [option, file] : {std::pair{"-J writes", &options.json_file},
                                     std::pair{"--baseline compares", &options.baseline_file}}) {
    if (!file->empty())
      throw UsageError(fmt::format("{} what has been measured: expected an operation to measure", option));
  }
}

}  // namespace

Options parse_options(int argc, const char* const* argv, Mode mode) {
  Options options;
  options.mode = mode;
  const std::optional<TypedOptions> typed = split_command_line(argc, argv, options.help);
  if (!typed) return options;
  parse_command(*typed, options);
  options.sizes = parse_sweep(*typed);
  options.dtypes = parse_dtypes(typed->text("-d", "float32"));
  parse_launches(*typed, options);
  parse_devices(*typed, options);
  parse_collective(*typed, options);
  parse_comparison(*typed, options);
  if (typed->has("--tensors")) options.tensors_name = typed->text("--tensors");
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
