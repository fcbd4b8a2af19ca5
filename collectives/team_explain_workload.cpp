// SPDX-License-Identifier: Apache-2.0
#include "collectives/arguments.hpp"
#include "collectives/team_explain.hpp"
#include "collectives/team_route.hpp"
#include "transport/team/windows.hpp"

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

using transport::ranks::RoundPart;
using transport::ranks::RoundPlan;

/// A device has less memory, and a plan of much more would take minutes.
constexpr std::size_t most_bytes = std::size_t{1} << 38U;

void check(const Arguments& arguments, const CommunicatorWorkload& workload) {
  arguments.tensor_dtypes(workload.tensor_dtypes.size(), workload.tensor_bytes.size());
  arguments.tensor_bytes(workload.tensor_bytes.size(), workload.collective);
  if (workload.tensor_bytes.empty() && workload.bytes > most_bytes)
    arguments.fail("bytes is {}, expected {} at most", workload.bytes, most_bytes);
  std::size_t left = most_bytes;
  for (const std::size_t bytes : workload.tensor_bytes) {
    if (bytes > left) arguments.fail("tensor_bytes are more in all than {}, expected no more", most_bytes);
    left -= bytes;
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

TeamRequest request_of(const Arguments& arguments, const CommunicatorWorkload& workload,
                       std::size_t members) {
  TeamRequest request;
  if (!is_known(workload.collective) || !moves_tensors(workload.collective)) {
    arguments.fail("collective is {}, expected one that moves tensors",
                   is_known(workload.collective) ? std::string(name_of(workload.collective))
                                                 : std::to_string(static_cast<int>(workload.collective)));
  }
  request.collective = workload.collective;
  if (traits_of(request.collective).has_root) {
    if (workload.root < 0 || static_cast<std::size_t>(workload.root) >= members)
      arguments.fail("root is {}, expected 0 to {}", workload.root, members - 1);
    request.root = static_cast<std::size_t>(workload.root);
  }
  if (traits_of(request.collective).has_own_sizes) {
    if (workload.dim != 0 && workload.dim != 1) arguments.fail("dim is {}, expected 0 or 1", workload.dim);
    add_cut(request, workload, members);
    return request;
  }
  std::vector<std::size_t> sizes = workload.tensor_bytes;
  if (sizes.empty()) sizes = {workload.bytes};
  for (std::size_t t = 0; t < sizes.size(); ++t) {
    const DType dtype = workload.tensor_dtypes.empty() ? workload.dtype : workload.tensor_dtypes[t];
    std::uint64_t elements = sizes[t] / size_of(dtype);
    if (request.collective == Collective::all_gather) elements /= members;
    if (request.collective == Collective::reduce_scatter_add) elements -= elements % members;
    request.columns.push_back({elements, dtype});
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
    if (added > 0 && part.input_count == 1) {
      add(fmt::format("{} keeps", takes), added);
    } else if (added > 0) {
      add(fmt::format("{} adds {} {} inputs", takes, part.input_count, name_of(part.dtype)), added);
    }
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

std::string explain_nccl(const TeamContext& context, const TeamRequest& request, const TeamRoute& route) {
  const std::size_t members = context.team.member_count();
  const transport::ranks::CallShape shape = request.shape(members);
  std::string reason;
  if (context.team.settings().transport == TransportKind::nccl) {
    reason = "asked for";
  } else if (context.team.spans_hosts()) {
    reason = "what reaches from the GPUs of one host to those of another";
  } else {
    reason = fmt::format("faster for {} bytes; by rounds it would be so: {}", shape.payload,
                         reason_for(shape, means_of(context), route.rounds));
  }
  std::string text =
      fmt::format("transport: nccl\nalgorithm: {}\nbecause: it is {}\n", name_of(request.collective), reason);
  const bool is_cut = traits_of(request.collective).has_own_sizes;
  for (std::size_t member = context.team.first_local();
       member < context.team.first_local() + context.devices.size(); ++member) {
    if (is_cut) {
      const bool sends = (member == request.root) == (request.collective == Collective::scatter);
      const std::uint64_t bytes = member == request.root ? shape.payload
                                                         : request.lengths[member] * request.geometry.rows *
                                                               request.geometry.slab_bytes;
      text +=
          fmt::format("step: member {} {} by NCCL, {} bytes\n", member, sends ? "sends" : "receives", bytes);
    } else {
      text += fmt::format("step: member {} takes part in {} of NCCL's, {} bytes\n", member,
                          request.columns.size() == 1 ? "a collective"
                                                      : fmt::format("{} collectives", request.columns.size()),
                          shape.payload);
    }
  }
  return text;
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
  check(arguments, workload);
  const TeamRequest request = request_of(arguments, workload, members);
  require_transport(arguments, context, request);
  const TeamRoute route = choose_route(context, request, false);
  return route.is_by_nccl() ? explain_nccl(context, request, route) : explain_rounds(context, request, route);
}

}  // namespace tutti::collectives
