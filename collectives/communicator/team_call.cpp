// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/team_call.hpp"

#include "backend/work_label.hpp"
#include "transport/launch/launch.hpp"
#include "transport/select/select.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace tutti::collectives {
namespace {

using transport::team::Protocol;
using transport::team::RoundPlan;

}  // namespace

TeamCall::TeamCall(TeamContext& context, CollectiveForm form, StreamList streams)
    : TeamTurn(context, name_of(form), streams),
      request_(context.scratch().request),
      checks_(arguments_, context.devices(), team_.membership()),
      operands_(context, packing_, streams_) {
  request_.reset(form.collective, name_, 1, &context.scratch().spare_operands);
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
  context_.scratch().operands.operation = operation;
  signature_.set_operation(operation);
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
  signature_.show_list(tensors);
  begin();
}

void TeamCall::begin(std::uint64_t elements, DType dtype) {
  signature_.dtype = dtype;
  signature_.elements = elements;
  signature_.add_to_shape(elements);
  signature_.add_to_shape(static_cast<std::uint64_t>(dtype));
  begin();
}

void TeamCall::begin_parts(std::span<const std::int64_t> sizes, DType dtype) {
  const bool reduces = traits_of(request_.collective).reduces;
  const std::uint64_t unit = reduces ? 1 : size_of(dtype);
  const bool are_equal = std::ranges::all_of(sizes, [&](std::int64_t size) { return size == sizes.front(); });
  std::uint64_t total = 0;
  for (const std::int64_t size : sizes) {
    const auto elements = static_cast<std::uint64_t>(size);
    total += elements;
    if (!are_equal) request_.parts.push_back(elements * unit);
    signature_.add_to_shape(elements);
  }
  request_.add_column(reduces || !are_equal ? total : total / members(), dtype);
  signature_.show_parts(sizes);
  begin(total, dtype);
}

void TeamCall::begin() {
  signature_.tensors = static_cast<std::uint32_t>(request_.columns);
  context_.launcher().begin(streams_);
  operands_.begin();
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
  operands_.leave_own_copies_alone(root_);
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

void TeamCall::plan() {
  operands_.leave_kept_parts_alone();
  plan_ = context_.plan_for(request_, root_);
  operands_.copy_inputs_in_place(*plan_);
  std::vector<backend::StreamRef>& lanes = context_.scratch().operands.lanes;
  lanes.assign(members(), {});
  std::ranges::copy(streams_, lanes.begin() + static_cast<std::ptrdiff_t>(first_local()));
  temporaries_ = transport::allocate_temporaries(context_.runtime(), *plan_, lanes);
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
  const auto keep = [this] { keep_memory([this](const auto& visit) { operands_.visit_memory(visit); }); };
  transport::Operands& operands = operands_.bind();
  try {
    const RoundPlan* const rounds = transport::rounds_of(*plan_);
    if (rounds != nullptr && rounds->protocol == Protocol::direct)
      operands_.expose(*rounds, sequence_, is_captured());
    operands_.replace_closed(*plan_);
    if (operands_.has_stand_ins()) range.note_stand_ins();
  } catch (...) {
    keep();  // of copies to stand-ins that have been queued
    throw;
  }
  keep();
  const backend::WorkLabel label(this, [](const void* call) {
    const TeamCall& self = *static_cast<const TeamCall*>(call);
    return fmt::format("{} of a communicator, by {} ({})", self.name_, self.plan_->summary.transport,
                       self.plan_->summary.algorithm);
  });
  transport::launch_of_team(context_.runtime(), *plan_, operands, temporaries_,
                            {context_.launcher(), sequence_});
  context_.set_last_plan(plan_, operands_.has_stand_ins());
  operands_.copy_back();
}

}  // namespace tutti::collectives
