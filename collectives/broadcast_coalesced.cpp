#include "collectives/prepare.hpp"
#include "collectives/together.hpp"
#include "tensor_factory.hpp"

#include <algorithm>

namespace tutti::collectives {
namespace {

void check_sources(const Arguments& arguments, TensorList tensors) {
  arguments.not_empty(tensors.size(), "tensors");
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    arguments.usable(tensors[t], Name("tensors", t));
    if (tensors[t].device() != tensors[0].device()) {
      arguments.fail("tensors[{}] is on {}, expected {} as tensors[0]", t, to_string(tensors[t].device()),
                     to_string(tensors[0].device()));
    }
  }
}

void check_targets(const Arguments& arguments, TensorList tensors, TensorLists out) {
  arguments.not_empty(out.size(), "out");
  for (std::size_t d = 0; d < out.size(); ++d) {
    if (out[d].size() != tensors.size()) {
      arguments.fail("out[{}] has {} tensors, expected {} as tensors", d, out[d].size(), tensors.size());
    }
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const Tensor& output = out[d][t];
      const Name name{"out", d, t};
      arguments.usable(output, name);
      arguments.on_some_device(output, name);
      if (output.device() != out[d][0].device()) {
        arguments.fail("{} is on {}, expected {} as out[{}][0]", name, to_string(output.device()),
                       to_string(out[d][0].device()), d);
      }
      arguments.writable(output, name);
      if (output.layout() == tensors[t].layout()) continue;  // the very same shape
      arguments.same_dtype(output, name, tensors[t].dtype(), Name("tensors", t));
      arguments.same_sizes(output, name, tensors[t].sizes(), Name("tensors", t));
    }
  }
}

Call start_call(const Arguments& arguments, TensorList tensors, std::size_t buffer_size,
                const CollectiveOptions& options) {
  Call call(arguments.runtime(), Collective::broadcast_coalesced, options, describe_broadcast,
            tensors.size());
  call.set_staging_bytes(buffer_size);
  call.shape().reserve(tensors.size());
  for (const Tensor& tensor : tensors) call.shape().push_back(tensor.nbytes());
  call.add_row(tensors[0].device());
  call.mark_root();
  return call;
}

}  // namespace

Call prepare_broadcast_coalesced(const Arguments& arguments, Packing& packing, TensorList tensors,
                                 TensorLists out, std::size_t buffer_size, const CollectiveOptions& options) {
  check_sources(arguments, tensors);
  check_targets(arguments, tensors, out);
  const std::vector<Named> inputs{{"tensors", tensors}};
  std::vector<Named> outputs;
  for (std::size_t d = 0; d < out.size(); ++d) outputs.push_back({"out", out[d], static_cast<int>(d)});
  require_disjoint(arguments, inputs, outputs, InPlace::same_index);

  std::vector<LayoutPtr> layouts;
  layouts.reserve(tensors.size());
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const bool shared = std::ranges::all_of(out, [&](const std::vector<Tensor>& row) {
      return same_order(*tensors[t].layout(), *row[t].layout());
    });
    layouts.push_back(shared ? tensors[t].layout()
                             : layout_in(*tensors[t].layout(), MemoryFormat::contiguous));
  }

  Call call = start_call(arguments, tensors, buffer_size, options);
  call.reserve(1 + out.size());
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    call.add(packing.input(tensors[t], layouts[t], Name("tensors", t)));
  }
  std::vector<std::uint64_t> skipped;
  for (std::size_t d = 0; d < out.size(); ++d) {
    const Device device = out[d][0].device();
    const Stream stream = current_stream(device.index());
    call.add_row(device);
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      if (is_source(tensors[t], out[d][t])) skipped.push_back((d + 1) * tensors.size() + t);
      call.add(packing.output(out[d][t], layouts[t], "out", stream));
    }
  }
  call.shape().insert(call.shape().end(), skipped.begin(), skipped.end());
  return call;
}

}  // namespace tutti::collectives

namespace tutti {

void broadcast_coalesced(TensorList tensors, TensorLists out, std::size_t buffer_size,
                         const CollectiveOptions& options) {
  const collectives::Arguments arguments(Runtime::get(), "broadcast_coalesced");
  collectives::Packing packing(arguments, collectives::PackingPolicy::copy);
  collectives::prepare_broadcast_coalesced(arguments, packing, tensors, out, buffer_size, options).launch();
  packing.unpack();
}

std::vector<std::vector<Tensor>> broadcast_coalesced(TensorList tensors, DeviceList devices,
                                                     std::size_t buffer_size,
                                                     const CollectiveOptions& options) {
  const collectives::Arguments arguments(Runtime::get(), "broadcast_coalesced");
  collectives::check_sources(arguments, tensors);
  arguments.existing_devices(devices, "devices");

  collectives::Packing packing(arguments, collectives::PackingPolicy::copy);
  collectives::Call call = collectives::start_call(arguments, tensors, buffer_size, options);
  call.reserve(1 + devices.size());
  std::vector<LayoutPtr> layouts;
  layouts.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    layouts.push_back(dense_layout(tensor.layout()));
    call.add(packing.input(tensor, layouts.back(), "tensors"));
  }

  std::vector<std::vector<Tensor>> results;
  results.reserve(devices.size());
  for (const Device device : devices) {
    if (device == tensors[0].device()) {
      results.emplace_back(tensors.begin(), tensors.end());
      continue;
    }
    const backend::StreamRef stream = call.first_use(device, collectives::bytes_together(layouts));
    results.push_back(collectives::allocate_together(arguments.runtime(), layouts, device, stream));
    call.add_result_row(device, stream);
    for (const Tensor& result : results.back()) call.add(result);
  }
  call.launch();
  return results;
}

}  // namespace tutti
