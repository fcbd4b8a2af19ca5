#include "tutti/communicator.hpp"

#include "backend/environment.hpp"
#include "collectives/disjoint.hpp"
#include "collectives/team_call.hpp"
#include "collectives/team_explain.hpp"
#include "transport/ranks/agreement.hpp"
#include "transport/ranks/team_exchange.hpp"
#include "transport/tuning.hpp"

#include <algorithm>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace tutti {
namespace {

using collectives::Arguments;
using collectives::InPlace;
using collectives::MemberOperands;
using collectives::Name;
using collectives::Named;
using collectives::TeamCall;
using collectives::TeamColumn;
using collectives::TeamContext;
using collectives::TeamProblem;
using transport::ranks::Operation;
using transport::ranks::Team;

std::vector<TeamColumn> columns_of(std::span<const Tensor> tensors) {
  std::vector<TeamColumn> columns;
  for (const Tensor& tensor : tensors) {
    columns.push_back({static_cast<std::uint64_t>(tensor.numel()), tensor.dtype()});
  }
  return columns;
}

}  // namespace

class Communicator::Impl {
 public:
  Impl(Exchange& exchange, const CommunicatorOptions& options)
      : context(exchange, checked(exchange, options)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  TeamContext context;

 private:
  static std::vector<Device> checked_devices(const CommunicatorOptions& options);
  /// `settings`. What it throws is told to the other ranks, who wait for this one.
  static Team::Settings checked(Exchange& exchange, const CommunicatorOptions& options);
  static Team::Settings settings(const CommunicatorOptions& options);
};

std::vector<Device> Communicator::Impl::checked_devices(const CommunicatorOptions& options) {
  constexpr std::size_t smallest_window = std::size_t{512} << 10U;
  constexpr std::size_t largest_window = std::size_t{1} << 30U;
  const Arguments arguments(Runtime::get(), "Communicator");
  std::vector<Device> devices = options.devices;
  if (devices.empty()) devices.emplace_back(current_device());
  arguments.existing_devices(devices, "options.devices");
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (std::find(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(i), devices[i]) !=
        devices.begin() + static_cast<std::ptrdiff_t>(i)) {
      arguments.fail("options.devices[{}] is {}, which is there already: a device is one member", i,
                     to_string(devices[i]));
    }
  }
  if (options.timeout.count() <= 0) {
    arguments.fail("options.timeout is {} ms, expected more than 0", options.timeout.count());
  }
  if (devices.size() > transport::ranks::most_own_members) {
    arguments.fail("options.devices has {} entries, expected {} at most", devices.size(),
                   transport::ranks::most_own_members);
  }
  if (options.window_bytes < smallest_window || options.window_bytes > largest_window) {
    arguments.fail("options.window_bytes is {}, expected {} to {}", options.window_bytes, smallest_window,
                   largest_window);
  }
  return devices;
}

Team::Settings Communicator::Impl::checked(Exchange& exchange, const CommunicatorOptions& options) {
  try {
    return settings(options);
  } catch (const std::exception& error) {
    Team::decline(exchange, error.what());
    throw;
  }
}

