// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/packing.hpp"

#include "device/runtime.hpp"
#include "stream/stream_access.hpp"
#include "stream/thread_streams.hpp"
#include "tensor/tensor_factory.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace tutti::collectives {
namespace {

/// Dimensions; as many entries as a layout has count.
using Order = std::array<std::size_t, max_dimensions>;

/// Dimensions from slowest to fastest in memory. Those of size 1 stay where they are among their equals.
Order memory_order(const Layout& layout) {
  const auto is_slower = [&](std::size_t a, std::size_t b) {
    const std::int64_t stride_a = layout.strides()[a];
    const std::int64_t stride_b = layout.strides()[b];
    return stride_a != stride_b ? stride_a > stride_b : layout.sizes()[a] > layout.sizes()[b];
  };
  // Sorted by insertion, as they are few and mostly in order.
  Order order{};
  for (std::size_t d = 0; d < layout.sizes().size(); ++d) {
    std::size_t place = d;
    for (; place > 0 && is_slower(d, order[place - 1]); --place) order[place] = order[place - 1];
    order[place] = d;
  }
  return order;
}

}  // namespace

bool same_order(const Layout& a, const Layout& b) {
  if (&a == &b) return a.is_dense();
  if (!a.is_dense() || !b.is_dense()) return false;
  if (a.is_contiguous() && b.is_contiguous()) return true;
  for (std::size_t d = 0; d < a.sizes().size(); ++d) {
    if (a.sizes()[d] > 1 && a.strides()[d] != b.strides()[d]) return false;
  }
  return true;
}

LayoutPtr layout_in(const Layout& layout, MemoryFormat format) {
  const bool is_so = format == MemoryFormat::contiguous ? layout.is_contiguous() : layout.is_channels_last();
  if (is_so) return LayoutPtr::share(&layout);
  return make_layout(layout.dtype(), layout.sizes(), format);
}

Cut cut_along(const Layout& layout, int dim) {
  Cut cut{.rows = 1, .slab_bytes = size_of(layout.dtype())};
  bool is_slower = true;
  const Order order = memory_order(layout);
  for (const std::size_t d : std::span(order).first(layout.sizes().size())) {
    const auto size = static_cast<std::uint64_t>(layout.sizes()[d]);
    if (d == static_cast<std::size_t>(dim)) {
      is_slower = false;
    } else if (is_slower) {
      cut.rows *= size;
    } else {
      cut.slab_bytes *= size;
    }
  }
  return cut;
}

Cut cut_along(std::span<const std::int64_t> sizes, DType dtype, int dim) {
  Cut cut{.rows = 1, .slab_bytes = size_of(dtype)};
  const auto at = static_cast<std::size_t>(dim);
  for (const std::int64_t size : sizes.first(at)) cut.rows *= static_cast<std::uint64_t>(size);
  for (const std::int64_t size : sizes.subspan(at + 1)) cut.slab_bytes *= static_cast<std::uint64_t>(size);
  return cut;
}

LayoutPtr resized_in_order(const Layout& layout, std::span<const std::int64_t> sizes) {
  std::array<std::int64_t, max_dimensions> strides{};
  std::int64_t stride = 1;
  const Order order = memory_order(layout);
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride *= std::max<std::int64_t>(sizes[order[i]], 1);
  }
  return make_layout(layout.dtype(), sizes, std::span(strides).first(sizes.size()));
}

void Packing::refuse(const Tensor& tensor, const Layout& layout, const Name& name) const {
  arguments_.fail("{} has strides {}, expected {}: a persistent collective works on the buffers themselves",
                  name, to_string(tensor.strides()), to_string(layout.strides()));
}

bool Packing::is_captured(backend::StreamRef stream) const {
  Runtime& runtime = arguments_.runtime();
  const auto captures = [&](Device device) {
    return !device.is_host() && runtime.backend().is_capturing(current_stream_ref(runtime, device.index()));
  };
  const auto some_captures = [&](std::span<const Tensor> tensors) {
    return std::ranges::any_of(tensors, captures, &Tensor::device);
  };
  return runtime.backend().is_capturing(stream) || some_captures(participants_.inputs) ||
         some_captures(participants_.outputs) ||
         std::ranges::any_of(
             participants_.rows,
             [&](const auto& row) { return !row.empty() && captures(row.front().device()); }) ||
         std::ranges::any_of(participants_.devices, captures) ||
         std::ranges::any_of(participants_.streams, [&](const Stream& given) {
           return runtime.backend().is_capturing(StreamAccess::ref(given));
         });
}

