// SPDX-License-Identifier: Apache-2.0
#include "allocator/blocks/shareable_memory.hpp"
#include "allocator/graph_pools/graph_captures.hpp"
#include "collectives/communicator/team_call.hpp"
#include "storage/storage.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

/// What a call works on where that is not the caller's own memory.
namespace tutti::collectives {
namespace {

LayoutPtr contiguous_layout(const Tensor& tensor) {
  return layout_in(*tensor.layout(), MemoryFormat::contiguous);
}

/// Copies of rows, each from one place to one.
class RowCopies {
 public:
  void add(const backend::Copy2D& copy) {
    // A segment has no more rows.
    constexpr std::uint64_t most_rows = std::numeric_limits<std::uint32_t>::max();
    for (std::uint64_t row = 0; row < copy.rows && copy.row_bytes > 0;) {
      const std::uint64_t rows = std::min(copy.rows - row, most_rows);
      const auto index = static_cast<std::uint32_t>(pointers_.size());
      pointers_.push_back(const_cast<std::byte*>(copy.source) + row * copy.source_pitch);
      pointers_.push_back(copy.target + row * copy.target_pitch);
      segments_.push_back({.row_bytes = copy.row_bytes,
                           .source_pitch = copy.source_pitch,
                           .target_pitch = copy.target_pitch,
                           .rows = static_cast<std::uint32_t>(rows),
                           .source = index,
                           .first_target = index + 1,
                           .target_count = 1});
      row += rows;
    }
  }
  void queue(backend::Backend& backend, backend::StreamRef stream, std::uint32_t most_multiprocessors) const {
    if (segments_.empty()) return;
    backend.fan_out(
        stream, {.segments = segments_, .pointers = pointers_, .most_multiprocessors = most_multiprocessors});
  }

 private:
  std::vector<backend::FanOutSegment> segments_;
  std::vector<std::byte*> pointers_;
};

}  // namespace

Tensor TeamCall::dense(const Tensor& tensor, const Name& name) {
  return tensor.is_contiguous() ? tensor : packing_.input(tensor, *contiguous_layout(tensor), name);
}

void TeamCall::check_dense_in_capture(const Tensor& output, const Name& name, std::size_t local) {
  if (!output.is_contiguous()) packing_.check_output(output, *contiguous_layout(output), name, stream(local));
}

void TeamCall::set_input(std::size_t local, std::size_t column, const Tensor& tensor, const Name& name) {
  inputs_[local * columns() + column] = dense(tensor, name);
}

void TeamCall::set_output(std::size_t local, std::size_t column, const Tensor& tensor, const Name& name) {
  outputs_[local * columns() + column] =
      tensor.is_contiguous() ? tensor
                             : packing_.output(tensor, *contiguous_layout(tensor), name, stream(local));
}

void TeamCall::set_input_whole(std::size_t local, const Tensor& whole, const Name& name,
                               const PartsInRows& parts) {
  set_input(local, 0, whole, name);
  Tensor& operand = inputs_[local];
  const Tensor flat = tutti::empty({whole.numel()}, {.dtype = whole.dtype(), .device = whole.device()});
  copy_rows(RowsTo::parts, local, operand, flat, parts);
  wholes_.push_back({local, std::exchange(operand, flat), flat, parts, false});
}

void TeamCall::set_output_whole(std::size_t local, const Tensor& whole, const Name& name,
                                const PartsInRows& parts) {
  set_output(local, 0, whole, name);
  Tensor& operand = outputs_[local];
  const Tensor flat = tutti::empty({whole.numel()}, {.dtype = whole.dtype(), .device = whole.device()});
  wholes_.push_back({local, std::exchange(operand, flat), flat, parts, true});
}

void TeamCall::copy_rows(RowsTo to, std::size_t local, const Tensor& whole, const Tensor& parts,
                         const PartsInRows& shape) {
  const std::uint64_t pitch = whole.nbytes() / shape.rows;
  std::byte* in_whole = address_of(whole);
  std::byte* part = address_of(parts);
  RowCopies copies;
  for (const std::int64_t elements : shape.elements) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(elements) * size_of(whole.dtype());
    backend::Copy2D copy{.target = part,
                         .target_pitch = bytes / shape.rows,
                         .source = in_whole,
                         .source_pitch = pitch,
                         .row_bytes = bytes / shape.rows,
                         .rows = shape.rows};
    if (to == RowsTo::whole) {
      copy.target = in_whole;
      copy.source = part;
      std::swap(copy.target_pitch, copy.source_pitch);
    }
    copies.add(copy);
    part += bytes;
    in_whole += copy.row_bytes;
  }
  copies.queue(context_.runtime().backend(), streams_[local], team_.settings().most_multiprocessors);
}

