// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/workload.hpp"
#include "collectives/process/process_call.hpp"
#include "device/current_device.hpp"
#include "transport/select/select.hpp"
#include "tutti/collectives.hpp"

#include <utility>
#include <vector>

namespace tutti {
namespace {

using collectives::Arguments;
using collectives::Call;
using collectives::Request;

/// A call of this process's with the operands that the workload describes.
class WorkloadCall {
 public:
  WorkloadCall(const Arguments& arguments, const Workload& workload, const std::vector<Device>& devices)
      : arguments_(arguments), workload_(workload), devices_(devices) {}

  [[nodiscard]] Call make(Request request) const {
    Call call(arguments_.runtime(), workload_.collective, request.name, workload_.options, request.columns);
    const CollectiveTraits& traits = traits_of(workload_.collective);
    const bool is_for_root = traits.output == CollectiveOutput::one;
    // A broadcast's source needs no copy of its own.
    const bool takes_all = is_for_root || traits.has_own_sizes;
    if (!is_for_root) add_root(call);
    for (const Device device : devices_) {
      if (takes_all || device != workload_.root) add_row(call, device);
    }
    if (is_for_root) add_root(call);
    call.request() = std::move(request);
    return call;
  }

 private:
  /// The default stream stands for whichever is current: plans depend on devices, not on streams.
  void add_row(Call& call, Device device) const {
    call.add_row(arguments_.runtime().backend().default_stream(device.index()));
  }
  void add_root(Call& call) const {
    add_row(call, workload_.root);
    call.mark_root();
  }

  const Arguments& arguments_;
  const Workload& workload_;
  const std::vector<Device>& devices_;
};

}  // namespace

std::string explain(const Workload& given) {
  const Arguments arguments(Runtime::get(), "explain", given.options);
  Workload workload = given;
  workload.root = resolved(arguments.runtime(), given.root);
  std::vector<Device> devices = given.devices;
  for (Device& device : devices) device = resolved(arguments.runtime(), device);
  if (devices.empty()) {
    for (int device = 0; device < arguments.runtime().device_count(); ++device) devices.emplace_back(device);
  }
  arguments.existing_devices(devices, "devices");
  arguments.existing_device(workload.root, "root");
  if (traits_of(workload.collective).is_of_communicators) {
    arguments.fail("collective is {}, expected one that has a free function", name_of(workload.collective));
  }
  Request request = collectives::request_of(arguments, workload, devices.size());
  const Call call = WorkloadCall(arguments, workload, devices).make(std::move(request));
  return transport::to_text(*call.plan(transport::LaunchMode::eager));
}

}  // namespace tutti
