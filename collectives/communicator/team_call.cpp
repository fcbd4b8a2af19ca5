// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/team_call.hpp"

#include "backend/work_label.hpp"
#include "transport/launch/launch.hpp"
#include "transport/select/select.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace tutti::collectives {
namespace {

using transport::team::Protocol;
using transport::team::RoundPlan;
using transport::team::Signature;

}  // namespace

TeamCall::TeamCall(TeamContext& context, CollectiveForm form, StreamList streams)
    : TeamTurn(context, name_of(form), streams),
      request_(context.scratch().request),
      inputs_(context.scratch().inputs),
      outputs_(context.scratch().outputs),
      operands_(context.scratch().operands) {
  request_.reset(form.collective, name_);
  operands_.operation = {};
  signature_.collective = form.collective;
  if (form.takes_lists) signature_.operands = transport::team::CallOperands::lists;
}

void TeamCall::set_root(int root) {
  if (root < 0 || static_cast<std::size_t>(root) >= members()) {
    arguments_.fail("root is {}, expected 0 to {}", root, members() - 1);
  }
  root_ = static_cast<std::size_t>(root);
  signature_.root = static_cast<std::int16_t>(root);
}

void TeamCall::set_operation(const ReduceOp& operation) {
  if (operation.kind() == ReduceKind::compiled) context_.require_unbounded(arguments_);
  request_.reduced().kind = operation.kind();
  operands_.operation = operation;
  signature_.set_operation(operation);
}

void TeamCall::set_alike(DType dtype, std::span<const std::int64_t> sizes, int dim) {
  signature_.dtype = dtype;
  signature_.dim = static_cast<std::int16_t>(dim);
  signature_.size_count = 0;
  for (const std::int64_t size : sizes) {
    signature_.add_to_shape(static_cast<std::uint64_t>(size));
    signature_.show_size(static_cast<std::uint64_t>(size));
  }
  signature_.dims = static_cast<std::uint8_t>(std::min(sizes.size(), Signature::most_sizes));
}

void TeamCall::show_list(std::span<const Tensor> tensors) {
  signature_.hide_sizes();
  if (tensors.size() < 2) return;
  for (const Tensor& tensor : tensors.first(std::min(tensors.size(), Signature::most_sizes + 1)))
    signature_.show_tensor(static_cast<std::uint64_t>(tensor.numel()), tensor.dtype());
}

void TeamCall::one_per_member(std::size_t count, std::string_view argument) const {
  if (count != locals()) {
    arguments_.fail("{} has {} entries, expected one per local member, {}", argument, count, locals());
  }
}

void TeamCall::on_member(const Tensor& tensor, const Name& name, std::size_t local) const {
  arguments_.usable(tensor, name);
  if (tensor.device() != context_.devices()[local]) {
    arguments_.fail("{} is on {}, expected {}, the device of member {}", name, to_string(tensor.device()),
                    to_string(context_.devices()[local]), first_local() + local);
  }
}

void TeamCall::check_alike(const MemberOperands& operands, std::string_view argument,
                           Likeness likeness) const {
  one_per_member(operands.size(), argument);
  const std::span<const Tensor> first = operands[0];
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::span<const Tensor> tensors = operands[i];
    if (tensors.size() != first.size()) {
      arguments_.fail("{}[{}] has {} tensors, expected {} as {}[0]", argument, i, tensors.size(),
                      first.size(), argument);
    }
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      if (is_plain_as(first[t], tensors[t], context_.devices()[i])) continue;
      const Name name = operands.name(argument, i, t);
      on_member(tensors[t], name, i);
      if (i == 0) continue;
      const Name like = operands.name(argument, 0, t);
      arguments_.same_dtype(tensors[t], name, first[t].dtype(), like);
      if (likeness == Likeness::sizes) {
        arguments_.same_sizes(tensors[t], name, first[t].sizes(), like);
      } else if (tensors[t].numel() != first[t].numel()) {
        arguments_.fail("{} has {} elements, expected {} as {}", name, tensors[t].numel(), first[t].numel(),
                        like);
      }
    }
  }
}

void TeamCall::check_output(const Tensor& out, const Name& name, std::size_t local, const Tensor& like,
                            const Name& like_name) const {
  if (is_plain_as(like, out, context_.devices()[local]) && !out.is_read_only()) return;
  on_member(out, name, local);
  arguments_.same_dtype(out, name, like.dtype(), like_name);
  arguments_.same_sizes(out, name, like.sizes(), like_name);
  arguments_.writable(out, name);
}

void TeamCall::begin(std::span<const Tensor> tensors) {
  request_.columns = tensors.size();
  for (const Tensor& tensor : tensors) {
    const auto elements = static_cast<std::uint64_t>(tensor.numel());
    request_.add_column(elements, tensor.dtype());
    signature_.elements += elements;
    signature_.add_to_shape(elements);
    signature_.add_to_shape(static_cast<std::uint64_t>(tensor.dtype()));
  }
  if (!tensors.empty()) signature_.dtype = tensors.front().dtype();
  show_list(tensors);
  begin();
}

void TeamCall::begin(std::uint64_t elements, DType dtype) {
  signature_.dtype = dtype;
  signature_.elements = elements;
  signature_.add_to_shape(elements);
  signature_.add_to_shape(static_cast<std::uint64_t>(dtype));
  begin();
}

void TeamCall::begin() {
  signature_.tensors = static_cast<std::uint32_t>(columns());
  context_.launcher().begin(streams_);
  inputs_.resize(locals() * columns());
  outputs_.resize(locals() * columns());
}

