#include "collectives/team_call.hpp"

#include "transport/launch.hpp"
#include "transport/tuning.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tutti::collectives {
namespace {

using transport::PlanKey;
using transport::ranks::Operation;
using transport::ranks::Protocol;
using transport::ranks::RoundPlan;

std::string_view adjective_of(Protocol protocol) noexcept {
  switch (protocol) {
    case Protocol::slots:
      return "";
    case Protocol::direct:
      return "direct ";
    case Protocol::low_latency:
      return "low-latency ";
  }
  return "";
}

LayoutPtr contiguous_layout(const Tensor& tensor) {
  return layout_in(*tensor.layout(), MemoryFormat::contiguous);
}

}  // namespace

TeamContext::TeamContext(Exchange& exchange, const transport::ranks::Team::Settings& settings)
    : devices(settings.devices.begin(), settings.devices.end()),
      team(runtime, exchange, settings),
      launcher(runtime, team) {
  const TransportKind transport = team.settings().transport;
  if (transport != TransportKind::automatic && transport != TransportKind::nccl) {
    nccl_refusal = fmt::format("{} was asked for", name_of(transport));
    return;
  }
  nccl = transport::ranks::TeamNccl::create(runtime, exchange, team, nccl_refusal);
  if (nccl == nullptr && transport == TransportKind::nccl) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("Communicator: options.transport is nccl, which cannot be had: {}", nccl_refusal));
  }
}

TeamContext& TeamContext::require_own_process() {
  if (Runtime::get_if_initialized() != &runtime) {
    static_cast<void>(Runtime::get());  // says so, unless the child has devices of its own
    throw Error(
        ErrorCode::unsupported,
        "Communicator: this process was forked from the one that made it, expected calls by that one");
  }
  return *this;
}

TeamCall::TeamCall(TeamContext& context, Operation operation, StreamList streams)
    : context_(context.require_own_process()),
      team_(context.team),
      lock_(context.team.calls_mutex()),
      arguments_(context.runtime, transport::ranks::name_of(operation)),
      packing_(arguments_, PackingPolicy::copy, Participants{.devices = context.devices}),
      streams_(context.scratch.streams),
      columns_(context.scratch.columns),
      inputs_(context.scratch.inputs),
      outputs_(context.scratch.outputs) {
  signature_.operation = operation;
  arguments_.streams(streams, context.devices);
  for (std::size_t own_member = 0; own_member < streams.size(); ++own_member)
    guards_[own_member].emplace(streams[own_member]);
  streams_.clear();
  for (const Device device : context.devices)
    streams_.push_back(current_stream_ref(context.runtime, device.index()));
  columns_.clear();
}

TeamCall::~TeamCall() {
  inputs_.clear();
  outputs_.clear();
}

