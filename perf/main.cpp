// SPDX-License-Identifier: Apache-2.0
#include "baseline_report.hpp"
#include "cpu.hpp"
#include "csv.hpp"
#include "driver.hpp"
#include "exit_status.hpp"
#include "explain_operation.hpp"
#include "interrupt.hpp"
#include "json.hpp"
#include "options.hpp"
#include "output.hpp"
#include "peer.hpp"
#include "provenance.hpp"
#include "session.hpp"
#include "table.hpp"
#include "table_printer.hpp"
#include "tutti/communicator.hpp"
#include "tutti/error.hpp"
#include "usage_error.hpp"

#include <algorithm>
#include <cfenv>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

std::unique_ptr<Peer> make_peer(const Options& options, const Session& session) {
  switch (options.peer) {
    case PeerChoice::nccl:
      return make_nccl_peer(session, options.peer_mode);
    case PeerChoice::mpi:
      if (!session.processes().have_mpi())
        throw UsageError("--peer mpi measures MPI's own collectives: start the ranks with mpirun");
      return make_mpi_peer(session);
    case PeerChoice::none:
      break;
  }
  return nullptr;
}

void describe_peer(const Peer& peer, Results& results) {
  results.peer = peer.describe();
  for (const PeerMode& mode : peer.modes()) {
    if (!mode.name.empty()) results.peer_modes.push_back(fmt::format("{}: {}", mode.name, mode.about));
  }
}

/// That this rank is told to launch from.
std::optional<int> own_cpu(const Options& options, const Session& session) {
  if (options.cpus.empty()) return std::nullopt;
  const Job::Place place = session.job().place_on_host(session.processes().rank());
  if (options.cpus.size() != static_cast<std::size_t>(place.all)) {
    throw UsageError(fmt::format("--cpu: {} given, expected one for each of {} process(es) on the host",
                                 options.cpus.size(), place.all));
  }
  const int cpu = options.cpus[static_cast<std::size_t>(place.before)];
  const std::vector<int> usable = usable_cpus();
  if (std::ranges::find(usable, cpu) == usable.end()) {
    throw UsageError(fmt::format("--cpu: {} is none that this process may use: expected one of {}", cpu,
                                 fmt::join(usable, ", ")));
  }
  return cpu;
}

/// Set as long as the object is there.
class LastAct {
 public:
  LastAct(Processes& processes, Processes::LastAct last_act) : processes_(processes) {
    processes_.set_last_act(std::move(last_act));
  }
  LastAct(const LastAct&) = delete;
  LastAct& operator=(const LastAct&) = delete;
  ~LastAct() { processes_.set_last_act({}); }

 private:
  Processes& processes_;
};

/// Runs `work`; what it throws becomes a line and an exit status.
int guarded(const Output& output, const std::function<int()>& work) {
  try {
    return work();
  } catch (const UsageError& error) {
    output.complain(error.what());
    return bad_usage;
  } catch (const TimedOut& late) {
    output.complain(late.what());
    return timed_out;
  } catch (const Interrupted& interrupted) {
    output.complain(interrupted.what());
    return was_interrupted;
  } catch (const std::exception& error) {
    output.complain(error.what());
    return run_failed;
  }
}

/// Says what is wrong with a run that has come to its end.
ExitStatus judge(const Results& results, const Output& output) {
  const auto unfit = std::ranges::find(results.skipped, Skipped::Cause::out_of_memory, &Skipped::cause);
  if (unfit != results.skipped.end()) {
    output.complain(fmt::format("{} case(s) not measured for want of memory, first {}: {}",
                                results.out_of_memory(), unfit->what, unfit->reason));
  } else if (results.rows.empty() && !results.interrupted) {
    throw UsageError(fmt::format("nothing could be measured: {}",
                                 results.skipped.empty() ? "no case" : results.skipped.front().reason));
  }
  if (results.baseline) {
    if (const std::string slower = complaint_of_baseline(results); !slower.empty()) output.complain(slower);
  }
  if (results.wrong() != 0) output.complain(fmt::format("wrong elements: {}", results.who_is_wrong()));
  return status_of(results);
}