std::uint64_t TeamCall::post_without_work() {
  context_.launcher().begin(streams_);
  if (is_captured()) arguments_.unsupported("the current stream is being captured");
  post();
  const watching::CallRange range([this] { return watched(nullptr); });
  carry_out_posted([this] {
    for (std::size_t local = 0; local < streams_.size(); ++local)
      team_.progress().mark(local, sequence_, streams_[local]);
  });
  return sequence_;
}

void TeamCall::run(const std::function<void()>& then) {
  leave_own_copies_alone();
  plan();
  post();
  carry_out_posted([&] {
    enqueue();
    if (then) then();
  });
}

void TeamCall::run_agreed(bool has_rows_apart,
                          const std::function<void(std::span<const std::uint64_t>)>& agree) {
  transport::Problem outline = context_.outline_of(request_, root());
  outline.is_captured = is_captured();
  outline.is_outline = true;
  outline.shape.has_rows_apart = has_rows_apart;
  transport::require_possible(outline, context_.capabilities());
  post();
  carry_out_posted([&] {
    agree(team_.calls().agree(sequence_, signature_));
    plan();
    enqueue();
  });
}

void TeamCall::refuse_for_all(std::string_view what) {
  team_.abort().set(ErrorCode::invalid_argument, fmt::format("{} #{}: {}", name_, sequence_, what));
  team_.abort().require_running();
  throw Error(ErrorCode::internal, "TeamCall: a team that has been ended goes on");
}

void TeamCall::leave_own_copies_alone() {
  const bool has_root = traits_of(request_.collective).has_root;
  collectives::leave_own_copies_alone(
      request_, members(), root(), [&](std::size_t member, std::size_t column) {
        const std::optional<std::size_t> local = local_of(member);
        if (!local) return true;
        const Tensor& input = inputs_[*local * columns() + column];
        const Tensor& output = outputs_[*local * columns() + column];
        const std::uint64_t offset = has_root ? 0 : start_of_part(member, input);
        return !output.defined() || address_of(input) == address_of(output) + offset;
      });
}

std::uint64_t TeamCall::start_of_part(std::size_t member, const Tensor& part) const {
  if (request_.parts.empty()) return member * part.nbytes();
  return std::accumulate(request_.parts.begin(), request_.parts.begin() + static_cast<std::ptrdiff_t>(member),
                         std::uint64_t{0});
}

void TeamCall::plan() {
  if (request_.parts.empty()) leave_kept_parts_alone();
  plan_ = context_.plan_for(request_, root());
  if (!in_place_.empty()) copy_inputs_in_place();
  operands_.lanes.assign(members(), {});
  std::ranges::copy(streams_, operands_.lanes.begin() + static_cast<std::ptrdiff_t>(first_local()));
  temporaries_ = transport::allocate_temporaries(context_.runtime(), *plan_, operands_.lanes);
}

void TeamCall::keep_memory() const {
  TeamTurn::keep_memory([this](const auto& visit) {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      visit(inputs_[i], i / columns());
      visit(outputs_[i], i / columns());
    }
    for (const StandIn& replaced : stand_ins_) visit(replaced.operand, replaced.local);
    for (const Whole& each : wholes_) visit(each.whole, each.local);
    for (const auto& [memory, local] : kept_) visit(memory, local);
  });
}

watching::WatchedCall TeamCall::watched(const transport::Plan* plan) const {
  watching::WatchedCall watched = TeamTurn::watched(plan == nullptr ? PlanSummary{} : plan->summary);
  watched.name = request_.name;
  watched.bytes = request_.bytes();
  watched.explain = [plan] { return plan == nullptr ? std::string() : transport::to_text(*plan); };
  watched.member->sequence = sequence_;
  return watched;
}

template <class Work>
void TeamCall::carry_out_posted(const Work& work) {
  carry_out(work);
  team_.calls().has_queued(sequence_);
}

void TeamCall::enqueue() {
  const watching::CallRange range([this] { return watched(plan_.get()); });
  bind();
  try {
    const RoundPlan* const rounds = transport::rounds_of(*plan_);
    if (rounds != nullptr && rounds->protocol == Protocol::direct) expose(*rounds);
  } catch (...) {
    keep_memory();  // of copies to stand-ins that have been queued
    throw;
  }
  keep_memory();
  const backend::WorkLabel label(this, [](const void* call) {
    const TeamCall& self = *static_cast<const TeamCall*>(call);
    return fmt::format("{} of a communicator, by {} ({})", self.name_, self.plan_->summary.transport,
                       self.plan_->summary.algorithm);
  });
  transport::launch_of_team(context_.runtime(), *plan_, operands_, temporaries_,
                            {context_.launcher(), sequence_});
  context_.set_last_plan(plan_);
  copy_stand_ins_back();
  fill_wholes();
  packing_.unpack();
}

void TeamCall::bind() {
  const std::size_t side = members() * columns();
  operands_.addresses.assign(2 * side, nullptr);
  operands_.storages.clear();
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    operands_.addresses[first_local() * columns() + i] = address_of(inputs_[i]);
    operands_.addresses[side + first_local() * columns() + i] = address_of(outputs_[i]);
  }
}

void TeamCall::expose(const RoundPlan& rounds) {
  transport::team::Registrations& registrations = *team_.registrations();
  for (std::size_t local = 0; local < locals(); ++local) {
    for (const transport::BufferId buffer : rounds.exposed[local]) {
      const auto add = [&](const std::byte* address) {
        return registrations.add(sequence_, local, address, is_captured());
      };
      if (add(operands_.addresses[buffer])) continue;
      if (!add(add_stand_in(local, buffer))) {
        throw Error(
            ErrorCode::transport_failure,
            fmt::format("memory of member {} cannot be opened by other processes, nor can a copy of it: {}",
                        first_local() + local, registrations.refusal()));
      }
    }
  }
  registrations.wait(sequence_);
}

}  // namespace tutti::collectives