void TeamCall::set_root(int root) {
  if (root < 0 || static_cast<std::size_t>(root) >= members()) {
    arguments_.fail("root is {}, expected 0 to {}", root, members() - 1);
  }
  root_ = static_cast<std::size_t>(root);
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

void TeamCall::check_alike(const MemberOperands& operands, std::string_view argument) const {
  one_per_member(operands.size(), argument);
  const std::span<const Tensor> first = operands[0];
  arguments_.not_empty(first.size(), argument);
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
      arguments_.same_sizes(tensors[t], name, first[t].sizes(), like);
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
    columns_.push_back({static_cast<std::uint64_t>(tensor.numel()), tensor.dtype()});
  begin();
}

void TeamCall::begin(const TeamColumn& column) {
  columns_.push_back(column);
  begin();
}

void TeamCall::begin() {
  signature_.tensors = static_cast<std::uint32_t>(columns_.size());
  signature_.dtype = columns_.front().dtype;
  for (const TeamColumn& column : columns_) {
    signature_.elements += column.elements;
    signature_.add_to_shape(column.elements);
    signature_.add_to_shape(static_cast<std::uint64_t>(column.dtype));
  }
  context_.launcher.begin(streams_);
  inputs_.resize(locals() * columns_.size());
  outputs_.resize(locals() * columns_.size());
}

void TeamCall::set_input(std::size_t own_member, std::size_t column, const Tensor& tensor, const Name& name) {
  inputs_[own_member * columns_.size() + column] =
      tensor.is_contiguous() ? tensor : packing_.input(tensor, *contiguous_layout(tensor), name);
}

void TeamCall::set_output(std::size_t own_member, std::size_t column, const Tensor& tensor,
                          const Name& name) {
  outputs_[own_member * columns_.size() + column] =
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
  if (team_.settings().transport == TransportKind::nccl && members() > 1 && moves()) {
    if (const NcclObjection refusal = nccl_refusal(); refusal != NcclObjection::none)
      arguments_.unsupported("transport is nccl, which cannot carry this call: {}", to_words(refusal));
  }
  choose_transport();
  if (is_relayed() && !by_nccl_ && pattern() == transport::RanksPattern::reduce) add_shares();
  sequence_ = team_.post(signature_, context_.launcher.captured().has_value());
}

transport::ranks::CallShape TeamCall::shape() const {
  transport::ranks::CallShape shape{.pattern = pattern(), .members = members(), .tensors = columns_.size()};
  if (has_own_numbers(signature_.operation)) {
    const auto bytes_of = [this](std::uint64_t length) {
      return length * geometry_.slab_bytes * geometry_.rows;
    };
    shape.has_rows_apart = geometry_.rows > 1;
    if (lengths_.empty()) return shape;  // not all ranks have told their parts' lengths yet
    shape.payload = bytes_of(std::accumulate(lengths_.begin(), lengths_.end(), std::uint64_t{0}));
    shape.kept_by_root = bytes_of(lengths_[root_]);
    shape.largest_tensor = columns_.front().bytes();
    return shape;
  }
  for (const TeamColumn& column : columns_) {
    shape.payload += column.bytes();
    shape.largest_tensor = std::max(shape.largest_tensor, column.bytes());
  }
  if (signature_.operation == Operation::all_gather) shape.payload *= members();
  return shape;
}

transport::ranks::TeamMeans TeamCall::means() const {
  return {.backend = context_.runtime.backend().kind(),
          .layout = team_.windows().layout(),
          .most_given = team_.registrations() == nullptr ? 0 : transport::ranks::Registrations::most_given,
          .most_members_of_a_rank = team_.most_members_of_a_rank()};
}

void TeamCall::choose_transport() {
  rounds_ = moves() ? choose_rounds(shape(), means()) : transport::ranks::RoundChoice{};
  const NcclObjection objection = nccl_objection();
  by_nccl_ = objection == NcclObjection::none;
  if (!by_nccl_ && context_.launcher.captured() && team_.spans_hosts()) {
    arguments_.unsupported(
        "the current stream is being captured, and of what goes between hosts only NCCL's calls can be "
        "replayed; this is none: {}",
        to_words(objection));
  }
  if (by_nccl_ && context_.launcher.captured() && !context_.nccl->is_connected()) {
    arguments_.unsupported(
        "the current stream is being captured before the first call that goes by NCCL: make one such call "
        "beforehand");
  }
}

void TeamCall::keep_memory() {
  if (const auto& capture = context_.launcher.captured()) {
    auto tensors = std::make_shared<std::vector<Tensor>>(inputs_);
    tensors->insert(tensors->end(), outputs_.begin(), outputs_.end());
    for (const StandIn& replaced : stand_ins_) tensors->push_back(replaced.operand);
    context_.runtime.retain_until_graph_destroyed(*capture, std::move(tensors));
    return;
  }
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const Stream used = stream(i / columns_.size());
    for (const Tensor* tensor : {&inputs_[i], &outputs_[i]}) {
      if (tensor->defined()) tensor->record_stream(used);
    }
  }
  for (const StandIn& replaced : stand_ins_) replaced.operand.record_stream(stream(replaced.own_member));
}

