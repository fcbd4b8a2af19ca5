// SPDX-License-Identifier: Apache-2.0
#include "tutti/communicator.hpp"

#include "backend/thread.hpp"
#include "blocking_call.hpp"
#include "collectives/team_call.hpp"
#include "collectives/team_explain.hpp"
#include "collectives/team_operations.hpp"
#include "environment.hpp"
#include "fork_mark.hpp"
#include "log.hpp"
#include "patience.hpp"
#include "thread_current.hpp"
#include "transport/launching.hpp"
#include "transport/team/agreement.hpp"
#include "transport/team/team_exchange.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti {
namespace {

using collectives::Arguments;
using collectives::MemberOperands;
using collectives::Named;
using collectives::TeamCall;
using collectives::TeamContext;
using transport::Launching;
using transport::LaunchProbe;
using transport::ranks::Team;

/// How long calls wait for ranks that are late, where nobody says, and the timeout is not longer.
constexpr std::chrono::milliseconds usual_patience = std::chrono::minutes(10);

/// One process.
class Alone final : public Exchange {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    std::ranges::copy(mine, all.begin());
  }
};

std::unique_ptr<TeamContext> make_alone(const Team::Settings& settings) {
  Alone exchange;
  return std::make_unique<TeamContext>(exchange, settings);
}

/// How long other ranks may hold up calls that have been made.
std::chrono::milliseconds longest_wait_of(Team& team) {
  return std::max(team.settings().timeout, team.waiting().patience().longest());
}

/// Until the process ends, as others than this process or thread still use it.
void keep(std::unique_ptr<TeamContext> context) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::unique_ptr<TeamContext>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(context));
}

}  // namespace

class Communicator::Impl {
 public:
  /// `beside`: is made in a call of another communicator's.
  Impl(Exchange& exchange, const CommunicatorOptions& options, bool beside)
      : context(std::make_unique<TeamContext>(exchange, checked(exchange, options, beside))) {}
  explicit Impl(const CommunicatorOptions& options) : context(make_alone(prepared(options))) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  /// A forked child has none of the threads, and the team is its parent's.
  [[nodiscard]] bool is_forked_off() const noexcept { return fork_mark_.is_in_child(); }

  std::unique_ptr<TeamContext> context;

 private:
  /// What this rank's calls have queued uses the shared memory. False if some of it may be still to come.
  [[nodiscard]] bool end_work_of_calls();
  /// Waits for all work of the devices, as launches of graphs may be queued anywhere.
  void end_launches();
  /// Virtual devices keep that work failed because the team was ended, which would be taken for a failure of
  /// what comes next.
  void take_failures();
  static std::vector<Device> checked_devices(const CommunicatorOptions& options);
  /// `settings`. What it throws is told to the other ranks, who wait for this one.
  static Team::Settings checked(Exchange& exchange, const CommunicatorOptions& options, bool beside);
  /// Those that earlier communicators have left may take the memory that this one needs.
  static Team::Settings prepared(const CommunicatorOptions& options);
  static Team::Settings settings(const CommunicatorOptions& options);

  const ForkMark fork_mark_;
};

std::vector<Device> Communicator::Impl::checked_devices(const CommunicatorOptions& options) {
  constexpr std::size_t smallest_window = std::size_t{512} << 10U;
  constexpr std::size_t largest_window = std::size_t{1} << 30U;
  const BlockingCall blocks("Communicator");
  const Arguments arguments(Runtime::get(), "Communicator");
  std::vector<Device> devices = options.devices;
  if (devices.empty()) devices.push_back(Device::current());
  for (Device& device : devices) device = resolved(arguments.runtime(), device);
  arguments.existing_devices(devices, "options.devices");
  arguments.known_transport(options.transport);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (std::find(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(i), devices[i]) !=
        devices.begin() + static_cast<std::ptrdiff_t>(i)) {
      arguments.fail("options.devices[{}] is {}, which is there already: a device is one member", i,
                     to_string(devices[i]));
    }
  }
  if (devices.size() > 1) {
    std::vector<int> indices;
    for (const Device device : devices) indices.push_back(device.index());
    if (Runtime::get().extension<LaunchProbe>().find(indices) == Launching::impossible) {
      arguments.unsupported("options.devices has {} entries, expected 1 where {}", devices.size(),
                            transport::launches_block);
    }
  }
  if (options.timeout.count() <= 0) {
    arguments.fail("options.timeout is {} ms, expected more than 0", options.timeout.count());
  }
  if (options.patience && options.patience->count() <= 0) {
    arguments.fail("options.patience is {} ms, expected more than 0", options.patience->count());
  }
  if (devices.size() > transport::ranks::most_local_members) {
    arguments.fail("options.devices has {} entries, expected {} at most", devices.size(),
                   transport::ranks::most_local_members);
  }
  if (options.window_bytes < smallest_window || options.window_bytes > largest_window) {
    arguments.fail("options.window_bytes is {}, expected {} to {}", options.window_bytes, smallest_window,
                   largest_window);
  }
  return devices;
}

