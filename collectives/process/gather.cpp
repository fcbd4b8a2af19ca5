// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/cut.hpp"
#include "collectives/process/prepare.hpp"
#include "device/blocking_call.hpp"
#include "device/ended_work.hpp"
#include "stream/streams.hpp"
#include "tensor/tensor_factory.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace tutti::collectives {
namespace {

/// Checks the inputs and returns the sizes of the result.
std::vector<std::int64_t> check_inputs(const Arguments& arguments, TensorList tensors, int along) {
  std::vector<std::int64_t> sizes(tensors[0].sizes().begin(), tensors[0].sizes().end());
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Name name{"tensors", i};
    arguments.usable(tensors[i], name);
    arguments.on_some_device(tensors[i], name);
    arguments.same_dtype(tensors[i], name, tensors[0].dtype(), "tensors[0]");
    arguments.same_sizes_but_one(tensors[i], name, tensors[0], "tensors[0]", along);
    if (__builtin_add_overflow(sum, tensors[i].sizes()[static_cast<std::size_t>(along)], &sum)) {
      arguments.fail("the sizes of tensors along dimension {} add up to more than 2^63 - 1", along);
    }
  }
  sizes[static_cast<std::size_t>(along)] = sum;
  return sizes;
}

/// Channels-last if all inputs are and not all are contiguous just as well; contiguous otherwise.
MemoryFormat common_format(TensorList tensors) {
  const bool are_channels_last = std::ranges::all_of(tensors, &Tensor::is_channels_last);
  const bool are_contiguous = std::ranges::all_of(tensors, &Tensor::is_contiguous);
  return are_channels_last && !are_contiguous ? MemoryFormat::channels_last : MemoryFormat::contiguous;
}

Call make_call(const Arguments& arguments, Packing& packing, TensorList tensors, const Layout& result,
               int along, MemoryFormat format, const CollectiveOptions& options) {
  Call call(arguments.runtime(), Collective::gather, options);
  const Cut cut = cut_along(result, along);
  const auto bytes_of = [&](std::int64_t size) { return static_cast<std::uint64_t>(size) * cut.slab_bytes; };
  const auto dimension = static_cast<std::size_t>(along);
  CutOperands& operands = call.request().cut();
  operands = {.rows = cut.rows, .row_bytes = bytes_of(result.sizes()[dimension])};
  operands.parts.reserve(tensors.size());
  call.reserve(tensors.size() + 1);
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t bytes = bytes_of(tensors[i].sizes()[dimension]);
    call.add_row(tensors[i].device());
    call.add(packing.input(tensors[i], *layout_in(*tensors[i].layout(), format), Name("tensors", i)));
    operands.parts.push_back({offset, bytes});
    offset += bytes;
  }
  return call;
}

/// Refuses a call that would wait for a result on the host during a capture, in which nothing runs before the
/// call returns.
void refuse_waiting_in_capture(const Arguments& arguments, Call& call, Blocking blocking) {
  if (blocking == Blocking::no) return;
  if (call.capture()) {
    arguments.unsupported(
        "the result goes to the host and options.blocking is yes, expected no: a call that is being captured "
        "cannot wait for its result");
  }
}

/// Waits, once, for an output on the host; without blocking, lets the first input's stream stand for all.
void finish_on_host(Call& call, std::size_t inputs, Blocking blocking) {
  Runtime& runtime = call.runtime();
  const backend::StreamRef first = call.stream_of(0);
  for (std::size_t i = 1; i < inputs; ++i) runtime.part<Streams>().order(call.stream_of(i), first);
  if (blocking == Blocking::no) return;
  runtime.part<Streams>().finish(first);
  // That reports what has failed on its own device.
  for (std::size_t i = 1; i < inputs; ++i) {
    static_cast<void>(runtime.backend().query_stream(call.stream_of(i)));
    runtime.part<EndedWork>().report(call.stream_of(i).device);
  }
}

}  // namespace

