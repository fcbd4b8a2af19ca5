// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/together.hpp"
#include "collectives/process/prepare.hpp"
#include "jit/jit_source.hpp"
#include "stream/thread_streams.hpp"
#include "tensor/overlap.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace tutti::collectives {
namespace {

void check_input(const Arguments& arguments, TensorLists inputs, std::size_t d, std::size_t t) {
  const Tensor& input = inputs[d][t];
  const Name name{"inputs", d, t};
  arguments.usable(input, name);
  arguments.on_some_device(input, name);
  if (input.device() != inputs[d][0].device()) {
    arguments.fail("{} is on {}, expected {} as inputs[{}][0]", name, to_string(input.device()),
                   to_string(inputs[d][0].device()), d);
  }
  arguments.same_dtype(input, name, inputs[0][t].dtype(), Name("inputs", 0, t));
  arguments.same_sizes(input, name, inputs[0][t].sizes(), Name("inputs", 0, t));
}

/// Adds the inputs as rows, checked. Returns whether all are plain, and every column is laid out alike.
bool add_inputs(const Arguments& arguments, TensorLists inputs, MemoryRuns& runs, Call& call) {
  bool are_plain = true;
  for (std::size_t d = 0; d < inputs.size(); ++d) {
    check_input(arguments, inputs, d, 0);
    const Device device = inputs[d][0].device();
    call.add_row(device);
    runs.start_inputs();
    for (std::size_t t = 0; t < inputs[d].size(); ++t) {
      fetch_ahead(inputs[d], t);
      const Tensor& input = inputs[d][t];
      if (!is_plain_as(inputs[0][t], input, device)) {
        are_plain = false;
        check_input(arguments, inputs, d, t);
      }
      runs.add(input);
      call.add(input);
    }
  }
  return are_plain;
}

void check_output(const Arguments& arguments, TensorLists inputs, TensorList out, std::size_t t) {
  const Name name{"out", t};
  arguments.usable(out[t], name);
  arguments.on_some_device(out[t], name);
  if (out[t].device() != out[0].device()) {
    arguments.fail("{} is on {}, expected {} as out[0]", name, to_string(out[t].device()),
                   to_string(out[0].device()));
  }
  arguments.writable(out[t], name);
  arguments.same_dtype(out[t], name, inputs[0][t].dtype(), Name("inputs", 0, t));
  arguments.same_sizes(out[t], name, inputs[0][t].sizes(), Name("inputs", 0, t));
}

/// The list of inputs that starts where `out` does, else the first.
const std::vector<Tensor>& candidate_in_place(TensorLists inputs, TensorList out) {
  const auto found = std::ranges::find_if(
      inputs, [&](const std::vector<Tensor>& row) { return is_same_memory(row[0], out[0]); });
  return found == inputs.end() ? inputs[0] : *found;
}

/// Adds the outputs as the root's row, checked. Returns whether all are plain and laid out as the inputs.
bool add_outputs(const Arguments& arguments, TensorLists inputs, TensorList out, MemoryRuns& runs,
                 Call& call) {
  check_output(arguments, inputs, out, 0);
  const Device device = out[0].device();
  const std::vector<Tensor>& in_place = candidate_in_place(inputs, out);
  bool are_plain = true;
  call.add_row(device);
  call.mark_root();
  runs.start_outputs();
  for (std::size_t t = 0; t < out.size(); ++t) {
    fetch_ahead(out, t);
    if (!is_plain_as(inputs[0][t], out[t], device)) {
      are_plain = false;
      check_output(arguments, inputs, out, t);
    }
    if (is_same_memory(in_place[t], out[t])) {
      runs.add_in_place();
    } else {
      runs.add(out[t]);
    }
    call.add(out[t]);
  }
  return are_plain;
}

/// The order each column is summed in: the inputs' own if they share one, else contiguous.
ColumnLayouts common_layouts(TensorLists inputs, bool are_plain) {
  ColumnLayouts layouts(inputs[0].size());
  for (std::size_t t = 0; t < inputs[0].size(); ++t) {
    const Layout& first = *inputs[0][t].layout();
    const bool shared = are_plain || std::ranges::all_of(inputs, [&](const std::vector<Tensor>& row) {
                          return same_order(first, *row[t].layout());
                        });
    if (shared) {
      layouts.add(first);
    } else {
      layouts.add_new(layout_in(first, MemoryFormat::contiguous));
    }
  }
  return layouts;
}

void check_operation(const Arguments& arguments, const ReduceCall& what, TensorLists inputs) {
  if (what.operation.kind() == ReduceKind::sum) return;
  for (const Tensor& input : inputs[0]) arguments.operation(what.operation, input.dtype(), inputs.size());
}

/// Has an operation that is compiled ready wherever the call may run it.
void compile_for_columns(const Arguments& arguments, const ReduceCall& what, TensorLists inputs,
                         Device destination) {
  if (what.operation.kind() != ReduceKind::compiled) return;
  std::set<DType> dtypes;
  for (const Tensor& input : inputs[0]) dtypes.insert(input.dtype());
  for (const DType dtype : dtypes) {
    for (const std::vector<Tensor>& row : inputs)
      arguments.compiled_for(what.operation, dtype, row[0].device());
    arguments.compiled_for(what.operation, dtype, destination);
  }
}

/// Checks, as for single tensors, that a second kernel reads nothing that the first has written.
void require_columns_in_first_kernel(const Arguments& arguments, const ReduceCall& what, TensorLists inputs,
                                     TensorList out) {
  if (what.operation.kind() != ReduceKind::compiled) return;
  for (std::size_t d = most_combined; d < inputs.size(); ++d) {
    for (std::size_t t = 0; t < out.size(); ++t) {
      if (!is_same_memory(inputs[d][t], out[t])) continue;
      arguments.fail(
          "{} is {}, expected memory of its own, or of one of the first {} lists of inputs, as op "
          "is compiled",
          Name("out", t), Name("inputs", d, t), most_combined);
    }
  }
}

void check_lengths(const Arguments& arguments, TensorLists inputs) {
  arguments.not_empty(inputs.size(), "inputs");
  for (std::size_t d = 1; d < inputs.size(); ++d) {
    if (inputs[d].size() == inputs[0].size()) continue;
    arguments.fail("inputs[{}] has {} tensors, expected {} as inputs[0]", d, inputs[d].size(),
                   inputs[0].size());
  }
}

/// A call without rows, of lists that are not empty.
Call start_call(const Arguments& arguments, const ReduceCall& what, TensorLists inputs,
                std::size_t buffer_size, const CollectiveOptions& options) {
  Call call(arguments.runtime(), Collective::reduce, what.name, options, inputs[0].size());
  call.set_operation(what.operation);
  call.set_staging_bytes(buffer_size);
  call.reserve(inputs.size() + 1);
  return call;
}

/// The same call with stand-ins for the inputs that need them.
Call start_packed_call(const Arguments& arguments, Packing& packing, const ReduceCall& what,
                       TensorLists inputs, const ColumnLayouts& layouts, std::size_t buffer_size,
                       const CollectiveOptions& options) {
  Call call = start_call(arguments, what, inputs, buffer_size, options);
  for (std::size_t d = 0; d < inputs.size(); ++d) {
    call.add_row(inputs[d][0].device());
    for (std::size_t t = 0; t < inputs[d].size(); ++t) {
      call.add(packing.input(inputs[d][t], layouts[t], Name("inputs", d, t)));
    }
  }
  return call;
}

void set_shape(Call& call, const ColumnLayouts& layouts) {
  for (const Layout* layout : layouts.all()) {
    call.request().add_column(static_cast<std::uint64_t>(layout->numel()), layout->dtype());
  }
}

}  // namespace

