// SPDX-License-Identifier: Apache-2.0
#include "collectives/training/member_lists.hpp"

#include "collectives/call/disjoint.hpp"
#include "device/runtime.hpp"
#include "stream/thread_streams.hpp"

#include <cstddef>

namespace tutti::collectives {

void check_member_lists(const Arguments& arguments, const Communicator& communicator,
                        std::span<const std::vector<Tensor>> lists, std::string_view argument) {
  const std::vector<Device>& devices = communicator.devices();
  if (lists.size() != devices.size()) {
    arguments.fail("{} has {} lists, expected one per local member, {}", argument, lists.size(),
                   devices.size());
  }
  const std::vector<Tensor>& first = lists[0];
  if (first.empty()) arguments.fail("{}[0] has no tensors, expected at least one", argument);
  for (std::size_t local = 0; local < lists.size(); ++local) {
    const std::vector<Tensor>& list = lists[local];
    if (list.size() != first.size()) {
      arguments.fail("{}[{}] has {} tensors, expected {} as {}[0]", argument, local, list.size(),
                     first.size(), argument);
    }
    for (std::size_t t = 0; t < list.size(); ++t) {
      const Name name(argument, local, t);
      arguments.usable(list[t], name);
      if (list[t].device() != devices[local]) {
        arguments.fail("{} is on {}, expected {}, the device of local member {}", name,
                       to_string(list[t].device()), to_string(devices[local]), local);
      }
      const Name like(argument, 0, t);
      arguments.same_dtype(list[t], name, first[t].dtype(), like);
      arguments.same_sizes(list[t], name, first[t].sizes(), like);
    }
    const Named named{.argument = argument, .tensors = list, .row = static_cast<int>(local)};
    require_disjoint(arguments, {}, std::span(&named, 1), InPlace::forbidden);
  }
}

void check_local_member(const Arguments& arguments, int member, std::size_t locals) {
  if (member < 0 || static_cast<std::size_t>(member) >= locals)
    arguments.fail("member is {}, expected 0 to {}, a local member", member, locals - 1);
}

void require_uncaptured(const Arguments& arguments, const Communicator& communicator) {
  Runtime& runtime = arguments.runtime();
  for (const Device device : communicator.devices()) {
    if (runtime.backend().is_capturing(current_stream_ref(runtime, device.index())))
      arguments.unsupported("the current stream of {} is being captured", to_string(device));
  }
}

}  // namespace tutti::collectives