int measure(Options options, const std::vector<std::string>& command_line, Processes& processes,
            const Output& output) {
  Session session(options, processes);
  const bool is_host = session.topology().backend == BackendKind::host;
  if (options.inject_corruption && !is_host) {
    throw UsageError("--inject-corruption needs virtual devices (--backend host)");
  }
  if (session.members().count < 2 && options.operations == std::vector{&copy_operation()}) {
    throw UsageError("sendrecv needs two devices or more");
  }
  // What fails here must do so on all ranks at once: the ends of peers and communicators wait for one
  // another.
  std::unique_ptr<Peer> peer;
  std::optional<ResultFile> json_file;
  std::optional<ResultFile> csv_file;
  Results results;
  session.together([&] {
    options.timing.cpu = own_cpu(options, session);
    peer = make_peer(options, session);
    json_file.emplace("-J", output.speaks() ? options.json_file : "");
    csv_file.emplace("--csv", output.speaks() ? options.csv_file : "");
    if (output.speaks() && !options.baseline_file.empty()) results.baseline.emplace(options);
  });
  results.topology = session.topology();
  results.provenance = find_provenance(results.topology.backend);
  results.job = session.job();
  results.device_count = session.members().count;
  results.devices_shown = session.devices_shown();
  if (peer) describe_peer(*peer, results);

  session.watch().start();
  watch_interrupts();
  const Columns columns(options, peer != nullptr, output_width());
  output.print(format_header(options, results, columns));
  const bool writes = json_file->is_wanted() || csv_file->is_wanted();
  TablePrinter printer(options, output, columns, writes ? WithoutReader::goes_on : WithoutReader::ends);
  const auto keep = [&] {
    output.print(format_footer(results, options));
    if (json_file->is_wanted()) json_file->write(to_json(options, results, command_line));
    if (csv_file->is_wanted()) csv_file->write(to_csv(options, results));
  };
  bool is_late = false;
  try {
    const LastAct last_act(processes, [&](const Failure& failure) {
      results.interrupted = failure.kind == Failure::Kind::interrupted;
      if (!results.interrupted) results.failure = failure.message;
      static_cast<void>(guarded(output, [&] {
        keep();
        return run_failed;
      }));
    });
    run_measurements(options, session, peer.get(), results, printer);
  } catch (const Interrupted&) {
    results.interrupted = true;
  } catch (const TimedOut& late) {
    results.failure = late.what();
    is_late = true;
    forget_overtime();  // the ranks have agreed on it
  } catch (const Error& error) {
    results.failure = error.what();  // what was measured until then is worth keeping
  }
  session.together([&] {
    if (results.failure.empty()) {  // else others may be missing
      const std::vector<DeviceHealth> healths = session.watch().finish(processes);
      for (std::size_t i = 0; i < healths.size(); ++i) results.job.members[i].health = healths[i];
      if (options.reports_memory) results.memory = session.memory();
    }
    keep();
  });
  if (!results.failure.empty()) {
    output.complain(results.failure);
    return is_late ? timed_out : run_failed;
  }
  double reader_left = printer.wants_more() ? 0.0 : 1.0;
  processes.maximum({&reader_left, 1});
  const bool was_to_end = options.cycles == 0 && !results.rows.empty();  // by nothing else
  if (results.interrupted && reader_left == 0.0 && !was_to_end) {
    output.complain(fmt::format("interrupted after {} row(s)", results.rows.size()));
    return was_interrupted;
  }
  return judge(results, output);
}

/// What every rank sees, those together that see the same, and how they reach one another.
std::string topology_of_all(const Session& session) {
  const std::string mine = to_string(session.topology());
  if (session.job().mode == Mode::single_process) return mine;
  const std::vector<std::string> all = session.processes().gather(mine);
  std::string text = format_members(session.job());
  for (std::size_t first = 0; first < all.size(); ++first) {
    if (std::find(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first), all[first]) !=
        all.begin() + static_cast<std::ptrdiff_t>(first)) {
      continue;
    }
    std::vector<std::size_t> ranks;
    for (std::size_t rank = first; rank < all.size(); ++rank) {
      if (all[rank] == all[first]) ranks.push_back(rank);
    }
    text += fmt::format("\nseen by {} {}:\n{}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "),
                        all[first]);
  }
  return text + "\nbetween ranks:\n" + session.members().communicator->explain();
}

/// Ranks that were told different things would wait for one another. Each may be told files of its own.
void require_same_arguments(std::span<char* const> arguments, Processes& processes) {
  constexpr std::string_view long_names[] = {"--output_file", "--csv", "--baseline"};
  std::string mine;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    const std::string_view name = argument.substr(0, argument.find('='));
    const bool is_file = std::ranges::find(long_names, name) != std::end(long_names);
    if (argument == "-J" || (is_file && name == argument)) {
      ++i;
    } else if (!is_file && !argument.starts_with("-J")) {
      mine += fmt::format(" {}", argument);
    }
  }
  const std::vector<std::string> all = processes.gather(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw UsageError(
        fmt::format("rank {} was started with the arguments '{}', expected those of rank 0, '{}'", rank,
                    all[rank].empty() ? "" : all[rank].substr(1), all[0].empty() ? "" : all[0].substr(1)));
  }
}

int run(int argc, char** argv, Processes& processes, const Output& output) {
  require_same_arguments({argv, static_cast<std::size_t>(argc)}, processes);
  const Options options =
      parse_options(argc, argv, processes.are_ranks() ? Mode::ranks : Mode::single_process);
  switch (options.command) {
    case Command::help:
      output.print(options.help);
      return all_right;
    case Command::topo:
      output.print(topology_of_all(Session(options, processes)));
      return all_right;
    case Command::explain:
      output.print(explain_operation(options, processes));
      return all_right;
    case Command::tensors:
      output.print(format_tensor_lines(options.tensors.front()));
      return all_right;
    case Command::measure:
      break;
  }
  return measure(options, {argv, argv + argc}, processes, output);
}

std::unique_ptr<Processes> make_processes(const LaunchedAs& launched) {
  switch (launched.meeting) {
    case Meeting::mpi:
      return make_mpi_processes(launched);
    case Meeting::tcp:
      return make_tcp_processes();
    case Meeting::none:
      break;
  }
  return make_single_process();
}

int run_alone_or_together(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has seen enough is found where something is printed
  const LaunchedAs launched = launched_as([](const char* name) { return std::getenv(name); });
  const Output output(launched.rank.value_or(0) == 0);
  // Ranks that do not find one another have each seen something else.
  const Output joining(output.speaks() || launched.meeting == Meeting::tcp);
  return guarded(joining, [&] {
    const std::unique_ptr<Processes> processes = make_processes(launched);
    return guarded(output, [&] {
      int status = run_failed;
      processes->together([&] { status = run(argc, argv, *processes, output); });
      if (output.is_broken()) {
        output.complain("the standard output could not be written");
        status = run_failed;
      }
      return status;
    });
  });
}

}  // namespace
}  // namespace tutti::perf

int main(int argc, char** argv) {
  std::fesetenv(FE_DFL_ENV);  // what is checked is arithmetic: however this program was built
  return tutti::perf::run_alone_or_together(argc, argv);
}