Call prepare_reduce_coalesced(const Arguments& arguments, Packing& packing, const ReduceCall& what,
                              TensorLists inputs, TensorList out, std::size_t buffer_size,
                              const CollectiveOptions& options) {
  check_lengths(arguments, inputs);
  if (out.size() != inputs[0].size()) {
    arguments.fail("out has {} tensors, expected {} as inputs[0]", out.size(), inputs[0].size());
  }
  arguments.operation(what.operation);
  if (out.empty()) return Call::of_nothing(arguments.runtime(), Collective::reduce, what.name, options);
  MemoryRuns runs;
  Call call = start_call(arguments, what, inputs, buffer_size, options);
  const bool inputs_are_plain = add_inputs(arguments, inputs, runs, call);
  check_operation(arguments, what, inputs);
  const bool are_plain = add_outputs(arguments, inputs, out, runs, call) && inputs_are_plain;
  if (!runs.are_disjoint()) {
    std::vector<Named> given;
    for (std::size_t d = 0; d < inputs.size(); ++d) {
      given.push_back({"inputs", inputs[d], static_cast<int>(d)});
    }
    const std::vector<Named> outputs{{"out", out}};
    require_disjoint_one_by_one(arguments, given, outputs, InPlace::same_index, are_plain);
  }
  require_columns_in_first_kernel(arguments, what, inputs, out);
  compile_for_columns(arguments, what, inputs, out[0].device());

  const ColumnLayouts layouts = common_layouts(inputs, inputs_are_plain);
  if (!are_plain) {
    call = start_packed_call(arguments, packing, what, inputs, layouts, buffer_size, options);
    const Device device = out[0].device();
    const Stream stream = current_stream(device.index());
    call.add_row(device);
    call.mark_root();
    for (std::size_t t = 0; t < out.size(); ++t) {
      call.add(packing.output(out[t], layouts[t], Name("out", t), stream));
    }
  }
  set_shape(call, layouts);
  return call;
}

}  // namespace tutti::collectives

