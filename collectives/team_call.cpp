// SPDX-License-Identifier: Apache-2.0
#include "collectives/team_call.hpp"

#include "backend/thread.hpp"
#include "storage.hpp"
#include "transport/launch.hpp"
#include "tutti/error.hpp"

#include <array>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tutti::collectives {
namespace {

using transport::PlanKey;
using transport::ranks::Protocol;
using transport::ranks::RoundPlan;

LayoutPtr contiguous_layout(const Tensor& tensor) {
  return layout_in(*tensor.layout(), MemoryFormat::contiguous);
}

}  // namespace

TeamCall::TeamCall(TeamContext& context, Collective collective, StreamList streams)
    : context_(context.require_own_process()),
      team_(context.team),
      lock_(context.team.calls_mutex()),
      arguments_(context.runtime, name_of(collective)),
      packing_(arguments_, PackingPolicy::copy, Participants{.devices = context.devices}),
      streams_(context.scratch.streams),
      request_(context.scratch.request),
      inputs_(context.scratch.inputs),
      outputs_(context.scratch.outputs) {
  request_.clear();
  request_.collective = collective;
  signature_.collective = collective;
  arguments_.streams(streams, context.devices, "own member");
  for (std::size_t own_member = 0; own_member < streams.size(); ++own_member)
    guards_[own_member].emplace(streams[own_member]);
  streams_.clear();
  for (const Device device : context.devices)
    streams_.push_back(current_stream_ref(context.runtime, device.index()));
}

TeamCall::~TeamCall() {
  context_.launcher.abandon();
  inputs_.clear();
  outputs_.clear();
}

void TeamCall::set_root(int root) {
  if (root < 0 || static_cast<std::size_t>(root) >= members()) {
    arguments_.fail("root is {}, expected 0 to {}", root, members() - 1);
  }
  request_.root = static_cast<std::size_t>(root);
  signature_.root = static_cast<std::int16_t>(root);
}

void TeamCall::one_per_member(std::size_t count, std::string_view argument) const {
  if (count != locals()) {
    arguments_.fail("{} has {} entries, expected one per own member, {}", argument, count, locals());
  }
}