Call prepare_gather(const Arguments& arguments, Packing& packing, TensorList given, const Tensor& out,
                    int dim, const CollectiveOptions& options) {
  std::vector<Tensor> memory;
  const TensorList tensors = as_vectors(given, memory);
  arguments.not_empty(tensors.size(), "tensors");
  arguments.usable(tensors[0], "tensors[0]");
  const int along = arguments.dimension(dim, tensors[0].dim());
  const std::vector<std::int64_t> sizes = check_inputs(arguments, tensors, along);
  arguments.usable(out, "out");
  arguments.same_dtype(out, "out", tensors[0].dtype(), "tensors[0]");
  if (!std::ranges::equal(out.sizes(), sizes)) {
    arguments.fail("out has sizes {}, expected {} as tensors joined along dimension {}",
                   to_string(out.sizes()), to_string(sizes), along);
  }
  arguments.writable(out, "out");
  const std::array inputs{Named{"tensors", tensors}};
  const std::array outputs{Named::one("out", out)};
  require_disjoint(arguments, inputs, outputs, InPlace::forbidden);

  MemoryFormat format = common_format(tensors);
  if (out.layout()->preferred_format() != format) format = MemoryFormat::contiguous;
  const LayoutPtr layout = layout_in(*out.layout(), format);
  Call call = make_call(arguments, packing, tensors, *layout, along, format, options);
  call.add_row(out.device());
  call.mark_root();
  if (out.device().is_host()) {
    call.add(packing.host_output(out, *layout, "out"));
  } else {
    call.add(packing.output(out, *layout, "out", current_stream(out.device().index())));
  }
  return call;
}

}  // namespace tutti::collectives

namespace tutti {

void gather(TensorList tensors, const Tensor& out, int dim, const CollectiveOptions& options) {
  const collectives::Arguments arguments(Runtime::get(), "gather", options);
  collectives::Packing packing(arguments, collectives::PackingPolicy::copy,
                               {.inputs = tensors, .outputs = TensorList(std::span(&out, 1))});
  collectives::Call call = collectives::prepare_gather(arguments, packing, tensors, out, dim, options);
  if (out.device().is_host()) collectives::refuse_waiting_in_capture(arguments, call, options.blocking);
  std::optional<BlockingCall> blocks;
  if (out.device().is_host() && (packing.has_outputs() || options.blocking == Blocking::yes))
    blocks.emplace("gather");
  call.launch();
  if (out.device().is_host()) {
    // A stand-in must be complete before the host copies it.
    collectives::finish_on_host(call, tensors.size(),
                                packing.has_outputs() ? Blocking::yes : options.blocking);
  }
  packing.unpack();
}

Tensor gather(TensorList given, int dim, std::optional<Device> destination,
              const CollectiveOptions& options) {
  std::vector<Tensor> memory;
  const TensorList tensors = collectives::as_vectors(given, memory);
  const collectives::Arguments arguments(Runtime::get(), "gather", options);
  arguments.not_empty(tensors.size(), "tensors");
  arguments.usable(tensors[0], "tensors[0]");
  const int along = arguments.dimension(dim, tensors[0].dim());
  const std::vector<std::int64_t> sizes = collectives::check_inputs(arguments, tensors, along);
  const Device device = collectives::destination_or_current(arguments, destination);
  if (!device.is_host()) arguments.existing_device(device, "destination");

  const MemoryFormat format = collectives::common_format(tensors);
  const LayoutPtr layout = make_layout(tensors[0].dtype(), sizes, format);
  collectives::Packing packing(arguments, collectives::PackingPolicy::copy,
                               {.inputs = tensors, .devices = DeviceList(std::span(&device, 1))});
  collectives::Call call =
      collectives::make_call(arguments, packing, tensors, *layout, along, format, options);
  if (device.is_host()) collectives::refuse_waiting_in_capture(arguments, call, options.blocking);
  call.add_row(device);
  call.mark_root();
  call.join_capture();
  const HostMemory host_memory = device.is_host() ? HostMemory::pinned : HostMemory::pageable;
  Tensor result = allocate_tensor(layout, device, host_memory, "gather");
  call.add(result);
  std::optional<BlockingCall> blocks;
  if (device.is_host() && options.blocking == Blocking::yes) blocks.emplace("gather");
  call.launch();
  if (device.is_host()) collectives::finish_on_host(call, tensors.size(), options.blocking);
  return result;
}

}  // namespace tutti