template <class Work>
void TeamCall::carry_out(Work work) {
  const auto give_up = [this](ErrorCode code, const char* what) {
    team_.abort(code, fmt::format("rank {} failed in {}: {}", team_.rank(), to_string(signature_), what));
    try {
      context_.launcher.end(streams_);
    } catch (const Error&) {
      // A stream that takes nothing more has failed, and with it what it has taken.
    }
  };
  try {
    work();
    context_.launcher.end(streams_);
  } catch (const Error& error) {
    give_up(error.code(), error.what());
    throw;
  } catch (const std::exception& error) {
    give_up(ErrorCode::internal, error.what());
    throw;
  }
}

void TeamCall::launch(const Describe& describe, std::span<const std::uint64_t> more) {
  carry_out([&] {
    if (by_nccl_) {
      keep_memory();
      enqueue_nccl();
    } else {
      const PlanPtr chosen = plan(describe, more);
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
  for (const Share& own : shares_of_others(root_, members(), columns_)) {
    if (own.member < first() || own.member >= first() + locals()) continue;
    const std::size_t own_member = own.member - first();
    for (const transport::Slice& slice : own.slices) {
      // Whole, so that a share lies in it as in the input.
      Tensor& share = outputs_[own_member * columns_.size() + slice.item];
      const Tensor& input = inputs_[own_member * columns_.size() + slice.item];
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
  const std::size_t side = members() * columns_.size();
  const bool is_output = buffer >= side;
  Tensor& operand = (is_output ? outputs_ : inputs_)[buffer % side - first() * columns_.size()];
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
    key.add(static_cast<std::uint64_t>(Operation::barrier) << 32U);
    enqueue(cached(key, [&] { return transport::ranks::plan_barrier(members(), first(), locals()); }));
  });
}

void TeamCall::enqueue(const PlanPtr& plan) {
  context_.launcher.launch(sequence_, *plan, addresses(), streams_);
  context_.last_plan = plan;
}

std::span<std::byte* const> TeamCall::addresses() const {
  const std::size_t side = members() * columns_.size();
  std::vector<std::byte*>& result = context_.scratch.addresses;
  result.assign(2 * side, nullptr);
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    result[first() * columns_.size() + i] = address_of(inputs_[i]);
    result[side + first() * columns_.size() + i] = address_of(outputs_[i]);
  }
  return result;
}

transport::RanksTuning TeamCall::tuning() const noexcept {
  transport::RanksTuning tuning = transport::ranks_tuning_of(context_.runtime.backend().kind());
  tuning.message_bytes = message_bytes(means());
  if (rounds_.protocol == Protocol::slots) return tuning;
  // There are no messages to cut. Directly, no member may write what others read.
  tuning.message_bytes = std::numeric_limits<std::uint64_t>::max() / 2;
  const bool shares_sums = rounds_.protocol == Protocol::direct || is_relayed();
  tuning.shared_sums_from = shares_sums ? 0 : tuning.message_bytes;
  return tuning;
}

TeamCall::PlanPtr TeamCall::plan(const Describe& describe, std::span<const std::uint64_t> more) {
  PlanKey& key = context_.scratch.key;
  key.clear();
  key.add(static_cast<std::uint64_t>(signature_.operation) << 32U | root_);
  key.add(columns().size());
  for (const TeamColumn& column : columns_) {
    key.add(column.elements);
    key.add(static_cast<std::uint64_t>(column.dtype));
  }
  key.add(geometry_.rows);
  key.add(geometry_.slab_bytes);
  key.add_all(more);
  return cached(key, [&] {
    TeamProblem problem(members(), columns_.size());
    describe(problem);
    return transport::ranks::plan_rounds(problem.work(), members(), first(), locals(),
                                         {.message_bytes = tuning().message_bytes,
                                          .protocol = rounds_.protocol,
                                          .layout = team_.windows().layout()});
  });
}

template <class Make>
TeamCall::PlanPtr TeamCall::cached(const PlanKey& key, Make make) {
  if (const auto found = context_.plans.find(key); found != context_.plans.end()) return found->second;
  RoundPlan made = make();
  made.summary.transport = made.round_count == 0 ? "none" : name_of(team_.windows().transport());
  made.summary.algorithm = fmt::format("{} {}{}", made.round_count, adjective_of(made.protocol),
                                       made.round_count == 1 ? "round" : "rounds");
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
