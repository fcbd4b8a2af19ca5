// SPDX-License-Identifier: Apache-2.0
#include "perf/report/show.hpp"

#include "perf/options/cases.hpp"
#include "perf/processes/failure.hpp"
#include "perf/report/table.hpp"
#include "perf/session/session.hpp"
#include "tutti/communicator.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

/// What `workload` says of the tensors, of one process's or of a communicator's call.
template <class Workload>
void describe_tensors(Workload& workload, const Options& options) {
  workload.bytes = options.explain_bytes;
  workload.dtype = options.dtypes.front();
  workload.reduce_kind = options.reductions.front();
  if (!options.operations.front()->is_coalesced()) return;
  Case what;
  what.bytes = options.explain_bytes;
  if (!options.tensors.empty()) what.tensors = options.tensors.front();
  what.dtype = options.dtypes.front();
  for (const TensorSpec& spec : payload_tensors(what, true)) {
    workload.tensor_bytes.push_back(Layout(*spec.dtype, spec.sizes).nbytes());
    workload.tensor_dtypes.push_back(*spec.dtype);
  }
}

/// Of the ranks of one communicator, the first group's if there are several: what rank 0 tells, and of the
/// others what their members do.
std::string explain_together(const Communicator& communicator, const Workload& workload, const Job& job,
                             Processes& processes) {
  const std::vector<std::string> all = processes.gather(communicator.explain(workload));
  std::string text = all.front();
  for (std::size_t rank = 1; rank < static_cast<std::size_t>(job.ranks_of_group()); ++rank) {
    std::istringstream lines(all[rank]);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("step: ")) text += line + "\n";
    }
  }
  if (job.groups > 1)
    text +=
        fmt::format("groups: {} of {} ranks, this is the first one's\n", job.groups, job.ranks_of_group());
  return text;
}

std::string explained_by(const Session& session, const Options& options, Processes& processes) {
  const Operation& operation = *options.operations.front();
  if (const Communicator* const communicator = session.members_of(operation).communicator) {
    Workload workload{
        .collective = *operation.collective(), .root = options.root.value_or(0), .dim = options.dims.front()};
    describe_tensors(workload, options);
    return explain_together(*communicator, workload, session.job(), processes);
  }
  Workload workload{.collective = *operation.collective(),
                    .devices = session.members().local,
                    .root = options.root.value_or(0),
                    .dim = options.dims.front(),
                    .options = options.collective};
  describe_tensors(workload, options);
  return explain(workload);
}

}  // namespace

std::string show_topology(const Options& options, Processes& processes) {
  const Session session(options, processes);
  const std::string mine = to_string(session.topology());
  if (session.job().mode == Mode::single_process) return mine;
  const std::vector<std::string> all = processes.gather(mine);
  std::vector<std::pair<std::string, std::vector<std::size_t>>> seen;  // by which ranks
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    auto known = std::ranges::find(seen, all[rank], [](const auto& topology) { return topology.first; });
    if (known == seen.end()) known = seen.insert(seen.end(), {all[rank], {}});
    known->second.push_back(rank);
  }
  std::string text = format_members(session.job());
  for (const auto& [topology, ranks] : seen)
    text += fmt::format("\nseen by {} {}:\n{}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "),
                        topology);
  return text + "\nbetween ranks:\n" + session.members().communicator->explain();
}

std::string explain_operation(const Options& options, Processes& processes) {
  const Session session(options, processes);
  const std::string refusal = session.refusal(*options.operations.front());
  if (!refusal.empty()) throw UsageError(refusal);
  Case what;
  what.bytes = options.tensors.empty() ? options.explain_bytes : 0;
  what.dtype = options.dtypes.front();
  what.members = session.members();
  if (const std::string reason = too_small(*options.operations.front(), what); !reason.empty())
    throw UsageError("explain: " + reason);
  try {
    return explained_by(session, options, processes);
  } catch (const Error& error) {
    // What cannot be called, or not by the transport that was asked for.
    if (error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported)
      throw UsageError(error.what());
    throw;
  }
}

}  // namespace tutti::perf