void Packing::refuse_in_capture(const Tensor& tensor, const Layout& layout, const Name& name,
                                backend::StreamRef stream) {
  if (is_eager_) return;
  if (is_captured(stream)) {
    arguments_.unsupported(
        "{} has strides {}, expected {}: operands of a call that is being captured must be dense and laid "
        "out alike",
        name, to_string(tensor.strides()), to_string(layout.strides()));
  }
  is_eager_ = true;
}

void Packing::refuse_pageable_in_capture(const Name& name, backend::StreamRef stream) {
  if (is_eager_ || !is_captured(stream)) return;
  arguments_.unsupported(
      "{} is in pageable host memory, expected pinned memory: a call that is being captured is replayed "
      "without the host",
      name);
}

const Tensor& Packing::input(const Tensor& input, const Layout& layout, const Name& name) {
  const bool on_host = input.device().is_host();
  const bool is_pageable = on_host && !input.is_pinned();
  const bool is_in_order = same_order(*input.layout(), layout);
  if (is_in_order && !is_pageable) return input;
  if (policy_ == PackingPolicy::refuse) {
    if (is_in_order) return input;  // whether pageable memory will do is the caller's to say
    refuse(input, layout, name);
  }
  const Stream stream = on_host ? default_stream(0) : current_stream(input.device().index());
  if (is_pageable) refuse_pageable_in_capture(name, StreamAccess::ref(stream));
  refuse_in_capture(input, layout, name, StreamAccess::ref(stream));
  // Pinned, because CUDA lets no other thread launch on a device while it waits there to copy from pageable
  // memory: where kernels of several devices wait for one another, the next of them would never come.
  Tensor packed = allocate_tensor(LayoutPtr::share(&layout), input.device(),
                                  on_host ? HostMemory::pinned : HostMemory::pageable, "Packing::input");
  packed.copy_(input);
  if (!on_host) input.record_stream(stream);
  return inputs_.emplace_back(std::move(packed));
}

const Tensor& Packing::output(const Tensor& output, const Layout& layout, const Name& name,
                              const Stream& stream) {
  if (same_order(*output.layout(), layout)) return output;
  if (policy_ == PackingPolicy::refuse) refuse(output, layout, name);
  refuse_in_capture(output, layout, name, StreamAccess::ref(stream));
  const StreamGuard guard(stream);
  Tensor stand_in =
      allocate_tensor(LayoutPtr::share(&layout), output.device(), HostMemory::pageable, "Packing::output");
  return outputs_.emplace_back(Output{output, std::move(stand_in), stream}).stand_in;
}

void Packing::check_output(const Tensor& output, const Layout& layout, const Name& name,
                           const Stream& stream) {
  if (!same_order(*output.layout(), layout))
    refuse_in_capture(output, layout, name, StreamAccess::ref(stream));
}

const Tensor& Packing::host_output(const Tensor& output, const Layout& layout, const Name& name) {
  if (same_order(*output.layout(), layout) && output.is_pinned()) return output;
  if (policy_ == PackingPolicy::refuse) {
    if (!output.is_pinned()) {
      arguments_.fail(
          "{} is in pageable host memory, expected pinned memory: a persistent collective is replayed "
          "without the host",
          name);
    }
    refuse(output, layout, name);
  }
  const Stream stream = default_stream(0);
  if (!output.is_pinned()) refuse_pageable_in_capture(name, StreamAccess::ref(stream));
  refuse_in_capture(output, layout, name, StreamAccess::ref(stream));
  Tensor stand_in =
      allocate_tensor(LayoutPtr::share(&layout), Device::host(), HostMemory::pinned, "Packing::host_output");
  return outputs_.emplace_back(Output{output, std::move(stand_in), stream}).stand_in;
}

void Packing::unpack() {
  for (const Output& output : outputs_) {
    if (output.output.device().is_host()) {  // it copies at once
      output.output.copy_(output.stand_in);
      continue;
    }
    const StreamGuard guard(output.stream);
    output.output.copy_(output.stand_in);
    output.output.record_stream(output.stream);
  }
}

}  // namespace tutti::collectives
