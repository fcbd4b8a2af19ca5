// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl/nccl.hpp"

#include "transport/nccl/calls.hpp"
#include "transport/nccl/clique.hpp"
#include "transport/nccl/connection.hpp"
#include "transport/nccl/library.hpp"
#include "transport/probes/launch_probe.hpp"
#include "tutti/error.hpp"

#include <variant>

namespace tutti::transport::nccl {
std::string absence(Runtime& runtime) {
  return runtime.backend().kind() == BackendKind::cuda ? "" : "the devices are virtual";
}

Availability availability(Runtime& runtime) {
  if (const std::string absent = absence(runtime); !absent.empty())
    return {false, "not available: " + absent};
  const Library& library = Library::get();
  return {library.usable(), library.detail()};
}

std::string refusal(Runtime& runtime, const Problem& problem) {
  if (const Availability known = availability(runtime); !known.available) return known.detail;
  const auto calls = calls_for(problem);
  const auto* refused = std::get_if<Refusal>(&calls);
  if (refused != nullptr) return refused->reason;
  const std::vector<int>& devices = std::get<CallList>(calls).devices;
  if (devices.size() > 1 && runtime.part<LaunchProbe>().find(devices) != Launching::from_one_thread)
    return std::string(launches_block);
  return runtime.part<Cliques>().refusal(devices);
}

Plan lower(Runtime& runtime, const Problem& problem) {
  const auto calls = calls_for(problem);
  if (const auto* const refused = std::get_if<Refusal>(&calls))
    throw Error(ErrorCode::internal, "nccl::lower: refused before: " + refused->reason);
  return plan_calls(problem, runtime.part<Cliques>().of(std::get<CallList>(calls).devices));
}

}  // namespace tutti::transport::nccl