Communicator::Impl::~Impl() {
  Team& team = context.team;
  // Queued work uses the shared memory. What does not end by itself is ended.
  const auto deadline = std::chrono::steady_clock::now() + team.timeout();
  while (!team.is_idle() && std::chrono::steady_clock::now() < deadline) {
    if (team.abort_word().is_set()) break;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  if (!team.is_idle()) team.abort(ErrorCode::aborted, "a rank left with calls under way");
  for (const Device device : context.devices) {
    try {
      context.runtime.backend().synchronize_device(device.index());
    } catch (const Error&) {
      continue;  // failed work is over as well
    }
  }
}

Team::Settings Communicator::Impl::settings(const CommunicatorOptions& options) {
  Team::Settings settings{.timeout = options.timeout,
                          .window_bytes = options.window_bytes,
                          .transport = options.transport,
                          .determinism = options.determinism,
                          .devices = {}};
  if (settings.transport == TransportKind::automatic) settings.transport = Environment::get().transport;
  for (const Device device : checked_devices(options)) settings.devices.push_back(device.index());
  return settings;
}

Communicator::Communicator(Exchange& exchange, const CommunicatorOptions& options)
    : impl_(std::make_unique<Impl>(exchange, options)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

int Communicator::rank() const noexcept {
  return impl_->context.team.rank();
}
int Communicator::rank_count() const noexcept {
  return impl_->context.team.rank_count();
}
int Communicator::member_count() const noexcept {
  return static_cast<int>(impl_->context.team.member_count());
}
int Communicator::first_member() const noexcept {
  return static_cast<int>(impl_->context.team.first_local());
}
const std::vector<Device>& Communicator::devices() const noexcept {
  return impl_->context.devices;
}

namespace {

/// `to_itself`: the root has an output too, which is not its input. Only its own part of the plan differs.
void launch_broadcast(TeamCall& call, bool to_itself) {
  call.post();
  const std::uint64_t form = to_itself ? 1 : 0;
  call.launch(
      [&](TeamProblem& builder) {
        for (std::size_t t = 0; t < call.columns().size(); ++t) {
          auto targets = builder.other_outputs(call.root(), t);
          if (to_itself) targets.push_back(builder.output(call.root(), t));
          builder.flow(builder.input(call.root(), t), targets, call.columns()[t].bytes());
        }
      },
      std::span(&form, 1));
}

/// From the root's tensors into all others.
void broadcast_in_place(TeamCall& call, const MemberOperands& tensors, int root) {
  call.set_root(root);
  call.check_alike(tensors, "tensors");
  const std::optional<std::size_t> source = call.own(call.root());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (source == i) continue;
    for (std::size_t t = 0; t < tensors[i].size(); ++t)
      call.arguments().writable(tensors[i][t], tensors.name("tensors", i, t));
    const Named outputs = tensors.named("tensors", i);
    require_disjoint(call.arguments(), {}, std::span(&outputs, 1), InPlace::forbidden);
  }
  call.begin(columns_of(tensors[0]));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::size_t t = 0; t < tensors[i].size(); ++t) {
      const Name name = tensors.name("tensors", i, t);
      if (source == i) {
        call.set_input(i, t, tensors[i][t], name);
      } else {
        call.set_output(i, t, tensors[i][t], name);
      }
    }
  }
  launch_broadcast(call, false);
}

/// From the root's tensors into all members' outputs.
void broadcast_into(TeamCall& call, TensorList tensors, const MemberOperands& out, int root) {
  call.set_root(root);
  call.check_alike(out, "out");
  const std::optional<std::size_t> source = call.own(call.root());
  for (std::size_t i = 0; i < out.size(); ++i) {
    for (std::size_t t = 0; t < out[i].size(); ++t)
      call.arguments().writable(out[i][t], out.name("out", i, t));
    const Named outputs = out.named("out", i);
    const Named inputs{"tensors", source == i ? std::span<const Tensor>(tensors) : std::span<const Tensor>()};
    require_disjoint(call.arguments(), std::span(&inputs, 1), std::span(&outputs, 1), InPlace::same_index);
  }
  if (source) {
    const std::span<const Tensor> own = out[*source];
    if (tensors.size() != own.size()) {
      call.arguments().fail("tensors has {} entries, expected {} as out[0]", tensors.size(), own.size());
    }
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const Name name("tensors", t);
      call.on_member(tensors[t], name, *source);
      call.arguments().same_dtype(tensors[t], name, own[t].dtype(), out.name("out", *source, t));
      call.arguments().same_sizes(tensors[t], name, own[t].sizes(), out.name("out", *source, t));
    }
  }
  call.begin(columns_of(out[0]));
  bool to_itself = false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    for (std::size_t t = 0; t < out[i].size(); ++t) {
      call.set_output(i, t, out[i][t], out.name("out", i, t));
      if (source != i) continue;
      call.set_input(i, t, tensors[t], Name("tensors", t));
      to_itself |=
          call.input_address(i, t) != call.output_address(i, t);  // also where one stands in for the other
    }
  }
  launch_broadcast(call, to_itself);
}

}  // namespace

