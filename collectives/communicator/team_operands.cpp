// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/team_operands.hpp"

#include "allocator/blocks/shareable_memory.hpp"
#include "allocator/graph_pools/graph_captures.hpp"
#include "device/foreign_memory.hpp"
#include "storage/storage.hpp"
#include "tutti/error.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti::collectives {
namespace {

LayoutPtr contiguous_layout(const Tensor& tensor) {
  return layout_in(*tensor.layout(), MemoryFormat::contiguous);
}

std::byte* address_of(const Tensor& tensor) {
  return tensor.defined() ? static_cast<std::byte*>(tensor.data()) : nullptr;
}

/// Returns the offset of a member's part in a whole, in bytes.
std::uint64_t start_of_part(const Request& request, std::size_t member, const Tensor& part) {
  if (request.parts.empty()) return member * part.nbytes();
  return std::accumulate(request.parts.begin(), request.parts.begin() + static_cast<std::ptrdiff_t>(member),
                         std::uint64_t{0});
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
  void queue(TeamContext& context, backend::StreamRef stream) const {
    if (segments_.empty()) return;
    context.runtime().backend().fan_out(
        stream, {.segments = segments_,
                 .pointers = pointers_,
                 .most_multiprocessors = context.team().settings().most_multiprocessors});
  }

 private:
  std::vector<backend::FanOutSegment> segments_;
  std::vector<std::byte*> pointers_;
};

}  // namespace

TeamOperands::TeamOperands(TeamContext& context, Packing& packing,
                           const std::vector<backend::StreamRef>& streams)
    : context_(context),
      packing_(packing),
      streams_(streams),
      request_(context.scratch().request),
      inputs_(context.scratch().inputs),
      outputs_(context.scratch().outputs),
      bound_(context.scratch().operands) {
  bound_.operation = {};
}

void TeamOperands::begin() {
  inputs_.resize(streams_.size() * columns());
  outputs_.resize(streams_.size() * columns());
}

void TeamOperands::clear() {
  inputs_.clear();
  outputs_.clear();
  stand_ins_.clear();
  wholes_.clear();
  in_place_.clear();
  kept_.clear();
}

Tensor TeamOperands::dense(const Tensor& tensor, const Name& name) {
  return tensor.is_contiguous() ? tensor : packing_.input(tensor, *contiguous_layout(tensor), name);
}

void TeamOperands::check_dense_in_capture(const Tensor& output, const Name& name, std::size_t local) {
  if (!output.is_contiguous()) packing_.check_output(output, *contiguous_layout(output), name, stream(local));
}

void TeamOperands::set_input(std::size_t local, std::size_t column, const Tensor& tensor, const Name& name) {
  inputs_[local * columns() + column] = dense(tensor, name);
}

void TeamOperands::set_output(std::size_t local, std::size_t column, const Tensor& tensor, const Name& name) {
  outputs_[local * columns() + column] =
      tensor.is_contiguous() ? tensor
                             : packing_.output(tensor, *contiguous_layout(tensor), name, stream(local));
}

void TeamOperands::set_input_whole(std::size_t local, const Tensor& whole, const Name& name,
                                   const PartsInRows& parts) {
  set_input(local, 0, whole, name);
  Tensor& operand = inputs_[local];
  const Tensor flat = tutti::empty({whole.numel()}, {.dtype = whole.dtype(), .device = whole.device()});
  copy_rows(RowsTo::parts, local, operand, flat, parts);
  wholes_.push_back({local, std::exchange(operand, flat), flat, parts, false});
}

void TeamOperands::set_output_whole(std::size_t local, const Tensor& whole, const Name& name,
                                    const PartsInRows& parts) {
  set_output(local, 0, whole, name);
  Tensor& operand = outputs_[local];
  const Tensor flat = tutti::empty({whole.numel()}, {.dtype = whole.dtype(), .device = whole.device()});
  wholes_.push_back({local, std::exchange(operand, flat), flat, parts, true});
}

void TeamOperands::copy_rows(RowsTo to, std::size_t local, const Tensor& whole, const Tensor& parts,
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
  copies.queue(context_, streams_[local]);
}

void TeamOperands::leave_kept_parts_alone() {
  if (!request_.parts.empty()) return;
  for (const Operand& operand : in_place_)
    request_.leave_alone_in_team(membership().member_count(), membership().first_local() + operand.local,
                                 operand.column);
}