Team::Settings Communicator::Impl::checked(Exchange& exchange, const CommunicatorOptions& options,
                                           bool beside) {
  try {
    return beside ? settings(options) : prepared(options);
  } catch (const std::exception& error) {
    const bool is_no_timeout = options.timeout <= std::chrono::milliseconds(0);
    exchange.limit_waits(is_no_timeout ? CommunicatorOptions{}.timeout
                                       : std::min(options.timeout, longest_limit));
    transport::ranks::decline_to_join(exchange, error.what());
    throw;
  }
}

Team::Settings Communicator::Impl::prepared(const CommunicatorOptions& options) {
  Team::Settings result = settings(options);
  transport::ranks::free_deferred(Runtime::get(), result.devices);
  return result;
}

Communicator::Impl::~Impl() {
  if (!is_forked_off()) {
    if (end_work_of_calls()) return;
    log_warning("Communicator: its calls have not come to their end, and keep what they use");
    context->team().live_teams().stop_counting(context->team().calls());
  }
  keep(std::move(context));
}

bool Communicator::Impl::end_work_of_calls() {
  BlockingCall::warn("the end of a Communicator");
  using Clock = std::chrono::steady_clock;
  // Calls are complete a moment before their last work is over. Where they are not marked, the streams may
  // have work of others behind it, which may wait for what happens only after this.
  constexpr std::chrono::milliseconds moment{100};
  constexpr std::chrono::seconds least_patience{1};
  Team& team = context->team();
  const auto deadline = Clock::now() + longest_wait_of(team);
  const auto wait_until = [](Clock::time_point end, const auto& holds) {
    while (!holds() && Clock::now() < end) std::this_thread::sleep_for(std::chrono::microseconds(100));
    return holds();
  };
  const auto has_passed = [this] { return context->launcher().has_passed(); };
  context->launcher().mark();
  static_cast<void>(
      wait_until(deadline, [&team] { return team.progress().is_idle() || team.abort().is_set(); }));
  bool is_over = team.progress().is_idle();
  if (is_over && context->launcher().marks_calls()) {
    is_over = wait_until(std::max(deadline, Clock::now() + least_patience), has_passed);
    if (!is_over) team.abort().set(ErrorCode::aborted, "a rank left with work of its calls under way");
  } else if (is_over) {
    static_cast<void>(wait_until(Clock::now() + moment, has_passed));
  } else {
    // What does not end by itself is ended.
    team.abort().set(ErrorCode::aborted, "a rank left with calls under way");
    is_over = wait_until(std::max(deadline, Clock::now() + least_patience), has_passed);
    if (is_over) take_failures();
  }
  if (is_over && context->launcher().has_captured()) end_launches();
  return is_over;
}

void Communicator::Impl::end_launches() {
  // Nobody watches whether they wait for ranks that have left.
  std::mutex mutex;
  std::condition_variable ends;
  bool are_over = false;
  const auto end_soon = [&, &team = context->team()] {
    std::unique_lock lock(mutex);
    if (ends.wait_for(lock, longest_wait_of(team), [&] { return are_over; })) return;
    team.abort().set(ErrorCode::aborted, "a rank left with launches under way");
    log_warning("Communicator: launches of graphs that have not come to their end are ended");
  };
  backend::Thread ender;
  try {
    ender = backend::Thread({.name = "tutti-ender", .purpose = "that ends launches of graphs"}, end_soon,
                            [&team = context->team()](const backend::Escaped& escaped) {
                              team.abort().fail("cannot wait for launches of graphs", escaped);
                            });
  } catch (const std::exception& error) {
    log_warning(fmt::format("Communicator: launches of graphs are waited for without end: {}", error.what()));
  }
  for (const Device device : context->devices()) {
    try {
      context->runtime().backend().synchronize_device(device.index());
    } catch (const Error&) {
      continue;  // failed work is over as well
    }
  }
  {
    const std::lock_guard lock(mutex);
    are_over = true;
  }
  ends.notify_all();
  ender.join();
}

