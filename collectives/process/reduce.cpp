// SPDX-License-Identifier: Apache-2.0
#include "collectives/process/prepare.hpp"
#include "jit/jit_source.hpp"
#include "tensor/overlap.hpp"
#include "tensor/tensor_factory.hpp"

#include <algorithm>
#include <array>

namespace tutti::collectives {
namespace {

void check_inputs(const Arguments& arguments, const ReduceCall& what, TensorList inputs) {
  arguments.not_empty(inputs.size(), "inputs");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Name name{"inputs", i};
    arguments.usable(inputs[i], name);
    arguments.on_some_device(inputs[i], name);
    arguments.same_dtype(inputs[i], name, inputs[0].dtype(), "inputs[0]");
    arguments.same_sizes(inputs[i], name, inputs[0].sizes(), "inputs[0]");
  }
  arguments.operation(what.operation, inputs[0].dtype(), inputs.size());
}

/// Has an operation that is compiled ready wherever the call may run it.
void compile_for_all(const Arguments& arguments, const ReduceCall& what, TensorList inputs,
                     Device destination) {
  if (what.operation.kind() != ReduceKind::compiled) return;
  for (const Tensor& input : inputs) arguments.compiled_for(what.operation, input.dtype(), input.device());
  arguments.compiled_for(what.operation, inputs[0].dtype(), destination);
}

/// One kernel reads all that it combines before it writes; those that follow it would read what it has
/// written.
void require_in_first_kernel(const Arguments& arguments, const ReduceCall& what, TensorList inputs,
                             const Tensor& out) {
  if (what.operation.kind() != ReduceKind::compiled) return;
  for (std::size_t i = most_combined; i < inputs.size(); ++i) {
    if (!is_same_memory(inputs[i], out)) continue;
    arguments.fail(
        "out is inputs[{}], expected memory of its own, or one of the first {} inputs, as op is "
        "compiled",
        i, most_combined);
  }
}

/// The order elements are gone through in: the inputs' own if they share one, else contiguous.
LayoutPtr common_layout(TensorList inputs) {
  const Layout& first = *inputs[0].layout();
  const bool shared =
      std::ranges::all_of(inputs, [&](const Tensor& input) { return same_order(first, *input.layout()); });
  return shared ? inputs[0].layout() : layout_in(first, MemoryFormat::contiguous);
}

Call make_call(const Arguments& arguments, Packing& packing, const ReduceCall& what, TensorList inputs,
               const LayoutPtr& layout, const CollectiveOptions& options) {
  Call call(arguments.runtime(), Collective::reduce, what.name, options);
  call.set_operation(what.operation);
  call.request().add_column(static_cast<std::uint64_t>(layout->numel()), layout->dtype());
  call.reserve(inputs.size() + 1);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    call.add_row(inputs[i].device());
    call.add(packing.input(inputs[i], *layout, Name("inputs", i)));
  }
  return call;
}

}  // namespace

Call prepare_reduce(const Arguments& arguments, Packing& packing, const ReduceCall& what, TensorList inputs,
                    const Tensor& out, const CollectiveOptions& options) {
  check_inputs(arguments, what, inputs);
  arguments.usable(out, "out");
  arguments.on_some_device(out, "out");
  arguments.same_dtype(out, "out", inputs[0].dtype(), "inputs[0]");
  arguments.same_sizes(out, "out", inputs[0].sizes(), "inputs[0]");
  arguments.writable(out, "out");
  const std::array given{Named{"inputs", inputs}};
  const std::array outputs{Named::one("out", out)};
  require_disjoint(arguments, given, outputs, InPlace::allowed);
  require_in_first_kernel(arguments, what, inputs, out);
  compile_for_all(arguments, what, inputs, out.device());

  const LayoutPtr layout = common_layout(inputs);
  Call call = make_call(arguments, packing, what, inputs, layout, options);
  call.add_row(out.device());
  call.mark_root();
  call.add(packing.output(out, *layout, "out", current_stream(out.device().index())));
  return call;
}

}  // namespace tutti::collectives

namespace tutti {
namespace {

void reduce_into(const collectives::ReduceCall& what, TensorList inputs, const Tensor& out,
                 const CollectiveOptions& options) {
  const collectives::Arguments arguments(Runtime::get(), what.name, options);
  collectives::Packing packing(arguments, collectives::PackingPolicy::copy,
                               {.inputs = inputs, .outputs = TensorList(std::span(&out, 1))});
  collectives::prepare_reduce(arguments, packing, what, inputs, out, options).launch();
  packing.unpack();
}

Tensor reduce_to(const collectives::ReduceCall& what, TensorList inputs, std::optional<Device> destination,
                 const CollectiveOptions& options) {
  const collectives::Arguments arguments(Runtime::get(), what.name, options);
  collectives::check_inputs(arguments, what, inputs);
  const Device device = collectives::destination_or_current(arguments, destination);
  arguments.existing_device(device, "destination");
  collectives::compile_for_all(arguments, what, inputs, device);

  const LayoutPtr layout = collectives::common_layout(inputs);
  collectives::Packing packing(arguments, collectives::PackingPolicy::copy,
                               {.inputs = inputs, .devices = DeviceList(std::span(&device, 1))});
  collectives::Call call = collectives::make_call(arguments, packing, what, inputs, layout, options);
  call.add_row(device);
  call.mark_root();
  call.join_capture();
  Tensor result = allocate_tensor(layout, device, HostMemory::pageable, what.name);
  call.add(result);
  call.launch();
  return result;
}

}  // namespace

void detail::reduce_add_into(TensorList inputs, const Tensor& out, const CollectiveOptions& options) {
  reduce_into({"reduce_add", ReduceOp::sum}, inputs, out, options);
}
Tensor reduce_add(TensorList inputs, std::optional<Device> destination, const CollectiveOptions& options) {
  return reduce_to({"reduce_add", ReduceOp::sum}, inputs, destination, options);
}
void reduce(TensorList inputs, const Tensor& out, const ReduceOp& op, const CollectiveOptions& options) {
  reduce_into({"reduce", op}, inputs, out, options);
}
Tensor reduce(TensorList inputs, const ReduceOp& op, std::optional<Device> destination,
              const CollectiveOptions& options) {
  return reduce_to({"reduce", op}, inputs, destination, options);
}

}  // namespace tutti
