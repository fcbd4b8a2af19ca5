// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/together.hpp"
#include "collectives/process/prepare.hpp"
#include "tensor/tensor_factory.hpp"

#include <algorithm>
#include <array>

namespace tutti::collectives {
namespace {

/// The order all bytes travel in: the source's own, if every output shares it.
LayoutPtr common_layout(const Tensor& tensor, TensorList out) {
  const bool shared = std::ranges::all_of(out, [&](const Tensor& output) {
    return is_source(tensor, output) || same_order(*tensor.layout(), *output.layout());
  });
  return shared && tensor.layout()->is_dense() ? tensor.layout()
                                               : layout_in(*tensor.layout(), MemoryFormat::contiguous);
}

}  // namespace

Call prepare_broadcast(const Arguments& arguments, Packing& packing, const Tensor& tensor, TensorList out,
                       const CollectiveOptions& options) {
  arguments.usable(tensor, "tensor");
  arguments.not_empty(out.size(), "out");
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Name name{"out", i};
    arguments.usable(out[i], name);
    arguments.on_some_device(out[i], name);
    arguments.same_dtype(out[i], name, tensor.dtype(), "tensor");
    arguments.same_sizes(out[i], name, tensor.sizes(), "tensor");
    arguments.writable(out[i], name);
  }
  const std::array inputs{Named::one("tensor", tensor)};
  const std::array outputs{Named{"out", out}};
  require_disjoint(arguments, inputs, outputs, InPlace::allowed);

  const LayoutPtr layout = common_layout(tensor, out);
  Call call(arguments.runtime(), Collective::broadcast, options);
  call.request().copied().bytes.push_back(tensor.nbytes());
  call.reserve(1 + out.size());
  call.add_row(tensor.device());
  call.mark_root();
  call.add(packing.input(tensor, *layout, "tensor"));
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (is_source(tensor, out[i])) continue;
    call.add_row(out[i].device());
    call.add(packing.output(out[i], *layout, Name("out", i), current_stream(out[i].device().index())));
  }
  return call;
}

}  // namespace tutti::collectives

namespace tutti {

void broadcast(const Tensor& tensor, TensorList out, const CollectiveOptions& options) {
  const collectives::Arguments arguments(Runtime::get(), "broadcast", options);
  collectives::Packing packing(arguments, collectives::PackingPolicy::copy,
                               {.inputs = TensorList(std::span(&tensor, 1)), .outputs = out});
  collectives::prepare_broadcast(arguments, packing, tensor, out, options).launch();
  packing.unpack();
}

std::vector<Tensor> broadcast(const Tensor& tensor, DeviceList given, const CollectiveOptions& options) {
  const collectives::Arguments arguments(Runtime::get(), "broadcast", options);
  std::vector<Device> memory;
  const DeviceList devices = arguments.resolved(given, memory);
  arguments.usable(tensor, "tensor");
  arguments.existing_devices(devices, "devices");

  const LayoutPtr layout = dense_layout(tensor.layout());
  std::vector<Tensor> results;
  results.reserve(devices.size());
  collectives::Packing packing(arguments, collectives::PackingPolicy::copy,
                               {.inputs = TensorList(std::span(&tensor, 1)), .devices = devices});
  collectives::Call call(arguments.runtime(), Collective::broadcast, options);
  call.request().copied().bytes.push_back(tensor.nbytes());
  call.reserve(1 + devices.size());
  call.add_row(tensor.device());
  call.mark_root();
  call.add(packing.input(tensor, *layout, "tensor"));
  for (const Device device : devices) {
    if (device != tensor.device()) call.add_result_row(device, layout->nbytes());
  }
  call.join_capture();
  std::size_t row = 0;  // the source's
  for (const Device device : devices) {
    if (device == tensor.device()) {
      results.push_back(tensor);
      continue;
    }
    ++row;
    results.push_back(collectives::allocate_for(arguments.runtime(), layout, {device, call.first_use(row)}));
    call.return_to(row);
    call.add(results.back());
  }
  call.launch();
  return results;
}

}  // namespace tutti