void Communicator::Impl::take_failures() {
  for (std::size_t local = 0; local < context->devices().size(); ++local) {
    try {
      context->launcher().check();  // throws for one device at a time
    } catch (const Error& error) {
      const std::string_view what = error.what();
      if (what.find(context->team().abort().word().reason().text()) == std::string_view::npos)
        log_warning(fmt::format("Communicator: destroyed after a failure of other work: {}", what));
    }
  }
}

Team::Settings Communicator::Impl::settings(const CommunicatorOptions& options) {
  const auto usual = Environment::get().patience;
  const std::chrono::milliseconds patience =
      options.patience.value_or(usual ? *usual : std::max(usual_patience, options.timeout));
  Team::Settings settings{.timeout = std::min(options.timeout, longest_limit),
                          .patience = std::min(patience, longest_limit),
                          .window_bytes = options.window_bytes,
                          .transport = options.transport,
                          .determinism = options.determinism,
                          .devices = {}};
  const TransportKind from_environment = Environment::get().transport;
  if (settings.transport == TransportKind::automatic && from_environment != TransportKind::automatic) {
    settings.transport = from_environment;
    settings.transport_source = TransportSource::environment;
  }
  for (const Device device : checked_devices(options)) settings.devices.push_back(device.index());
  return settings;
}

Communicator::Communicator(Exchange& exchange, const CommunicatorOptions& options)
    : impl_(std::make_unique<Impl>(exchange, options, false)) {}