void TeamCall::on_member(const Tensor& tensor, const Name& name, std::size_t own_member) const {
  arguments_.usable(tensor, name);
  if (tensor.device() != context_.devices[own_member]) {
    arguments_.fail("{} is on {}, expected {}, the device of member {}", name, to_string(tensor.device()),
                    to_string(context_.devices[own_member]), first() + own_member);
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

void TeamCall::check_output(const Tensor& out, const Name& name, std::size_t own_member, const Tensor& like,
                            const Name& like_name) const {
  on_member(out, name, own_member);
  arguments_.same_dtype(out, name, like.dtype(), like_name);
  arguments_.same_sizes(out, name, like.sizes(), like_name);
  arguments_.writable(out, name);
}

void TeamCall::begin(std::span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors)
    request_.columns.push_back({static_cast<std::uint64_t>(tensor.numel()), tensor.dtype()});
  begin();
}

void TeamCall::begin(const TeamColumn& column) {
  request_.columns.push_back(column);
  begin();
}

void TeamCall::begin() {
  signature_.tensors = static_cast<std::uint32_t>(columns().size());
  if (!columns().empty()) signature_.dtype = columns().front().dtype;
  for (const TeamColumn& column : columns()) {
    signature_.elements += column.elements;
    signature_.add_to_shape(column.elements);
    signature_.add_to_shape(static_cast<std::uint64_t>(column.dtype));
  }
  context_.launcher.begin(streams_);
  inputs_.resize(locals() * columns().size());
  outputs_.resize(locals() * columns().size());
}

void TeamCall::set_input(std::size_t own_member, std::size_t column, const Tensor& tensor, const Name& name) {
  inputs_[own_member * columns().size() + column] =
      tensor.is_contiguous() ? tensor : packing_.input(tensor, *contiguous_layout(tensor), name);
}

void TeamCall::set_output(std::size_t own_member, std::size_t column, const Tensor& tensor,
                          const Name& name) {
  outputs_[own_member * columns().size() + column] =
      tensor.is_contiguous() ? tensor
                             : packing_.output(tensor, *contiguous_layout(tensor), name, stream(own_member));
}

std::uint64_t TeamCall::post_without_work() {
  context_.launcher.begin(streams_);
  if (context_.launcher.captured()) arguments_.unsupported("the current stream is being captured");
  post();
  carry_out([this] { context_.launcher.finish(sequence_, streams_); });
  return sequence_;
}

void TeamCall::post() {
  require_transport(arguments_, context_, request_);
  choose_transport();
  if (route_.is_relayed() && request_.of_one_tensor() == Collective::reduce_add) add_shares();
  sequence_ = team_.post(signature_, context_.launcher.captured().has_value());
}

void TeamCall::choose_transport() {
  const bool is_captured = context_.launcher.captured().has_value();
  route_ = choose_route(context_, request_, is_captured);
  if (!is_captured) return;
  if (!route_.is_by_nccl() && team_.spans_hosts()) {
    arguments_.unsupported(
        "the current stream is being captured, and of what goes between hosts only NCCL's calls can be "
        "replayed; this is none: {}",
        to_words(route_.nccl, context_, request_));
  }
  if (route_.is_by_nccl() && !context_.nccl->is_connected()) {
    arguments_.unsupported(
        "the current stream is being captured before the first call that goes by NCCL: make one such call "
        "beforehand");
  }
}

void TeamCall::keep_memory() {
  if (const auto capture = context_.launcher.captured()) {
    auto tensors = std::make_shared<std::vector<Tensor>>(inputs_);
    tensors->insert(tensors->end(), outputs_.begin(), outputs_.end());
    for (const StandIn& replaced : stand_ins_) tensors->push_back(replaced.operand);
    context_.runtime.retain_until_graph_destroyed(*capture, std::move(tensors));
    return;
  }
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const Stream used = stream(i / columns().size());
    for (const Tensor* tensor : {&inputs_[i], &outputs_[i]}) {
      const Storage* const storage = tensor->storage().get();
      if (storage != nullptr && !is_recorded_on(*storage, StreamAccess::ref(used)))
        tensor->record_stream(used);
    }
  }
  for (const StandIn& replaced : stand_ins_) replaced.operand.record_stream(stream(replaced.own_member));
}

template <class Work>
void TeamCall::carry_out(Work work) {
  const auto give_up = [this](const backend::Escaped& escaped) {
    // Memory may be what there is none of.
    std::array<char, sizeof(backend::AbortReason::bytes)> text{};
    std::string call;
    try {
      call = to_string(signature_);
    } catch (const std::bad_alloc&) {
      call.clear();
    }
    const auto end = fmt::format_to_n(text.data(), text.size(), "rank {} failed in {}: {}", team_.rank(),
                                      call.empty() ? name_of(signature_.collective) : std::string_view(call),
                                      escaped.what);
    team_.abort(escaped.code, {text.data(), end.out});
    try {
      context_.launcher.end(streams_);
    } catch (const Error&) {
      // A stream that takes nothing more has failed, and with it what it has taken.
    }
  };
  try {
    work();
    context_.launcher.end(streams_);
    team_.has_queued(sequence_);
  } catch (...) {
    give_up(backend::Escaped::current());
    throw;
  }
}

void TeamCall::launch(std::span<const std::uint64_t> to_itself) {
  carry_out([&] {
    request_.to_itself.assign(to_itself.begin(), to_itself.end());
    if (route_.is_by_nccl()) {
      keep_memory();
      enqueue_nccl();
    } else {
      const PlanPtr chosen = plan();
      try {
        if (chosen->protocol == Protocol::direct) give(*chosen);
      } catch (...) {
        keep_memory();  // of copies to stand-ins that have been queued
        throw;
      }
      keep_memory();
      enqueue(chosen);
      copy_stand_ins_back();
    }
    packing_.unpack();
  });
}

void TeamCall::add_shares() {
  for (const Share& own : shares_of_others(root(), members(), columns())) {
    if (own.member < first() || own.member >= first() + locals()) continue;
    const std::size_t own_member = own.member - first();
    for (const transport::Slice& slice : own.slices) {
      // Whole, so that a share lies in it as in the input.
      Tensor& share = outputs_[own_member * columns().size() + slice.item];
      const Tensor& input = inputs_[own_member * columns().size() + slice.item];
      share = tutti::empty(input.sizes(), {.dtype = input.dtype(), .device = context_.devices[own_member]});
    }
  }
}