namespace tutti {
namespace {

void reduce_lists_into(const collectives::ReduceCall& what, TensorLists inputs, TensorList out,
                       std::size_t buffer_size, const CollectiveOptions& options) {
  const collectives::Arguments arguments(Runtime::get(), what.name, options);
  collectives::Packing packing(arguments, collectives::PackingPolicy::copy, {.outputs = out, .rows = inputs});
  collectives::prepare_reduce_coalesced(arguments, packing, what, inputs, out, buffer_size, options).launch();
  packing.unpack();
}

std::vector<Tensor> reduce_lists_to(const collectives::ReduceCall& what, TensorLists inputs,
                                    std::optional<Device> destination, std::size_t buffer_size,
                                    const CollectiveOptions& options) {
  const collectives::Arguments arguments(Runtime::get(), what.name, options);
  collectives::check_lengths(arguments, inputs);
  const Device device = collectives::destination_or_current(arguments, destination);
  arguments.operation(what.operation);
  if (inputs[0].empty()) {
    arguments.existing_device(device, "destination");
    collectives::Call::of_nothing(arguments.runtime(), Collective::reduce, what.name, options).launch();
    return {};
  }
  collectives::MemoryRuns runs;
  collectives::Call call = collectives::start_call(arguments, what, inputs, buffer_size, options);
  const bool are_plain = collectives::add_inputs(arguments, inputs, runs, call);
  collectives::check_operation(arguments, what, inputs);
  arguments.existing_device(device, "destination");
  collectives::compile_for_columns(arguments, what, inputs, device);

  const collectives::ColumnLayouts layouts = collectives::common_layouts(inputs, are_plain);
  collectives::Packing packing(arguments, collectives::PackingPolicy::copy,
                               {.rows = inputs, .devices = DeviceList(std::span(&device, 1))});
  if (!are_plain) {
    call = collectives::start_packed_call(arguments, packing, what, inputs, layouts, buffer_size, options);
  }
  call.add_row(device);
  call.mark_root();
  call.join_capture();
  const collectives::ResultPlace place{device, current_stream_ref(arguments.runtime(), device.index())};
  std::vector<Tensor> results =
      std::move(collectives::allocate_together(arguments.runtime(), layouts.all(), {&place, 1}).front());
  call.add_all(results);
  collectives::set_shape(call, layouts);
  call.launch();
  return results;
}

}  // namespace

void detail::reduce_add_coalesced_into(TensorLists inputs, TensorList out, std::size_t buffer_size,
                                       const CollectiveOptions& options) {
  reduce_lists_into({"reduce_add_coalesced", ReduceOp::sum}, inputs, out, buffer_size, options);
}
std::vector<Tensor> reduce_add_coalesced(TensorLists inputs, std::optional<Device> destination,
                                         std::size_t buffer_size, const CollectiveOptions& options) {
  return reduce_lists_to({"reduce_add_coalesced", ReduceOp::sum}, inputs, destination, buffer_size, options);
}
void reduce_coalesced(TensorLists inputs, TensorList out, const ReduceOp& op, std::size_t buffer_size,
                      const CollectiveOptions& options) {
  reduce_lists_into({"reduce_coalesced", op}, inputs, out, buffer_size, options);
}
std::vector<Tensor> reduce_coalesced(TensorLists inputs, const ReduceOp& op,
                                     std::optional<Device> destination, std::size_t buffer_size,
                                     const CollectiveOptions& options) {
  return reduce_lists_to({"reduce_coalesced", op}, inputs, destination, buffer_size, options);
}

}  // namespace tutti
