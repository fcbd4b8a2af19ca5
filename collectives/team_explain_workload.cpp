#include "collectives/arguments.hpp"
#include "collectives/team_explain.hpp"
#include "collectives/team_route.hpp"
#include "transport/ranks/windows.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace tutti::collectives {
namespace {

using transport::ranks::Operation;
using transport::ranks::RoundPart;
using transport::ranks::RoundPlan;

Operation operation_of(Collective collective) noexcept {
  switch (collective) {
    case Collective::broadcast:
      return Operation::broadcast;
    case Collective::broadcast_coalesced:
      return Operation::broadcast_coalesced;
    case Collective::reduce_add:
      return Operation::reduce_add;
    case Collective::reduce_add_coalesced:
      return Operation::reduce_add_coalesced;
    case Collective::scatter:
      return Operation::scatter;
    case Collective::gather:
      return Operation::gather;
    case Collective::all_reduce_add:
      return Operation::all_reduce_add;
    case Collective::all_reduce_add_coalesced:
      return Operation::all_reduce_add_coalesced;
    case Collective::all_gather:
      return Operation::all_gather;
    case Collective::reduce_scatter_add:
      break;
  }
  return Operation::reduce_scatter_add;
}

bool takes_lists(Collective collective) noexcept {
  return collective == Collective::broadcast_coalesced || collective == Collective::reduce_add_coalesced ||
         collective == Collective::all_reduce_add_coalesced;
}

void check(const Arguments& arguments, const CommunicatorWorkload& workload, std::size_t members) {
  if (workload.root < 0 || static_cast<std::size_t>(workload.root) >= members)
    arguments.fail("workload.root is {}, expected 0 to {}", workload.root, members - 1);
  if (workload.dim != 0 && workload.dim != 1)
    arguments.fail("workload.dim is {}, expected 0 or 1", workload.dim);
  if (!workload.tensor_bytes.empty() && !takes_lists(workload.collective)) {
    arguments.fail("workload.tensor_bytes has {} entries, expected none: {} takes one tensor of each member",
                   workload.tensor_bytes.size(), name_of(workload.collective));
  }
}

/// A tensor of one row, or of many that are cut along their lengths, as `scatter` cuts them without sizes.
void add_cut(TeamRequest& request, const CommunicatorWorkload& workload, std::size_t members) {
  constexpr std::uint64_t rows_along_dimension_1 = 256;
  const std::uint64_t width = size_of(workload.dtype);
  request.geometry = {.rows = workload.dim == 0 ? 1 : rows_along_dimension_1, .slab_bytes = width};
  request.columns = {{.elements = request.geometry.rows, .dtype = workload.dtype}};
  std::uint64_t left = workload.bytes / (width * request.geometry.rows);
  const std::uint64_t most = (left + members - 1) / members;
  for (std::size_t member = 0; member < members; ++member) {
    request.lengths.push_back(std::min(most, left));
    left -= request.lengths.back();
  }
}

TeamRequest request_of(const CommunicatorWorkload& workload, std::size_t members) {
  TeamRequest request;
  request.operation = operation_of(workload.collective);
  const transport::RanksPattern pattern = request.pattern();
  const bool has_root = pattern != transport::RanksPattern::all_reduce &&
                        pattern != transport::RanksPattern::all_gather &&
                        pattern != transport::RanksPattern::reduce_scatter;
  if (has_root) request.root = static_cast<std::size_t>(workload.root);
  if (has_own_numbers(request.operation)) {
    add_cut(request, workload, members);
    return request;
  }
  const std::uint64_t width = size_of(workload.dtype);
  std::vector<std::size_t> sizes = workload.tensor_bytes;
  if (sizes.empty()) sizes = {workload.bytes};
  for (const std::size_t bytes : sizes) {
    std::uint64_t elements = bytes / width;
    if (pattern == transport::RanksPattern::all_gather) elements /= members;
    if (pattern == transport::RanksPattern::reduce_scatter) elements -= elements % members;
    request.columns.push_back({elements, workload.dtype});
  }
  return request;
}

std::string members_named(std::span<const std::uint32_t> members) {
  return fmt::format("{} {}", members.size() == 1 ? "member" : "members", fmt::join(members, ", "));
}

/// What members do in a plan's rounds. What a member does again is added up.
class Steps {
 public:
  void add(std::size_t member, const RoundPart& part) {
    if (!part.given.empty())
      add(fmt::format("member {} gives its own to {}", member, members_named(part.readers)), 0);
    const std::uint64_t put = bytes_of(part.puts);
    if (put > 0) add(fmt::format("member {} puts for {}", member, members_named(part.readers)), put);
    const std::string takes = part.sources.empty() ? fmt::format("member {}", member)
                                                   : fmt::format("member {} takes from {} and", member,
                                                                 members_named(part.sources));
    std::uint64_t added = 0;
    for (const backend::OrderedSumSegment& segment : part.sums.segments)
      added += segment.count * size_of(part.dtype);
    if (added > 0)
      add(fmt::format("{} adds {} {} inputs", takes, part.input_count, name_of(part.dtype)), added);
    if (const std::uint64_t copied = bytes_of(part.copies); copied > 0)
      add(fmt::format("{} keeps", takes), copied);
  }