void Communicator::broadcast(TensorList tensors, int root, StreamList streams) {
  TeamCall call(impl_->context, Operation::broadcast, streams);
  broadcast_in_place(call, MemberOperands::one_each(tensors), root);
}

void Communicator::broadcast(const Tensor& tensor, TensorList out, int root, StreamList streams) {
  TeamCall call(impl_->context, Operation::broadcast, streams);
  broadcast_into(call, std::span(&tensor, 1), MemberOperands::one_each(out), root);
}

void Communicator::broadcast_coalesced(TensorLists tensors, int root, StreamList streams) {
  TeamCall call(impl_->context, Operation::broadcast_coalesced, streams);
  broadcast_in_place(call, MemberOperands::lists(tensors), root);
}

void Communicator::broadcast_coalesced(TensorList tensors, TensorLists out, int root, StreamList streams) {
  TeamCall call(impl_->context, Operation::broadcast_coalesced, streams);
  broadcast_into(call, tensors, MemberOperands::lists(out), root);
}

namespace {

/// Inputs and outputs of sums: alike on all members; outputs where `wants_output` says.
template <class WantsOutput>
void set_sum_operands(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out,
                      WantsOutput wants_output) {
  call.check_alike(inputs, "inputs");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!wants_output(i)) continue;
    if (out.size() <= i) {
      call.arguments().fail("out has {} entries, expected one per own member, {}", out.size(), call.locals());
    }
    if (out[i].size() != inputs[0].size()) {
      call.arguments().fail("out[{}] has {} tensors, expected {} as inputs[0]", i, out[i].size(),
                            inputs[0].size());
    }
    for (std::size_t t = 0; t < out[i].size(); ++t) {
      call.check_output(out[i][t], out.name("out", i, t), i, inputs[0][t], inputs.name("inputs", 0, t));
    }
    const Named given = inputs.named("inputs", i);
    const Named outputs = out.named("out", i);
    require_disjoint(call.arguments(), std::span(&given, 1), std::span(&outputs, 1), InPlace::same_index);
  }
  call.begin(columns_of(inputs[0]));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t t = 0; t < inputs[i].size(); ++t) {
      call.set_input(i, t, inputs[i][t], inputs.name("inputs", i, t));
      if (wants_output(i)) call.set_output(i, t, out[i][t], out.name("out", i, t));
    }
  }
}

void reduce_to_root(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out, int root) {
  call.set_root(root);
  set_sum_operands(call, inputs, out, [&](std::size_t i) { return call.own(call.root()) == i; });
  call.post();
  call.launch([&](TeamProblem& builder) {
    for (std::size_t t = 0; t < call.columns().size(); ++t) {
      const TeamColumn& column = call.columns()[t];
      builder.sum(t, column, 0, column.elements, builder.output(call.root(), t));
    }
  });
}

void reduce_to_all(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out) {
  if (out.size() != call.locals()) {
    call.arguments().fail("out has {} entries, expected one per own member, {}", out.size(), call.locals());
  }
  set_sum_operands(call, inputs, out, [](std::size_t) { return true; });
  call.post();
  call.launch([&](TeamProblem& builder) {
    collectives::describe_shared_sums(builder, call.columns(), call.tuning());
  });
}

}  // namespace

void Communicator::reduce_add(TensorList inputs, TensorList out, int root, StreamList streams) {
  TeamCall call(impl_->context, Operation::reduce_add, streams);
  reduce_to_root(call, MemberOperands::one_each(inputs), MemberOperands::one_each(out), root);
}

