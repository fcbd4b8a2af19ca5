// SPDX-License-Identifier: Apache-2.0
#include "perf/options/command_line.hpp"

#include "perf/operations/operation.hpp"
#include "perf/operations/sizes.hpp"
#include "perf/processes/failure.hpp"
#include "tutti/version.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <sstream>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

constexpr std::size_t width_of_lines = 80;
constexpr std::size_t width_of_names = 30;
constexpr std::size_t indent_below = 6;

/// Writes the help page: options in one column, what they do in another, or below them where there is no room
/// beside.
class HelpText final : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override { return app->get_description() + "\n\n"; }
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const std::string name =
        fmt::format("  {} {}", option->get_name(is_positional, !is_positional), option->get_type_name());
    const bool is_beside = name.size() + 2 <= width_of_names;
    const std::string head = is_beside ? fmt::format("{:<{}}", name, width_of_names)
                                       : fmt::format("{}\n{:{}}", name, "", indent_below);
    return head + wrapped(option->get_description(), is_beside ? width_of_names : indent_below) + "\n";
  }
  std::string make_footer(const CLI::App* app) const override { return app->get_footer() + "\n"; }
};

/// For the sentence with the names of all operations.
constexpr fmt::format_string<std::string> description = R"(Checks and measures tutti's collectives.

{}

In one process sendrecv is copies between all pairs of devices: latency at the
smallest size, bandwidth at the largest, in matrices, without the columns of -I,
-S and --baseline, which files have; between ranks messages, from each member to
the next one. Of the unequal ones the parts of n members are as long as 1 to n
units; of an exchange each member's own is the shortest. One process drives all
devices. Started by mpirun, torchrun or srun, every process is a rank with -g
devices; rank 0 prints. Between ranks all operations are those of a
Communicator. In one process those that are no free functions are: of one that
joins all its devices, 16 at most.
  tutti-perf topo              devices, links and the peer-to-peer self-test
  tutti-perf explain OP SIZE   which transport and algorithm a call takes (in
                               place, if it can), and why
  tutti-perf tensors LIST      a tensor list, as --tensors takes it from a file

Sizes are payload bytes: the tensor of a broadcast, one input of a sum, the
whole that is cut into members' parts or put together from them (an output of
all_gather, an input of reduce_scatter_add or all_to_all), a message. Suffixes
K, M and G are binary. A coalesced operation splits a size into 16 tensors
unless --tensors is given.

Letters, long names and meanings of options are those of nccl-tests, where it
has them; its names of operations (also AllReduce, all_reduce_perf) and of
element types are known. Of an option given several times the last counts.)";

constexpr const char* footer = R"(
Times are per operation. `time` is back to back: a batch is enqueued, waited for
once and divided by its length; the median of several batches. p50 and p99 are
latencies, from the call to completion on all devices. Ranks start every batch
in step, and its time is the slowest rank's, unless -a asks for another; the
foot says which rank was slowest. algbw is size / time; busbw is algbw times
(n-1)/n where members have parts of a whole (scatter, all_gather and the like),
times 2(n-1)/n for all_reduce_add, times 1-1/u for unequal parts of u = n(n+1)/2
units, and algbw itself otherwise. A bandwidth is N/A where nothing goes from
device to device. A line above rows tells which transport and algorithm have
carried them. What there is no memory for, and what is less than an element, is
left out, which a line tells, and the run goes on.

Exit status: 0 all right, 1 wrong data, 2 a mistake on the command line, 3
slower than the baseline or nothing to compare with it, 4 wrong data of a peer
alone, 5 the run failed, or something had no memory, 6 a row took longer than
-T, 130 interrupted, also by a reader of the table that goes away, as head does.)";

/// The names of all operations, in a sentence.
std::string operation_names() {
  std::string names = "OP is one of these, several, or all: ";
  for (const Operation* const operation : collective_operations(Mode::single_process))
    names += fmt::format("{}, ", operation->name());
  return wrapped(fmt::format("{}{}.", names, copy_operation().name()), 0);
}

/// Adds options of one group of the help page.
class Group {
 public:
  Group(CLI::App& app, const char* name) : app_(app), name_(name) {}

  void value(const char* flag, const char* type, const std::string& help) {
    // An unset variable of a script must not pass for the default.
    const auto is_given = [](const std::string& text) {
      return text.empty() ? std::string("expected a value, got an empty one") : std::string();
    };
    app_.add_option(flag, help)->group(name_)->type_name(type)->take_last()->check(is_given);
  }
  void flag(const char* flag, const std::string& help) { app_.add_flag(flag, help)->group(name_); }

 private:
  CLI::App& app_;
  const char* name_;
};

