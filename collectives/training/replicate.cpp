// SPDX-License-Identifier: Apache-2.0
#include "collectives/arguments.hpp"
#include "collectives/communicator_impl.hpp"
#include "collectives/team_call.hpp"
#include "runtime.hpp"
#include "tutti/data_parallel.hpp"

#include <cstddef>
#include <vector>

namespace tutti {

std::vector<std::vector<Tensor>> replicate(Communicator& communicator, TensorList parameters, int root,
                                           StreamList streams) {
  const collectives::Arguments arguments(Runtime::get(), "replicate");
  const std::vector<Device>& devices = communicator.devices();
  if (root < 0 || root >= communicator.member_count())
    arguments.fail("root is {}, expected 0 to {}", root, communicator.member_count() - 1);
  arguments.streams(streams, devices, "local member");
  const int local_root = root - communicator.first_member();
  const bool has_root = local_root >= 0 && static_cast<std::size_t>(local_root) < devices.size();
  for (std::size_t t = 0; t < parameters.size(); ++t) {
    const collectives::Name name("parameters", t);
    arguments.usable(parameters[t], name);
    if (has_root && parameters[t].device() != devices[static_cast<std::size_t>(local_root)]) {
      arguments.fail("{} is on {}, expected {}, the device of the root, member {}", name,
                     to_string(parameters[t].device()),
                     to_string(devices[static_cast<std::size_t>(local_root)]), root);
    }
  }

  std::vector<std::vector<Tensor>> replicas(devices.size());
  {
    // Memory is made for the streams that fill it, which are current in the call's turn.
    collectives::TeamCall call(*communicator.impl_->context, Collective::broadcast_coalesced, streams);
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
  communicator.broadcast_coalesced(parameters, root, streams);
}

}  // namespace tutti