void Communicator::reduce_add_coalesced(TensorLists inputs, TensorLists out, int root, StreamList streams) {
  TeamCall call(impl_->context, Operation::reduce_add_coalesced, streams);
  reduce_to_root(call, MemberOperands::lists(inputs), MemberOperands::lists(out), root);
}

void Communicator::all_reduce_add(TensorList inputs, TensorList out, StreamList streams) {
  TeamCall call(impl_->context, Operation::all_reduce_add, streams);
  reduce_to_all(call, MemberOperands::one_each(inputs), MemberOperands::one_each(out));
}

void Communicator::all_reduce_add_coalesced(TensorLists inputs, TensorLists out, StreamList streams) {
  TeamCall call(impl_->context, Operation::all_reduce_add_coalesced, streams);
  reduce_to_all(call, MemberOperands::lists(inputs), MemberOperands::lists(out));
}

namespace {

/// An input overlaps its member's output nowhere, or is the part of it where it belongs.
void require_gathered_in_place(const TeamCall& call, const Tensor& input, const Tensor& out,
                               std::size_t own_member) {
  if (out.is_contiguous() && input.is_contiguous() &&
      static_cast<const std::byte*>(input.data()) ==
          static_cast<const std::byte*>(out.data()) + (call.first() + own_member) * input.nbytes()) {
    return;
  }
  const Named given{"inputs", std::span(&input, 1), -2};
  const Named outputs{"out", std::span(&out, 1), -2};
  require_disjoint(call.arguments(), std::span(&given, 1), std::span(&outputs, 1), InPlace::forbidden);
}

}  // namespace

void Communicator::all_gather(TensorList inputs, TensorList out, StreamList streams) {
  TeamCall call(impl_->context, Operation::all_gather, streams);
  call.check_alike(MemberOperands::one_each(inputs), "inputs");
  call.one_per_member(out.size(), "out");
  const std::int64_t elements = inputs[0].numel();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Name name("out", i);
    call.on_member(out[i], name, i);
    call.arguments().same_dtype(out[i], name, inputs[0].dtype(), "inputs[0]");
    call.arguments().writable(out[i], name);
    if (out[i].numel() != elements * static_cast<std::int64_t>(call.members())) {
      call.arguments().fail("{} has {} elements, expected {}: {} from each of {} members", name,
                            out[i].numel(), elements * static_cast<std::int64_t>(call.members()), elements,
                            call.members());
    }
    require_gathered_in_place(call, inputs[i], out[i], i);
  }
  call.begin(columns_of(inputs.first(1)));
  const std::uint64_t bytes = call.columns()[0].bytes();
  std::vector<std::uint64_t> to_itself(call.members());  // only the own parts of the plan differ by these
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    call.set_input(i, 0, inputs[i], Name("inputs", i));
    call.set_output(i, 0, out[i], Name("out", i));
    const std::size_t member = call.first() + i;
    to_itself[member] = call.input_address(i) != call.output_address(i) + member * bytes ? 1 : 0;
  }
  call.post();
  call.launch(
      [&](TeamProblem& builder) {
        for (std::size_t member = 0; member < builder.members(); ++member) {
          auto targets = builder.other_outputs(member, 0, member * bytes);
          if (to_itself[member] != 0) targets.push_back(builder.output(member, 0, member * bytes));
          builder.flow(builder.input(member, 0), targets, bytes);
        }
      },
      to_itself);
}

