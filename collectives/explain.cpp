// SPDX-License-Identifier: Apache-2.0
#include "collectives/cut.hpp"
#include "collectives/prepare.hpp"
#include "transport/select.hpp"

namespace tutti {
namespace {

using collectives::Arguments;
using collectives::Call;

/// The default stream stands for whichever is current: plans depend on devices, not on streams.
void add_row(Call& call, const Arguments& arguments, Device device) {
  call.add_row(arguments.runtime().backend().default_stream(device.index()));
}

class WorkloadCall {
 public:
  WorkloadCall(const Arguments& arguments, const Workload& workload, std::vector<Device> devices)
      : arguments_(arguments),
        workload_(workload),
        devices_(std::move(devices)),
        sizes_(workload.tensor_bytes) {
    if (sizes_.empty()) sizes_ = {workload.bytes};
  }

  [[nodiscard]] Call make() const {
    switch (traits_of(workload_.collective).of_one_tensor) {
      case Collective::broadcast:
        return broadcast();
      case Collective::reduce_add:
        return reduce();
      case Collective::scatter:
        return cut(collectives::describe_scatter);
      case Collective::gather:
        return cut(collectives::describe_gather);
      default:
        break;
    }
    arguments_.fail("collective is {}, expected one that is not a communicator's alone",
                    name_of(workload_.collective));
  }

 private:
  [[nodiscard]] Call start(Call::Describe describe, std::size_t columns) const {
    return {arguments_.runtime(), workload_.collective, workload_.options, describe, columns};
  }
  [[nodiscard]] DType dtype_of(std::size_t tensor) const {
    return workload_.tensor_dtypes.empty() ? workload_.dtype : workload_.tensor_dtypes[tensor];
  }
  void root(Call& call) const {
    add_row(call, arguments_, workload_.root);
    call.mark_root();
  }
  void members(Call& call, bool with_root) const {
    for (const Device device : devices_) {
      if (with_root || device != workload_.root) add_row(call, arguments_, device);
    }
  }

  [[nodiscard]] Call broadcast() const {
    Call call = start(collectives::describe_broadcast, sizes_.size());
    root(call);
    members(call, false);
    for (std::size_t t = 0; t < sizes_.size(); ++t) {
      const std::size_t width = size_of(dtype_of(t));
      call.shape().push_back(sizes_[t] / width * width);
    }
    return call;
  }

  [[nodiscard]] Call reduce() const {
    Call call = start(collectives::describe_reduce_add, sizes_.size());
    members(call, true);
    root(call);
    for (std::size_t t = 0; t < sizes_.size(); ++t) {
      call.shape().push_back(sizes_[t] / size_of(dtype_of(t)));
      call.shape().push_back(static_cast<std::uint64_t>(dtype_of(t)));
    }
    return call;
  }

  [[nodiscard]] Call cut(Call::Describe describe) const {
    constexpr std::uint64_t rows_along_dimension_1 = 256;
    Call call = start(describe, 1);
    const bool is_scatter = workload_.collective == Collective::scatter;
    if (is_scatter) root(call);
    members(call, true);
    if (!is_scatter) root(call);

    const std::uint64_t width = size_of(workload_.dtype);
    const std::uint64_t rows = workload_.dim == 0 ? 1 : rows_along_dimension_1;
    const std::uint64_t length = sizes_.front() / (width * rows);
    collectives::add_cut(call.shape(), rows, length * width, devices_.size());
    std::uint64_t offset = 0;
    for (const std::int64_t chunk :
         collectives::equal_chunks(static_cast<std::int64_t>(length), devices_.size())) {
      const std::uint64_t bytes = static_cast<std::uint64_t>(chunk) * width;
      collectives::add_part(call.shape(), offset, bytes);
      offset += bytes;
    }
    return call;
  }

  const Arguments& arguments_;
  const Workload& workload_;
  std::vector<Device> devices_;
  std::vector<std::size_t> sizes_;
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
  arguments.tensor_dtypes(workload.tensor_dtypes.size(), workload.tensor_bytes.size());
  arguments.tensor_bytes(workload.tensor_bytes.size(), workload.collective);
  if (workload.dim < 0 || workload.dim > 1) arguments.fail("dim is {}, expected 0 or 1", workload.dim);
  const Call call = WorkloadCall(arguments, workload, std::move(devices)).make();
  return transport::describe(*call.plan(transport::LaunchMode::eager));
}

}  // namespace tutti
