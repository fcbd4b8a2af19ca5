#include "collectives/prepare.hpp"
#include "collectives/together.hpp"

#include <algorithm>

namespace tutti::collectives {
namespace {

void check_inputs(const Arguments& arguments, TensorLists inputs) {
  arguments.not_empty(inputs.size(), "inputs");
  arguments.not_empty(inputs[0].size(), "inputs[0]");
  for (std::size_t d = 0; d < inputs.size(); ++d) {
    if (inputs[d].size() != inputs[0].size()) {
      arguments.fail("inputs[{}] has {} tensors, expected {} as inputs[0]", d, inputs[d].size(),
                     inputs[0].size());
    }
    for (std::size_t t = 0; t < inputs[d].size(); ++t) {
      const Tensor& input = inputs[d][t];
      const Name name{"inputs", d, t};
      arguments.usable(input, name);
      arguments.on_some_device(input, name);
      if (input.device() != inputs[d][0].device()) {
        arguments.fail("{} is on {}, expected {} as inputs[{}][0]", name, to_string(input.device()),
                       to_string(inputs[d][0].device()), d);
      }
      if (input.layout() == inputs[0][t].layout()) continue;  // the very same shape
      arguments.same_dtype(input, name, inputs[0][t].dtype(), Name("inputs", 0, t));
      arguments.same_sizes(input, name, inputs[0][t].sizes(), Name("inputs", 0, t));
    }
  }
}

void check_outputs(const Arguments& arguments, TensorLists inputs, TensorList out) {
  if (out.size() != inputs[0].size()) {
    arguments.fail("out has {} tensors, expected {} as inputs[0]", out.size(), inputs[0].size());
  }
  for (std::size_t t = 0; t < out.size(); ++t) {
    const Name name{"out", t};
    arguments.usable(out[t], name);
    arguments.on_some_device(out[t], name);
    if (out[t].device() != out[0].device()) {
      arguments.fail("{} is on {}, expected {} as out[0]", name, to_string(out[t].device()),
                     to_string(out[0].device()));
    }
    arguments.writable(out[t], name);
    if (out[t].layout() == inputs[0][t].layout()) continue;
    arguments.same_dtype(out[t], name, inputs[0][t].dtype(), Name("inputs", 0, t));
    arguments.same_sizes(out[t], name, inputs[0][t].sizes(), Name("inputs", 0, t));
  }
}

/// The order each column is summed in.
std::vector<LayoutPtr> common_layouts(TensorLists inputs) {
  std::vector<LayoutPtr> layouts;
  layouts.reserve(inputs[0].size());
  for (std::size_t t = 0; t < inputs[0].size(); ++t) {
    const LayoutPtr& first = inputs[0][t].layout();
    const bool shared = std::ranges::all_of(
        inputs, [&](const std::vector<Tensor>& row) { return same_order(*first, *row[t].layout()); });
    layouts.push_back(shared ? first : layout_in(*first, MemoryFormat::contiguous));
  }
  return layouts;
}

Call make_call(const Arguments& arguments, Packing& packing, TensorLists inputs,
               const std::vector<LayoutPtr>& layouts, std::size_t buffer_size,
               const CollectiveOptions& options) {
  Call call(arguments.runtime(), Collective::reduce_add_coalesced, options, describe_reduce_add,
            layouts.size());
  call.set_staging_bytes(buffer_size);
  call.reserve(inputs.size() + 1);
  for (const LayoutPtr& layout : layouts) {
    call.shape().push_back(static_cast<std::uint64_t>(layout->numel()));
    call.shape().push_back(static_cast<std::uint64_t>(layout->dtype()));
  }
  for (const std::vector<Tensor>& row : inputs) {
    call.add_row(row[0].device());
    for (std::size_t t = 0; t < row.size(); ++t) call.add(packing.input(row[t], layouts[t], "inputs"));
  }
  return call;
}

}  // namespace

Call prepare_reduce_add_coalesced(const Arguments& arguments, Packing& packing, TensorLists inputs,
                                  TensorList out, std::size_t buffer_size, const CollectiveOptions& options) {
  check_inputs(arguments, inputs);
  check_outputs(arguments, inputs, out);
  std::vector<Named> given;
  for (std::size_t d = 0; d < inputs.size(); ++d) given.push_back({"inputs", inputs[d], static_cast<int>(d)});
  const std::vector<Named> outputs{{"out", out}};
  require_disjoint(arguments, given, outputs, InPlace::same_index);

  const std::vector<LayoutPtr> layouts = common_layouts(inputs);
  Call call = make_call(arguments, packing, inputs, layouts, buffer_size, options);
  const Device device = out[0].device();
  const Stream stream = current_stream(device.index());
  call.add_row(device);
  call.mark_root();
  for (std::size_t t = 0; t < out.size(); ++t) call.add(packing.output(out[t], layouts[t], "out", stream));
  return call;
}

}  // namespace tutti::collectives

namespace tutti {

void reduce_add_coalesced(TensorLists inputs, TensorList out, std::size_t buffer_size,
                          const CollectiveOptions& options) {
  const collectives::Arguments arguments(Runtime::get(), "reduce_add_coalesced");
  collectives::Packing packing(arguments, collectives::PackingPolicy::copy);
  collectives::prepare_reduce_add_coalesced(arguments, packing, inputs, out, buffer_size, options).launch();
  packing.unpack();
}

std::vector<Tensor> reduce_add_coalesced(TensorLists inputs, std::optional<Device> destination,
                                         std::size_t buffer_size, const CollectiveOptions& options) {
  const collectives::Arguments arguments(Runtime::get(), "reduce_add_coalesced");
  collectives::check_inputs(arguments, inputs);
  const Device device = collectives::destination_or_current(destination);
  arguments.existing_device(device, "destination");

  const std::vector<LayoutPtr> layouts = collectives::common_layouts(inputs);
  collectives::Packing packing(arguments, collectives::PackingPolicy::copy);
  collectives::Call call = collectives::make_call(arguments, packing, inputs, layouts, buffer_size, options);
  std::vector<Tensor> results = collectives::allocate_together(
      arguments.runtime(), layouts, device, current_stream_ref(arguments.runtime(), device.index()));
  call.add_row(device);
  call.mark_root();
  for (const Tensor& result : results) call.add(result);
  call.launch();
  return results;
}

}  // namespace tutti
