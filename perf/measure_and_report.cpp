// SPDX-License-Identifier: Apache-2.0
#include "perf/measure_and_report.hpp"

#include "perf/measure/driver.hpp"
#include "perf/peers/peer.hpp"
#include "perf/processes/failure.hpp"
#include "perf/processes/interrupt.hpp"
#include "perf/report/baseline.hpp"
#include "perf/report/files.hpp"
#include "perf/report/json.hpp"
#include "perf/report/table.hpp"
#include "perf/session/provenance.hpp"
#include "perf/session/session.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

std::unique_ptr<Peer> make_peer(const Options& options, const Session& session) {
  if (options.peer == PeerChoice::none) return nullptr;
  if (options.peer == PeerChoice::nccl) return make_nccl_peer(session, options.peer_mode);
  if (!session.processes().have_mpi())
    throw UsageError("--peer mpi measures MPI's own collectives: start the ranks with mpirun");
  return make_mpi_peer(session);
}

void note_peer(const Peer& peer, Results& results) {
  results.peer = peer.name_and_version();
  for (const PeerMode& mode : peer.modes()) {
    if (!mode.name.empty()) results.peer_modes.push_back(fmt::format("{}: {}", mode.name, mode.about));
  }
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

void complain_of_wrong(const Results& results, const Output& output) {
  if (results.wrong() != 0) output.complain(fmt::format("wrong elements: {}", results.who_is_wrong()));
}

/// Says what is wrong with a run that has come to its end.
ExitStatus judge(const Results& results, const Output& output) {
  const auto unfit = std::ranges::find(results.skipped, Skipped::Cause::out_of_memory, &Skipped::cause);
  if (unfit != results.skipped.end()) {
    output.complain(fmt::format("{} case(s) not measured for lack of memory, first {}: {}",
                                results.out_of_memory(), unfit->what, unfit->reason));
  } else if (results.rows.empty() && !results.interrupted) {
    throw UsageError(fmt::format("nothing could be measured: {}",
                                 results.skipped.empty() ? "no case" : results.skipped.front().reason));
  }
  if (results.baseline) {
    if (const std::string complaint = complaint_of_baseline(results); !complaint.empty())
      output.complain(complaint);
  }
  complain_of_wrong(results, output);
  return status_of(results);
}

}  // namespace

int measure_and_report(Options options, const std::vector<std::string>& command_line, Processes& processes,
                       const Output& output) {
  Session session(options, processes);
  if (session.members().count < 2 && options.operations == std::vector{&copy_operation()}) {
    throw UsageError("sendrecv needs two devices or more");
  }
  // What fails here must do so on all ranks at once: the ends of peers and communicators wait for one
  // another.
  std::unique_ptr<Peer> peer;
  std::optional<ResultFile> json_file;
  Results results;
  session.together([&] {
    peer = make_peer(options, session);
    json_file.emplace("-J", output.speaks() ? options.json_file : "");
    if (output.speaks() && !options.baseline_file.empty()) results.baseline.emplace(options);
  });
  results.topology = session.topology();
  results.provenance = find_provenance(results.topology.backend);
  results.job = session.job();
  results.device_count = session.members().count;
  results.devices_shown = session.devices_shown();
  if (peer) note_peer(*peer, results);

  session.watch().start();
  watch_interrupts();
  const Columns columns(options, peer != nullptr);
  output.print(format_header(options, results));
  TablePrinter printer(options, output, columns);
  const auto keep = [&] {
    output.print(format_footer(results));
    if (json_file->is_wanted()) json_file->write(to_json(options, results, command_line));
  };
  bool is_late = false;
  try {
    const LastAct last_act(processes, [&](const Failure& failure) {
      results.interrupted = failure.status == was_interrupted;
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
    }
    keep();
  });
  if (!results.failure.empty()) {
    output.complain(results.failure);
    return is_late ? timed_out : run_failed;
  }
  const bool was_to_end = options.cycles == 0 && !results.rows.empty();  // by nothing else
  if (results.interrupted && !was_to_end) {
    output.complain(fmt::format("interrupted after {} row(s)", results.rows.size()));
    complain_of_wrong(results, output);
    return was_interrupted;
  }
  return judge(results, output);
}

}  // namespace tutti::perf