void TeamCall::give(const RoundPlan& plan) {
  transport::ranks::Registrations& registrations = *team_.registrations();
  const bool is_captured = context_.launcher.captured().has_value();
  static_cast<void>(addresses());
  for (std::size_t own_member = 0; own_member < locals(); ++own_member) {
    for (const transport::BufferId buffer : plan.given[own_member]) {
      const auto add = [&](const std::byte* address) {
        return registrations.add(sequence_, own_member, address, is_captured);
      };
      if (add(context_.scratch.addresses[buffer])) continue;
      if (!add(add_stand_in(own_member, buffer))) {
        throw Error(
            ErrorCode::transport_failure,
            fmt::format("memory of member {} cannot be opened by other processes, nor can a copy of it: {}",
                        first() + own_member, registrations.refusal()));
      }
    }
  }
  registrations.wait(sequence_);
}

const std::byte* TeamCall::add_stand_in(std::size_t own_member, transport::BufferId buffer) {
  const std::size_t side = members() * columns().size();
  const bool is_output = buffer >= side;
  Tensor& operand = (is_output ? outputs_ : inputs_)[buffer % side - first() * columns().size()];
  const Tensor stand_in =
      tutti::empty(operand.sizes(), {.dtype = operand.dtype(), .device = context_.devices[own_member]});
  if (!is_output) {
    context_.runtime.backend().copy(
        streams_[own_member],
        {.target = address_of(stand_in), .source = address_of(operand), .row_bytes = operand.nbytes()});
  }
  stand_ins_.push_back({own_member, std::exchange(operand, stand_in), stand_in, is_output});
  return address_of(stand_in);
}

void TeamCall::copy_stand_ins_back() {
  for (const StandIn& replaced : stand_ins_) {
    if (!replaced.is_output) continue;
    context_.runtime.backend().copy(streams_[replaced.own_member], {.target = address_of(replaced.operand),
                                                                    .source = address_of(replaced.stand_in),
                                                                    .row_bytes = replaced.operand.nbytes()});
  }
}

void TeamCall::launch_barrier() {
  context_.launcher.begin(streams_);
  post();
  carry_out([&] {
    PlanKey& key = context_.scratch.key;
    key.clear();
    key.add(static_cast<std::uint64_t>(Collective::barrier) << 32U);
    enqueue(cached(key, [&] { return make_barrier_plan(context_); }));
  });
}

void TeamCall::enqueue(const PlanPtr& plan) {
  context_.launcher.launch(sequence_, *plan, addresses(), streams_);
  context_.last_plan = plan;
}

std::span<std::byte* const> TeamCall::addresses() const {
  const std::size_t side = members() * columns().size();
  std::vector<std::byte*>& result = context_.scratch.addresses;
  result.assign(2 * side, nullptr);
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    result[first() * columns().size() + i] = address_of(inputs_[i]);
    result[side + first() * columns().size() + i] = address_of(outputs_[i]);
  }
  return result;
}

TeamCall::PlanPtr TeamCall::plan() {
  PlanKey& key = context_.scratch.key;
  key.clear();
  request_.add_to(key);
  return cached(key, [&] { return make_plan(context_, request_, route_.rounds); });
}

template <class Make>
TeamCall::PlanPtr TeamCall::cached(const PlanKey& key, Make make) {
  if (const auto found = context_.plans.find(key); found != context_.plans.end()) return found->second;
  RoundPlan made = make();
  const std::size_t bytes = key.bytes() + made.bytes();
  if (context_.plans.size() >= transport::PlanCache::capacity ||
      context_.plan_bytes + bytes > transport::PlanCache::most_bytes) {
    context_.plans.clear();
    context_.plan_bytes = 0;
  }
  context_.plan_bytes += bytes;
  return context_.plans.emplace(key, std::make_shared<const RoundPlan>(std::move(made))).first->second;
}

}  // namespace tutti::collectives