void TeamOperands::copy_inputs_in_place(const transport::Plan& plan) {
  if (in_place_.empty()) return;
  // Equal parts are taken where as much is put: rounds that put or swap them see to the order.
  const transport::team::RoundPlan* const rounds = transport::rounds_of(plan);
  if (request_.parts.empty() && rounds != nullptr &&
      (rounds->protocol != transport::team::Protocol::direct || rounds->swaps))
    return;
  std::vector<RowCopies> copies(streams_.size());
  for (const auto& [local, column] : in_place_) {
    Tensor& input = inputs_[local * columns() + column];
    const Tensor copy = tutti::empty(input.sizes(), {.dtype = input.dtype(), .device = input.device()});
    // Of equal parts the member's own stays where it is, and nobody takes it from the copy.
    const std::uint64_t kept = request_.parts.empty() ? input.nbytes() / membership().member_count() : 0;
    const std::uint64_t before = kept * (membership().first_local() + local);
    const auto add = [&](std::uint64_t begin, std::uint64_t end) {
      copies[local].add({.target = address_of(copy) + begin,
                         .source = address_of(input) + begin,
                         .row_bytes = end - begin});
    };
    add(0, before);
    add(before + kept, input.nbytes());
    input = copy;
  }
  for (std::size_t local = 0; local < copies.size(); ++local) copies[local].queue(context_, streams_[local]);
}

const std::byte* TeamOperands::add_stand_in(std::size_t local, transport::BufferId buffer) {
  const std::size_t side = membership().member_count() * columns();
  const bool is_output = buffer >= side;
  Tensor& operand = (is_output ? outputs_ : inputs_)[buffer % side - membership().first_local() * columns()];
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
  return bound_.addresses[buffer] = address_of(stand_in);
}

void TeamOperands::copy_back() {
  for (const StandIn& replaced : stand_ins_) {
    if (!replaced.is_output) continue;
    context_.runtime().backend().copy(streams_[replaced.local], {.target = address_of(replaced.operand),
                                                                 .source = address_of(replaced.stand_in),
                                                                 .row_bytes = replaced.operand.nbytes()});
  }
  for (const Whole& each : wholes_) {
    if (each.is_output) copy_rows(RowsTo::whole, each.local, each.whole, each.parts, each.shape);
  }
  packing_.unpack();
}

void TeamOperands::leave_own_copies_alone(std::size_t root) {
  const bool has_root = traits_of(request_.collective).has_root;
  collectives::leave_own_copies_alone(
      request_, membership().member_count(), root, [&](std::size_t member, std::size_t column) {
        if (!membership().is_local(member)) return true;
        const std::size_t operand = (member - membership().first_local()) * columns() + column;
        const Tensor& input = inputs_[operand];
        const Tensor& output = outputs_[operand];
        const std::uint64_t offset = has_root ? 0 : start_of_part(request_, member, input);
        return !output.defined() || address_of(input) == address_of(output) + offset;
      });
}

transport::Operands& TeamOperands::bind() {
  const std::size_t side = membership().member_count() * columns();
  bound_.addresses.assign(2 * side, nullptr);
  bound_.storages.clear();
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    bound_.addresses[membership().first_local() * columns() + i] = address_of(inputs_[i]);
    bound_.addresses[side + membership().first_local() * columns() + i] = address_of(outputs_[i]);
  }
  return bound_;
}

void TeamOperands::expose(const transport::team::RoundPlan& rounds, std::uint64_t sequence,
                          bool is_captured) {
  transport::team::Registrations& registrations = *context_.team().registrations();
  for (std::size_t local = 0; local < streams_.size(); ++local) {
    for (const transport::BufferId buffer : rounds.exposed[local]) {
      const auto add = [&](const std::byte* address) {
        return registrations.add(sequence, local, {address, rounds.reaches[buffer]}, is_captured);
      };
      if (add(bound_.addresses[buffer])) continue;
      context_.tell_of_stand_ins(local, registrations.refusal(), bound_.addresses[buffer]);
      if (!add(add_stand_in(local, buffer))) {
        throw Error(
            ErrorCode::transport_failure,
            fmt::format("memory of member {} cannot be opened by other processes, nor can a copy of it: {}",
                        membership().first_local() + local, registrations.refusal()));
      }
    }
  }
  registrations.wait(sequence);
}

void TeamOperands::replace_closed(const transport::Plan& plan) {
  const std::size_t side = membership().member_count() * columns();
  for (const transport::PeerUse& use : plan.peer_uses) {
    const std::size_t index = use.buffer % side - membership().first_local() * columns();
    const Tensor& operand = (use.buffer >= side ? outputs_ : inputs_)[index];
    if (!operand.defined() || is_open_to_all(operand.storage().get())) continue;
    auto& foreign = context_.runtime().part<ForeignMemory>();
    if (foreign.is_open_to(membership().devices(), {address_of(operand), operand.nbytes()})) continue;
    const std::size_t local = index / columns();
    context_.tell_of_stand_ins(local, closed_to_peers, address_of(operand));
    static_cast<void>(add_stand_in(local, use.buffer));
  }
}

}  // namespace tutti::collectives
