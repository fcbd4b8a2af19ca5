// SPDX-License-Identifier: Apache-2.0
#include "perf/measure_and_report.hpp"
#include "perf/operations/tensor_lists.hpp"
#include "perf/options/options.hpp"
#include "perf/processes/failure.hpp"
#include "perf/processes/processes.hpp"
#include "perf/report/output.hpp"
#include "perf/report/show.hpp"

#include <cfenv>
#include <cstdlib>
#include <memory>

namespace tutti::perf {
namespace {

int run(int argc, char** argv, Processes& processes, const Output& output) {
  const Options options =
      parse_options(argc, argv, processes.are_ranks() ? Mode::ranks : Mode::single_process);
  if (options.command == Command::measure)
    return measure_and_report(options, {argv, argv + argc}, processes, output);
  if (options.command == Command::help) output.print(options.help);
  if (options.command == Command::topo) output.print(show_topology(options, processes));
  if (options.command == Command::explain) output.print(explain_operation(options, processes));
  if (options.command == Command::tensors) output.print(format_tensor_lines(options.tensors.front()));
  return all_right;
}

std::unique_ptr<Processes> make_processes(const LaunchedAs& launched) {
  if (launched.meeting == Meeting::mpi) return make_mpi_processes(launched);
  return launched.meeting == Meeting::tcp ? make_tcp_processes() : make_single_process();
}

int run_alone_or_together(int argc, char** argv) {
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