Communicator::Communicator(const CommunicatorOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Communicator::Communicator(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

int Communicator::rank() const noexcept {
  return static_cast<int>(impl_->context->team().membership().rank());
}
int Communicator::rank_count() const noexcept {
  return static_cast<int>(impl_->context->team().membership().rank_count());
}
int Communicator::member_count() const noexcept {
  return static_cast<int>(impl_->context->team().membership().member_count());
}
int Communicator::first_member() const noexcept {
  return static_cast<int>(impl_->context->team().membership().first_local());
}
const std::vector<Device>& Communicator::devices() const noexcept {
  return impl_->context->devices();
}

void Communicator::broadcast(TensorList tensors, int root, StreamList streams) {
  TeamCall call(*impl_->context, Collective::broadcast, streams);
  collectives::broadcast_in_place(call, MemberOperands::one_each(tensors), root);
}

void Communicator::broadcast(const Tensor& tensor, TensorList out, int root, StreamList streams) {
  TeamCall call(*impl_->context, Collective::broadcast, streams);
  collectives::broadcast_into(call, Named::one("tensor", tensor), MemberOperands::one_each(out), root);
}

void Communicator::broadcast_coalesced(TensorLists tensors, int root, StreamList streams) {
  TeamCall call(*impl_->context, Collective::broadcast_coalesced, streams);
  collectives::broadcast_in_place(call, MemberOperands::lists(tensors), root);
}

void Communicator::broadcast_coalesced(TensorList tensors, TensorLists out, int root, StreamList streams) {
  TeamCall call(*impl_->context, Collective::broadcast_coalesced, streams);
  collectives::broadcast_into(call, {"tensors", tensors}, MemberOperands::lists(out), root);
}

void Communicator::reduce_add(TensorList inputs, TensorList out, int root, StreamList streams) {
  TeamCall call(*impl_->context, Collective::reduce_add, streams);
  collectives::reduce_to_root(call, ReduceOp::sum, MemberOperands::one_each(inputs),
                              MemberOperands::one_each(out), root);
}

void Communicator::reduce_add_coalesced(TensorLists inputs, TensorLists out, int root, StreamList streams) {
  TeamCall call(*impl_->context, Collective::reduce_add_coalesced, streams);
  collectives::reduce_to_root(call, ReduceOp::sum, MemberOperands::lists(inputs), MemberOperands::lists(out),
                              root);
}

void Communicator::reduce(TensorList inputs, TensorList out, const ReduceOp& op, int root,
                          StreamList streams) {
  TeamCall call(*impl_->context, Collective::reduce, streams);
  collectives::reduce_to_root(call, op, MemberOperands::one_each(inputs), MemberOperands::one_each(out),
                              root);
}

void Communicator::reduce_coalesced(TensorLists inputs, TensorLists out, const ReduceOp& op, int root,
                                    StreamList streams) {
  TeamCall call(*impl_->context, Collective::reduce_coalesced, streams);
  collectives::reduce_to_root(call, op, MemberOperands::lists(inputs), MemberOperands::lists(out), root);
}

void Communicator::all_reduce_add(TensorList inputs, TensorList out, StreamList streams) {
  TeamCall call(*impl_->context, Collective::all_reduce_add, streams);
  collectives::reduce_to_all(call, ReduceOp::sum, MemberOperands::one_each(inputs),
                             MemberOperands::one_each(out));
}

void Communicator::all_reduce_add_coalesced(TensorLists inputs, TensorLists out, StreamList streams) {
  TeamCall call(*impl_->context, Collective::all_reduce_add_coalesced, streams);
  collectives::reduce_to_all(call, ReduceOp::sum, MemberOperands::lists(inputs), MemberOperands::lists(out));
}

void Communicator::all_reduce(TensorList inputs, TensorList out, const ReduceOp& op, StreamList streams) {
  TeamCall call(*impl_->context, Collective::all_reduce, streams);
  collectives::reduce_to_all(call, op, MemberOperands::one_each(inputs), MemberOperands::one_each(out));
}

void Communicator::all_reduce_coalesced(TensorLists inputs, TensorLists out, const ReduceOp& op,
                                        StreamList streams) {
  TeamCall call(*impl_->context, Collective::all_reduce_coalesced, streams);
  collectives::reduce_to_all(call, op, MemberOperands::lists(inputs), MemberOperands::lists(out));
}

void Communicator::all_gather(TensorList inputs, TensorList out, StreamList streams) {
  TeamCall call(*impl_->context, Collective::all_gather, streams);
  collectives::gather_to_all(call, MemberOperands::one_each(inputs), MemberOperands::one_each(out));
}

void Communicator::all_gather_coalesced(TensorLists inputs, TensorLists out, StreamList streams) {
  TeamCall call(*impl_->context, Collective::all_gather_coalesced, streams);
  collectives::gather_to_all(call, MemberOperands::lists(inputs), MemberOperands::lists(out));
}

void Communicator::reduce_scatter_add(TensorList inputs, TensorList out, StreamList streams) {
  TeamCall call(*impl_->context, Collective::reduce_scatter_add, streams);
  collectives::reduce_and_scatter(call, ReduceOp::sum, MemberOperands::one_each(inputs),
                                  MemberOperands::one_each(out));
}

void Communicator::reduce_scatter(TensorList inputs, TensorList out, const ReduceOp& op, StreamList streams) {
  TeamCall call(*impl_->context, Collective::reduce_scatter, streams);
  collectives::reduce_and_scatter(call, op, MemberOperands::one_each(inputs), MemberOperands::one_each(out));
}

void Communicator::reduce_scatter_coalesced(TensorLists inputs, TensorLists out, const ReduceOp& op,
                                            StreamList streams) {
  TeamCall call(*impl_->context, Collective::reduce_scatter_coalesced, streams);
  collectives::reduce_and_scatter(call, op, MemberOperands::lists(inputs), MemberOperands::lists(out));
}

void Communicator::all_gather(TensorList inputs, TensorList out, ListOf<std::int64_t> sizes,
                              StreamList streams) {
  TeamCall call(*impl_->context, Collective::all_gather, streams);
  collectives::gather_to_all(call, inputs, out, sizes);
}

void Communicator::reduce_scatter(TensorList inputs, TensorList out, const ReduceOp& op,
                                  ListOf<std::int64_t> sizes, StreamList streams) {
  TeamCall call(*impl_->context, Collective::reduce_scatter, streams);
  collectives::reduce_and_scatter(call, op, inputs, out, sizes);
}

void Communicator::all_to_all(TensorList inputs, TensorList out, StreamList streams) {
  TeamCall call(*impl_->context, Collective::all_to_all, streams);
  collectives::exchange_all(call, MemberOperands::one_each(inputs), MemberOperands::one_each(out));
}

void Communicator::all_to_all_coalesced(TensorLists inputs, TensorLists out, StreamList streams) {
  TeamCall call(*impl_->context, Collective::all_to_all_coalesced, streams);
  collectives::exchange_all(call, MemberOperands::lists(inputs), MemberOperands::lists(out));
}

void Communicator::all_to_all(TensorList inputs, TensorList out,
                              ListOf<std::vector<std::int64_t>> input_sizes,
                              ListOf<std::vector<std::int64_t>> out_sizes, StreamList streams) {
  TeamCall call(*impl_->context, Collective::all_to_all, streams);
  collectives::exchange_all(call, inputs, out, input_sizes, out_sizes);
}

void Communicator::scatter(const Tensor& tensor, TensorList out, int root, int dim, StreamList streams) {
  TeamCall call(*impl_->context, Collective::scatter, streams);
  call.set_root(root);
  call.cut_apart(tensor, out, dim);
}

void Communicator::gather(TensorList tensors, const Tensor& out, int root, int dim, StreamList streams) {
  TeamCall call(*impl_->context, Collective::gather, streams);
  call.set_root(root);
  call.join(tensors, out, dim);
}

void Communicator::barrier(StreamList streams) {
  TeamCall(*impl_->context, Collective::barrier, streams).run_barrier();
}

std::optional<Communicator> Communicator::split(std::optional<int> color, int key) {
  struct Wish {
    int has_color = 0;
    int color = 0;
    int key = 0;
    std::uint64_t start = 0;
  };
  TeamContext& context = *impl_->context;
  transport::ranks::free_deferred(context.require_own_process().runtime(),
                                  context.team().membership().devices());
  TeamCall call(context, Collective::split, {});
  const std::uint64_t sequence = call.post_without_work();
  transport::ranks::TeamExchange all(context.team(), sequence);
  const std::vector<Wish> wishes = transport::ranks::gather(
      all, Wish{.has_color = color ? 1 : 0,
                .color = color.value_or(0),
                .key = key,
                .start = transport::ranks::TeamExchange::part_start(context.team())});
  if (!color) return std::nullopt;

  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
    if (wishes[rank].has_color == 1 && wishes[rank].color == *color) ranks.push_back(rank);
  }
  std::ranges::stable_sort(ranks, {}, [&](std::size_t rank) { return wishes[rank].key; });
  std::vector<std::uint64_t> starts;
  for (const std::size_t rank : ranks) starts.push_back(wishes[rank].start);
  transport::ranks::TeamExchange part(context.team(), sequence, std::move(ranks), std::move(starts));
  const Team::Settings& settings = context.team().settings();
  const bool is_open = settings.transport_source == TransportSource::environment;
  const CommunicatorOptions options{.devices = context.devices(),
                                    .timeout = settings.timeout,
                                    .patience = settings.patience,
                                    .window_bytes = settings.window_bytes,
                                    .transport = is_open ? TransportKind::automatic : settings.transport,
                                    .determinism = settings.determinism};
  return Communicator(std::make_unique<Impl>(part, options, true));
}

PlanSummary Communicator::last_plan() const {
  impl_->context->require_own_process();
  const std::lock_guard lock(impl_->context->team().calls().mutex());
  return impl_->context->last_plan();
}

std::string Communicator::explain() const {
  return collectives::explain(*impl_->context);
}
std::string Communicator::explain(const Workload& workload) const {
  return collectives::explain(impl_->context->require_own_process(), workload);
}

void Communicator::abort(std::string_view reason) noexcept {
  if (impl_->is_forked_off()) return;
  impl_->context->team().abort().set(ErrorCode::aborted, fmt::format("rank {} gave up: {}", rank(), reason));
}
void Communicator::check() const {
  impl_->context->require_own_process().team().abort().require_running();
}
bool Communicator::is_running() const noexcept {
  return !impl_->context->team().abort().is_set();
}
std::string Communicator::flight_record() const {
  if (!impl_->is_forked_off())
    static_cast<void>(impl_->context->team().progress().is_idle());  // looks what is complete
  return impl_->context->team().flight_record().json();
}

}  // namespace tutti