void Communicator::reduce_scatter_add(TensorList inputs, TensorList out, StreamList streams) {
  TeamCall call(impl_->context, Operation::reduce_scatter_add, streams);
  call.check_alike(MemberOperands::one_each(inputs), "inputs");
  call.one_per_member(out.size(), "out");
  const std::int64_t elements = out[0].defined() ? out[0].numel() : 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Name name("out", i);
    call.check_output(out[i], name, i, out[0], "out[0]");
    call.arguments().same_dtype(out[i], name, inputs[0].dtype(), "inputs[0]");
    const Named given{"inputs", inputs.subspan(i, 1), -2};
    const Named outputs{"out", out.subspan(i, 1), -2};
    require_disjoint(call.arguments(), std::span(&given, 1), std::span(&outputs, 1), InPlace::forbidden);
  }
  if (inputs[0].numel() != elements * static_cast<std::int64_t>(call.members())) {
    call.arguments().fail("inputs[0] has {} elements, expected {}: {} for each of {} members",
                          inputs[0].numel(), elements * static_cast<std::int64_t>(call.members()), elements,
                          call.members());
  }
  call.begin(columns_of(inputs.first(1)));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    call.set_input(i, 0, inputs[i], Name("inputs", i));
    call.set_output(i, 0, out[i], Name("out", i));
  }
  call.post();
  const auto count = static_cast<std::uint64_t>(elements);
  call.launch([&](TeamProblem& builder) {
    for (std::size_t member = 0; member < builder.members(); ++member) {
      builder.sum(0, call.columns()[0], member * count, count, builder.output(member, 0));
    }
  });
}

void Communicator::scatter(const Tensor& tensor, TensorList out, int root, int dim, StreamList streams) {
  TeamCall call(impl_->context, Operation::scatter, streams);
  call.set_root(root);
  call.cut_apart(tensor, out, dim);
}

void Communicator::gather(TensorList tensors, const Tensor& out, int root, int dim, StreamList streams) {
  TeamCall call(impl_->context, Operation::gather, streams);
  call.set_root(root);
  call.join(tensors, out, dim);
}

void Communicator::barrier(StreamList streams) {
  TeamCall(impl_->context, Operation::barrier, streams).launch_barrier();
}

std::optional<Communicator> Communicator::split(std::optional<int> color, int key) {
  struct Wish {
    int has_color = 0;
    int color = 0;
    int key = 0;
    std::uint64_t start = 0;
  };
  TeamContext& context = impl_->context;
  TeamCall call(context, Operation::split, {});
  const std::uint64_t sequence = call.post_without_work();
  transport::ranks::TeamExchange all(context.team, sequence);
  const std::vector<Wish> wishes =
      transport::ranks::gather(all, Wish{.has_color = color ? 1 : 0,
                                         .color = color.value_or(0),
                                         .key = key,
                                         .start = transport::ranks::TeamExchange::part_start(context.team)});
  if (!color) return std::nullopt;

  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
    if (wishes[rank].has_color == 1 && wishes[rank].color == *color) ranks.push_back(rank);
  }
  std::ranges::stable_sort(ranks, {}, [&](std::size_t rank) { return wishes[rank].key; });
  std::vector<std::uint64_t> starts;
  for (const std::size_t rank : ranks) starts.push_back(wishes[rank].start);
  transport::ranks::TeamExchange part(context.team, sequence, std::move(ranks), std::move(starts));
  const Team::Settings& settings = context.team.settings();
  return Communicator(part, {.devices = context.devices,
                             .timeout = settings.timeout,
                             .window_bytes = settings.window_bytes,
                             .transport = settings.transport,
                             .determinism = context.team.settings().determinism});
}

PlanSummary Communicator::last_plan() const {
  const std::lock_guard lock(impl_->context.team.calls_mutex());
  const auto& last = impl_->context.last_plan;
  if (const auto* const operation = std::get_if<Operation>(&last))
    return {"nccl", std::string(transport::ranks::name_of(*operation))};
  const auto& plan = std::get<0>(last);
  return plan == nullptr ? PlanSummary{} : plan->summary;
}

std::string Communicator::explain() const {
  return collectives::explain(impl_->context);
}

void Communicator::abort(std::string_view reason) noexcept {
  impl_->context.team.abort(ErrorCode::aborted, fmt::format("rank {} gave up: {}", rank(), reason));
}
bool Communicator::is_running() const noexcept {
  return !impl_->context.team.abort_word().is_set();
}
std::string Communicator::flight_record() const {
  return impl_->context.team.record();
}

}  // namespace tutti