  [[nodiscard]] std::string text() const {
    std::string result;
    for (const Step& step : steps_) {
      result += "step: " + step.what;
      if (step.bytes > 0) result += fmt::format(", {} bytes", step.bytes);
      if (step.rounds > 1) result += fmt::format(" in {} rounds", step.rounds);
      result += '\n';
    }
    return result;
  }

 private:
  struct Step {
    std::string what;
    std::uint64_t bytes = 0;
    std::size_t rounds = 0;
  };

  static std::uint64_t bytes_of(const RoundPart::Table<backend::FanOutSegment>& table) {
    std::uint64_t bytes = 0;
    for (const backend::FanOutSegment& segment : table.segments) bytes += segment.row_bytes * segment.rows;
    return bytes;
  }
  void add(const std::string& what, std::uint64_t bytes) {
    auto found = std::ranges::find(steps_, what, &Step::what);
    if (found == steps_.end()) found = steps_.insert(found, {what});
    found->bytes += bytes;
    ++found->rounds;
  }

  std::vector<Step> steps_;
};

std::string explain_nccl(const TeamContext& context, const TeamRequest& request) {
  std::string_view reason = "faster for so many bytes";
  if (context.team.settings().transport == TransportKind::nccl) {
    reason = "asked for";
  } else if (context.team.spans_hosts()) {
    reason = "what reaches from the GPUs of one host to those of another";
  }
  return fmt::format("transport: nccl\nalgorithm: {}\nbecause: it is {}\n", name_of(request.operation),
                     reason);
}

std::string explain_rounds(const TeamContext& context, const TeamRequest& request, const TeamRoute& route) {
  const RoundPlan plan = make_plan(context, request, route.rounds);
  std::string text =
      fmt::format("transport: {}\nalgorithm: {}\n", plan.summary.transport, plan.summary.algorithm);
  const auto because = [&text](const std::string& reason) { text += fmt::format("because: {}\n", reason); };
  if (plan.round_count == 0) {
    because("nothing goes from member to member");
  } else {
    because(reason_for(request.shape(context.team.member_count()), means_of(context), route.rounds));
    if (plan.protocol != route.rounds.protocol) because("through slots after all: the pieces do not fit");
  }
  const transport::ranks::Windows& windows = context.team.windows();
  if (windows.transport() != TransportKind::p2p) because("p2p not taken: " + windows.reason());
  because("nccl not taken: " + to_words(route.nccl, context, request));
  Steps steps;
  for (std::size_t own = 0; own < plan.parts.size(); ++own) {
    for (const RoundPart& part : plan.parts[own]) steps.add(context.team.first_local() + own, part);
  }
  return text + steps.text();
}

}  // namespace

std::string explain(const TeamContext& context, const CommunicatorWorkload& workload) {
  const Arguments arguments(context.runtime, "Communicator::explain");
  const std::size_t members = context.team.member_count();
  check(arguments, workload, members);
  const TeamRequest request = request_of(workload, members);
  require_transport(arguments, context, request);
  const TeamRoute route = choose_route(context, request, false);
  return route.is_by_nccl() ? explain_nccl(context, request) : explain_rounds(context, request, route);
}

}  // namespace tutti::collectives