/// Options of nccl-tests without an equal here.
struct Foreign {
  const char* names;
  const char* instead;
};
constexpr Foreign foreign[] = {
    {"-t,--nthreads", "one thread drives all devices of a process: their number is -g"},
    {"-p,--parallel_init", "the members of a communicator start at once, always: leave it out"},
    {"-z,--blocking", "the time from a call to its completion is p50"},
    {"-y,--stream_null", "every device has one stream of its own, always"},
    {"-C,--report_cputime", "times last until all devices are done; those of single calls are p50 and p99"},
    {"-M", "the memory that is taken is shown by nvidia-smi"},
    {"-x,--cta_policy", "NCCL is measured as its environment sets it up (--peer nccl)"},
    {"-D,--device_implementation", "NCCL is measured by its host calls alone (--peer nccl)"},
    {"-V,--device_cta_count", "NCCL is measured by its host calls alone (--peer nccl)"},
};

void refuse_foreign(CLI::App& app) {
  for (const Foreign& option : foreign) {
    const auto refuse = [&option] {
      throw UsageError(fmt::format("{} of nccl-tests is no option here: {}", option.names, option.instead));
    };
    app.add_flag_callback(option.names, refuse)->group("");  // in no group: not in the help
  }
}

/// In one line; where it begins with one name of an option, with all of them: people may have typed another.
std::string with_all_names(const CLI::App& app, std::string message) {
  std::ranges::replace(message, '\n', ' ');
  for (const CLI::Option* const option : app.get_options()) {
    const std::string name = option->get_name();
    if (message.starts_with(name + ":"))
      return message.replace(0, name.size(), option->get_name(false, true));
  }
  return message;
}

void declare(CLI::App& app, std::vector<std::string>& words) {
  app.footer(footer);
  app.set_version_flag("--version", fmt::format("tutti-perf {}", version()), "print the version and exit");
  app.add_option("OP", words, "what to measure; or topo, explain, tensors")->type_name("");

  Group sizes(app, "Sizes");
  sizes.value("-b,--minbytes", "SIZE", "smallest size (default 8)");
  sizes.value("-e,--maxbytes", "SIZE", "largest size (default 64M, or -b if that is larger)");
  sizes.value("-i,--stepbytes", "SIZE", "bytes from one size to the next");
  sizes.value("-f,--stepfactor", "N", "factor from one size to the next (default 2)");
  sizes.value("--tensors", "LIST",
              "for coalesced operations, instead of sizes: resnet50, gpt2, COUNTxSIZE such "
              "as 1000x1K, or a file with lines such as: 64x3x7x7 float32");

  Group operations(app, "Operations");
  operations.value("-d,--datatype", "TYPE",
                   "element type, such as float32, half, int8, or all (default float32)");
  operations.value(
      "-o,--op", "NAME",
      "reductions: sum (default), avg, premul_sum (by 2; also mulsum), min, max, prod, band, bor, "
      "bxor, or all of these, with the element types that have them; absmax: the larger "
      "absolute value, by an operation that is compiled at run time");
  operations.value("-r,--root", "N",
                   "root, or all, or -1, which is the same (default 0): a device; between ranks, "
                   "counted through all");
  operations.value("--dim", "N", "scatter and gather: dimension 0 (default), 1, or all");
  operations.value("--transport", "NAME", "auto, p2p, nccl or staged (default auto)");
  operations.value("--multiprocessors", "N",
                   "that kernels of a call may hold on each device (default: as many as make it fastest); "
                   "0, of copies of one process: none, copy engines alone");
  operations.value("--determinism", "NAME",
                   "fastest (default), or bitwise: the same bits on every transport");
  operations.value("--results", "FORM",
                   "out (default): into tensors the call is given; new: into new ones it returns, where "
                   "what is on its device already is returned as it is");

  Group devices(app, "Devices");
  devices.value("-g,--ngpus", "N",
                "number of devices that take part (default: all; of every rank: 1, at most 16)");
  devices.value("--backend", "NAME", "auto, cuda, or host: virtual devices");
  devices.value("--devices", "N", "number of virtual devices, of every process; implies --backend host");
  devices.value("--topology", "NAME",
                "of virtual devices: island, two-islands, pcie, pcie-p2p or a JSON file; "
                "implies --backend host");

  devices.value("--groups", "N",
                "that many groups of consecutive ranks, which measure at the same time, each by itself "
                "(default 1)");

  Group timing(app, "Timing");
  timing.value("-n,--iters", "N", "launches per batch (default: as many as take 50 ms, at most 200)");
  timing.value("-w,--warmup_iters", "N", "launches before measuring (default: up to 5)");
  timing.value("-m,--agg_iters", "N",
               "calls of a launch, one after another: times are divided by them (default 1); with -G of "
               "a communicator's calls, how many are in a graph");
  timing.value("-N,--run_cycles", "N", "measure all sizes N times (default 1); 0: until Ctrl-C");
  timing.value("-T,--timeout", "SECONDS",
               "end the run, with status 6, when a row takes longer (default 0: it may)");
  timing.value("--repetitions", "N", "batches (default 5, fewer of slow operations)");
  timing.value("-u,--unalign", "N", "tensors begin with element N of memory that is aligned (default 0)");
  timing.value("--memory", "KIND",
               "of operands, also of NCCL's on the same buffers: tutti (default), of its allocator; cuda, as "
               "cudaMalloc gives it; registered, the same, registered with tutti; expandable, in pieces, as "
               "PyTorch's expandable segments, registered");
  timing.value("-a,--average", "HOW",
               "of the times of ranks: max, that of the slowest one (3, default), min (2), average (1), "
               "or rank0 (0)");
  timing.value("-I,--per_iter_timing", "N",
               "1: the table has min, max and coefficient of variation of the latencies, too, and the "
               "file of -J each of them (default 0)");
  timing.value("-K,--per_iter_skip", "N",
               "leave the first N latencies out of p50, p99 and the like (default 0)");
  timing.flag("--persistent", "bind once, launch many times: on GPUs, graph replays");
  timing.value("-G,--cudagraph", "N",
               "the same, with this many launches per batch, and of a communicator's calls with 20 in a "
               "graph; 0: eager (default)");
  timing.value("--peer", "NAME",
               "measure a peer, too: nccl, in each of the modes of -R, the fastest of which is what "
               "tutti is compared with; between ranks of virtual devices also mpi, on host memory");
  timing.value("-R,--local_register", "N",
               "with --peer nccl, that mode alone: 0: on the same buffers; on buffers of NCCL's, 1: that are "
               "registered, 2: that are symmetric windows (NCCL 2.27)");

  Group check(app, "Check and output");
  check.value("-c,--check", "N", "compare every element on every device (default 1); 0: do not");
  check.value("-S,--report_timestamps", "N",
              "1: a row ends with when it was measured (default 0); files always have it");
  check.value("-J,--output_file", "FILE", "write all figures as JSON");
  check.value("--baseline", "FILE",
              "compare with what -J has written before: rows have the change in per cent, and the "
              "exit status is 3 where a time is slower than --tolerance allows, or nothing is in both");
  check.value("--tolerance", "PERCENT", "how much slower than in the baseline a time may be (default 3)");

  refuse_foreign(app);
  app.allow_extras();
}

