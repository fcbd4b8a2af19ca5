// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/arguments.hpp"
#include "collectives/call/disjoint.hpp"
#include "collectives/communicator/communicator_impl.hpp"
#include "collectives/communicator/team_call.hpp"
#include "collectives/training/given_alike.hpp"
#include "device/runtime.hpp"
#include "stream/stream_access.hpp"
#include "tutti/data_parallel.hpp"
#include "tutti/stream.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tutti {

namespace {

using collectives::Arguments;
using collectives::GivenAlike;
using collectives::Named;

bool is_any_captured(StreamList streams) {
  Runtime& runtime = Runtime::get();
  return std::ranges::any_of(streams, [&](const Stream& stream) {
    return runtime.backend().is_capturing(StreamAccess::ref(stream));
  });
}

/// Has all ranks agree, unless the call is being captured, in which no host waits for another.
void require_alike(Communicator& communicator, StreamList streams,
                   const std::function<GivenAlike(const Arguments&)>& describe) {
  const Arguments arguments(Runtime::get(), "replicate");
  if (is_any_captured(streams)) {
    static_cast<void>(describe(arguments));
    return;
  }
  collectives::require_alike(communicator, "replicate", collectives::InCapture::uncompared,
                             [&] { return describe(arguments); });
}

GivenAlike described(const Arguments& arguments, const Communicator& communicator, const Named& parameters,
                     int root) {
  if (root < 0 || root >= communicator.member_count())
    arguments.fail("root is {}, expected 0 to {}", root, communicator.member_count() - 1);
  for (std::size_t t = 0; t < parameters.tensors.size(); ++t)
    arguments.usable(parameters.tensors[t], parameters.name(t));
  require_disjoint(arguments, {}, std::span(&parameters, 1), collectives::InPlace::forbidden);
  GivenAlike given;
  given.add("root", std::to_string(root));
  given.add_tensors(fmt::format("{}", parameters.row < 0 ? collectives::Name("parameters")
                                                         : collectives::Name("parameters", 0)),
                    parameters.tensors);
  return given;
}

}  // namespace

std::vector<std::vector<Tensor>> replicate(Communicator& communicator, TensorList parameters, int root,
                                           StreamList streams) {
  const std::vector<Device>& devices = communicator.devices();
  const int local_root = root - communicator.first_member();
  const bool has_root = local_root >= 0 && static_cast<std::size_t>(local_root) < devices.size();
  require_alike(communicator, streams, [&](const Arguments& arguments) {
    GivenAlike given =
        described(arguments, communicator, {.argument = "parameters", .tensors = parameters}, root);
    arguments.streams(streams, devices, "local member");
    for (std::size_t t = 0; t < parameters.size() && has_root; ++t) {
      const Device home = devices[static_cast<std::size_t>(local_root)];
      if (parameters[t].device() == home) continue;
      arguments.fail("{} is on {}, expected {}, the device of the root, member {}",
                     collectives::Name("parameters", t), to_string(parameters[t].device()), to_string(home),
                     root);
    }
    return given;
  });

  std::vector<std::vector<Tensor>> replicas(devices.size());
  {
    // Memory is made for the streams that fill it, which are current in the call's turn.
    collectives::TeamCall call(CommunicatorAccess::context(communicator), coalesced(Collective::broadcast),
                               streams);
    call.join_capture();
    for (std::size_t local = 0; local < devices.size(); ++local) {
      if (has_root && local == static_cast<std::size_t>(local_root)) {
        replicas[local].assign(parameters.begin(), parameters.end());
        continue;
      }
      for (const Tensor& parameter : parameters)
        replicas[local].push_back(empty_like(parameter, {.device = devices[local]}));
    }
  }
  communicator.broadcast_coalesced(replicas, root, streams);
  return replicas;
}

void replicate(Communicator& communicator, TensorLists parameters, int root, StreamList streams) {
  require_alike(communicator, streams, [&](const Arguments& arguments) {
    if (parameters.size() != communicator.devices().size()) {
      arguments.fail("parameters has {} entries, expected one per local member, {}", parameters.size(),
                     communicator.devices().size());
    }
    for (std::size_t local = 1; local < parameters.size(); ++local) {
      static_cast<void>(described(
          arguments, communicator,
          {.argument = "parameters", .tensors = parameters[local], .row = static_cast<int>(local)}, root));
    }
    return described(arguments, communicator, {.argument = "parameters", .tensors = parameters[0], .row = 0},
                     root);
  });
  communicator.broadcast_coalesced(parameters, root, streams);
}

}  // namespace tutti