void TeamCall::fill_wholes() {
  for (const Whole& each : wholes_) {
    if (each.is_output) copy_rows(RowsTo::whole, each.local, each.whole, each.parts, each.shape);
  }
}

void TeamCall::leave_kept_parts_alone() {
  for (const Operand& operand : in_place_)
    request_.leave_alone_in_team(members(), first_local() + operand.local, operand.column);
}

void TeamCall::copy_inputs_in_place() {
  // Equal parts are taken where as much is put: rounds that put them see to the order.
  const transport::team::RoundPlan* const rounds = transport::rounds_of(*plan_);
  if (request_.parts.empty() && rounds != nullptr && rounds->protocol != transport::team::Protocol::direct)
    return;
  std::vector<RowCopies> copies(locals());
  for (const auto& [local, column] : in_place_) {
    Tensor& input = inputs_[local * columns() + column];
    const Tensor copy = tutti::empty(input.sizes(), {.dtype = input.dtype(), .device = input.device()});
    // Of equal parts the member's own stays where it is, and nobody takes it from the copy.
    const std::uint64_t kept = request_.parts.empty() ? input.nbytes() / members() : 0;
    const std::uint64_t before = kept * (first_local() + local);
    const auto add = [&](std::uint64_t begin, std::uint64_t end) {
      copies[local].add({.target = address_of(copy) + begin,
                         .source = address_of(input) + begin,
                         .row_bytes = end - begin});
    };
    add(0, before);
    add(before + kept, input.nbytes());
    input = copy;
  }
  for (std::size_t local = 0; local < copies.size(); ++local)
    copies[local].queue(context_.runtime().backend(), streams_[local], team_.settings().most_multiprocessors);
}

const std::byte* TeamCall::add_stand_in(std::size_t local, transport::BufferId buffer) {
  const std::size_t side = members() * columns();
  const bool is_output = buffer >= side;
  Tensor& operand = (is_output ? outputs_ : inputs_)[buffer % side - first_local() * columns()];
  const backend::StreamRef stream = streams_[local];
  // Others open the caching allocator's segments alone, whatever allocator tensors come from.
  Runtime& runtime = context_.runtime();
  detail::IntrusivePtr<Storage> storage =
      DeviceStorage::allocate_from(shareable(runtime.part<GraphCaptures>().pool_of(stream)), runtime,
                                   stream.device, operand.nbytes(), stream);
  void* const memory = storage->data();
  const Tensor stand_in(std::move(storage), TensorView(memory, operand.layout(), context_.devices()[local]));
  if (!is_output || request_.is_left_alone(buffer)) {
    context_.runtime().backend().copy(
        streams_[local],
        {.target = address_of(stand_in), .source = address_of(operand), .row_bytes = operand.nbytes()});
  }
  stand_ins_.push_back({local, std::exchange(operand, stand_in), stand_in, is_output});
  return operands_.addresses[buffer] = address_of(stand_in);
}

void TeamCall::copy_stand_ins_back() {
  for (const StandIn& replaced : stand_ins_) {
    if (!replaced.is_output) continue;
    context_.runtime().backend().copy(streams_[replaced.local], {.target = address_of(replaced.operand),
                                                                 .source = address_of(replaced.stand_in),
                                                                 .row_bytes = replaced.operand.nbytes()});
  }
}

}  // namespace tutti::collectives