/// The options that were typed, each by its letter, or its name if it has none.
std::map<std::string, std::string> typed_in(const CLI::App& app) {
  std::map<std::string, std::string> typed;
  for (const CLI::Option* const option : app.get_options()) {
    if (option->count() == 0 || option->get_positional()) continue;
    const std::vector<std::string>& letters = option->get_snames();
    typed[letters.empty() ? "--" + option->get_lnames().front() : "-" + letters.front()] =
        option->results().back();
  }
  return typed;
}

}  // namespace

std::string wrapped(const std::string& text, std::size_t indent) {
  std::string result;
  std::size_t column = indent;
  std::istringstream words(text);
  for (std::string word; words >> word; column += word.size()) {
    const bool fits = column + 1 + word.size() <= width_of_lines;
    if (!result.empty()) {
      result += fits ? " " : "\n" + std::string(indent, ' ');
      column = fits ? column + 1 : indent;
    }
    result += word;
  }
  return result;
}

std::string TypedOptions::text(const std::string& name, const char* otherwise) const {
  const auto found = options.find(name);
  return found == options.end() ? otherwise : found->second;
}

std::optional<int> TypedOptions::number(const std::string& name, int lowest, int highest) const {
  if (!has(name)) return std::nullopt;
  return parse_number(text(name), name, lowest, highest);
}

std::optional<TypedOptions> split_command_line(int argc, const char* const* argv, std::string& help) {
  CLI::App app(fmt::format(description, operation_names()), "tutti-perf");
  TypedOptions typed;
  declare(app, typed.words);
  app.formatter(std::make_shared<HelpText>());
  try {
    app.parse(argc, argv);
    for (const std::string& word : app.remaining()) {
      if (word != "--")
        throw UsageError(fmt::format("'{}' is not an option: expected one of those that -h lists", word));
    }
    typed.options = typed_in(app);
    return typed;
  } catch (const CLI::CallForHelp&) {
    help = app.help();
    return std::nullopt;
  } catch (const CLI::CallForVersion&) {
    help = app.version() + "\n";
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw UsageError(with_all_names(app, error.what()));
  }
}

}  // namespace tutti::perf
