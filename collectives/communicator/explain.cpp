// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/explain.hpp"

#include "collectives/call/workload.hpp"
#include "collectives/communicator/compiled_steps.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/select/select.hpp"
#include "transport/team/windows/windows.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

namespace tutti::collectives {

namespace {

/// Describes the calls that go by low-latency rounds.
std::string explain_low_latency(std::size_t members, const transport::team::TeamCapabilities& capabilities) {
  const auto [least, most] = transport::team::low_latency_limits(members, capabilities);
  const std::string limit = least == most
                                ? fmt::format("{} bytes", least)
                                : fmt::format("{} to {} bytes, depending on the operation", least, most);
  return fmt::format("low-latency rounds, in {} lines, where nobody sends or receives more than {}\n",
                     capabilities.layout.lines == backend::TeamLines::wide ? "wide" : "narrow", limit);
}

/// Describes the plan of a call in which own inputs lie in the outputs that need them, except in exchanges.
std::string explain_plan(const TeamContext& context, const Request& request, std::size_t root) {
  Request in_place = request;
  leave_own_copies_alone(in_place, context.team().membership().member_count(), root,
                         [](std::size_t, std::size_t) { return true; });
  return transport::to_text(context.make_plan(in_place, root));
}

}  // namespace

std::string explain(const TeamContext& context) {
  const transport::team::Windows& windows = context.team().windows();
  const bool are_on_devices = windows.transport() == TransportKind::p2p;
  const bool is_direct = context.capabilities().most_exposed != 0;
  std::string text = fmt::format("{} members in {} ranks\n", context.team().membership().member_count(),
                                 context.team().membership().rank_count());
  if (context.team().membership().spans_hosts())
    text += context.team().membership().hosts_in_words(context.team().host_proxy()->network().name()) + "\n";
  text += fmt::format("rounds: {}, {} slots of {} bytes per member{}\n",
                      are_on_devices ? "p2p, in the members' device memory" : "staged, in shared host memory",
                      backend::TeamWindowLayout::slot_count, windows.layout().slot_bytes,
                      are_on_devices ? "" : fmt::format("; p2p not taken: {}", windows.reason()));
  if (are_on_devices)
    text += explain_low_latency(context.team().membership().member_count(), context.capabilities());
  if (is_direct) {
    text +=
        fmt::format("beyond that, operands of which members exchange more than {} bytes are read in place\n",
                    transport::round_tuning_of(context.runtime().backend().kind()).direct_from);
  }
  if (const std::string stand_ins = context.stand_ins_in_words(); !stand_ins.empty())
    text += stand_ins + "\n";
  if (context.capabilities().nccl == nullptr)
    return text + fmt::format("nccl not taken: {}\n", context.capabilities().nccl_refusal);
  const char* const no_sums = context.team().settings().determinism == Determinism::bitwise
                                  ? ", but no sums: determinism is bitwise"
                                  : "";
  if (context.team().membership().spans_hosts() || context.team().settings().transport == TransportKind::nccl)
    return text + fmt::format("nccl: all calls that it can carry{}\n", no_sums);
  if (context.team().settings().most_multiprocessors != backend::all_multiprocessors)
    return text + "nccl not taken: its multiprocessors cannot be limited\n";
  text += fmt::format("nccl: the rest{}, where it can\n", no_sums);
  constexpr std::uint64_t no_limit = ~std::uint64_t{0};
  for (std::size_t value = 0; value < collective_count; ++value) {
    const auto collective = static_cast<Collective>(value);
    if (!moves_tensors(collective)) continue;
    const std::string_view name = name_of(collective);
    const transport::RoundZones zones =
        transport::round_zones_of(collective, context.team().membership().member_count(), false);
    if (zones.rounds_to == no_limit) {
      text += fmt::format("  {}: always by rounds\n", name);
      continue;
    }
    if (is_direct && zones.direct_from == 0 && zones.direct_to == no_limit) {
      text += fmt::format("  {}: by rounds, but through slots up to {} bytes of one tensor\n", name,
                          zones.rounds_to);
      continue;
    }
    text += fmt::format("  {} of one tensor: up to {} bytes by rounds", name, zones.rounds_to);
    if (is_direct && zones.direct_from < zones.direct_to) {
      text += fmt::format(", from {} bytes", zones.direct_from);
      if (zones.direct_to != no_limit) text += fmt::format(" to {}", zones.direct_to);
      text += " too";
    }
    if (windows.layout().lines == backend::TeamLines::wide) {
      const std::uint64_t to =
          transport::wide_lines_beat_nccl_to(collective, context.team().membership().member_count(), false);
      text += to == no_limit ? ", and what goes with low latency"
                             : fmt::format(", and to {} bytes what goes with low latency", to);
    }
    text += '\n';
  }
  return text;
}

std::string explain(const TeamContext& context, const Workload& workload) {
  const Arguments arguments(context.runtime(), "Communicator::explain");
  const std::size_t members = context.team().membership().member_count();
  const Request request = request_of(arguments, workload, members);
  std::size_t root = 0;
  if (traits_of(workload.collective).has_root) {
    const int index = workload.root.index();
    if (index < 0 || static_cast<std::size_t>(index) >= members)
      arguments.fail("root is {}, expected 0 to {}", index, members - 1);
    root = static_cast<std::size_t>(index);
  }
  if (!traits_of(workload.collective).reduces || request.reduced().kind != ReduceKind::compiled)
    return explain_plan(context, request, root);
  context.require_unbounded(arguments);
  std::string text;
  for (const CompiledStep& step : compiled_steps(request, members, root))
    text += fmt::format("step: {}\n{}", in_words(step),
                        step.kind == CompiledStep::Kind::spread
                            ? explain_plan(context, step.request, root)
                            : transport::to_text(context.make_plan(step.request, root)));
  return text;
}

}  // namespace tutti::collectives
