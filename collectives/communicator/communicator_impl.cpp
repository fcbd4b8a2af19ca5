// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/communicator_impl.hpp"

#include "base/patience.hpp"
#include "collectives/call/arguments.hpp"
#include "device/blocking_call.hpp"
#include "device/capture_gate.hpp"
#include "device/current_device.hpp"
#include "os/thread.hpp"
#include "settings/environment.hpp"
#include "settings/log.hpp"
#include "transport/probes/launch_probe.hpp"
#include "transport/team/departure.hpp"
#include "transport/team/joining/introduction.hpp"
#include "transport/team/joining/single_rank_exchange.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
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
using collectives::TeamContext;
using transport::Launching;
using transport::LaunchProbe;
using transport::team::SymmetricAllocation;
using transport::team::Team;

/// The default patience for late ranks, unless the timeout is longer.
constexpr std::chrono::milliseconds usual_patience = std::chrono::minutes(10);

std::unique_ptr<TeamContext> make_alone(const Team::Settings& settings) {
  transport::team::SingleRankExchange exchange;
  return std::make_unique<TeamContext>(exchange, settings);
}

/// Returns the longest time for which other ranks may delay calls that have been made.
std::chrono::milliseconds longest_wait_of(Team& team) {
  return std::max(team.settings().timeout, team.waiting().patience().longest());
}

/// Polls until the condition holds, or the time has come. Returns whether it holds.
template <class Condition>
bool wait_until(std::chrono::steady_clock::time_point end, const Condition& holds) {
  while (!holds() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  return holds();
}

/// Returns true if the ranks that are still there have completed this rank's calls; of captured ones nobody
/// knows.
bool have_all_completed(Team& team) {
  if (team.calls().has_captured()) return true;
  const std::uint64_t last = team.calls().last();
  for (std::size_t rank = 0; rank < team.membership().rank_count(); ++rank) {
    const bool is_there = !team.failure_detector().is_gone(rank) &&
                          team.state().status(rank).state.load() < transport::team::RankStatus::leaving;
    if (is_there && !team.progress().has_completed(rank, last)) return false;
  }
  return true;
}

/// Until the process ends, as others than this process or thread still use it.
void keep(std::unique_ptr<TeamContext> context) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::unique_ptr<TeamContext>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(context));
}

}  // namespace

CommunicatorCollectives::Impl::Impl(const CommunicatorOptions& options)
    : context(make_alone(prepared(options))) {}

std::vector<Device> CommunicatorCollectives::Impl::checked_devices(const CommunicatorOptions& options) {
  constexpr std::size_t smallest_window = std::size_t{512} << 10U;
  constexpr std::size_t largest_window = std::size_t{1} << 30U;
  const BlockingCall blocks("Communicator");
  const Arguments arguments(Runtime::get(), "Communicator");
  std::vector<Device> devices = options.devices;
  if (devices.empty()) devices.push_back(Device::current());
  for (Device& device : devices) device = resolved(arguments.runtime(), device);
  arguments.existing_devices(devices, "options.devices");
  arguments.known_transport(options.transport);
  arguments.enumerator(options.determinism, Determinism::bitwise, "options.determinism");
  arguments.enough_multiprocessors(options.multiprocessors, 1);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (std::find(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(i), devices[i]) !=
        devices.begin() + static_cast<std::ptrdiff_t>(i)) {
      arguments.fail("options.devices[{}] is {}, which is listed before, expected each device once", i,
                     to_string(devices[i]));
    }
  }
  if (devices.size() > 1) {
    std::vector<int> indices;
    for (const Device device : devices) indices.push_back(device.index());
    if (Runtime::get().part<LaunchProbe>().find(indices) == Launching::impossible) {
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
  if (devices.size() > transport::team::most_local_members) {
    arguments.fail("options.devices has {} entries, expected {} at most", devices.size(),
                   transport::team::most_local_members);
  }
  if (options.window_bytes < smallest_window || options.window_bytes > largest_window) {
    arguments.fail("options.window_bytes is {}, expected {} to {}", options.window_bytes, smallest_window,
                   largest_window);
  }
  return devices;
}

Team::Settings CommunicatorCollectives::Impl::checked(Exchange& exchange, const CommunicatorOptions& options,
                                                      bool beside) {
  try {
    return beside ? settings(options) : prepared(options);
  } catch (const std::exception& error) {
    const bool is_no_timeout = options.timeout <= std::chrono::milliseconds(0);
    exchange.limit_waits(is_no_timeout ? CommunicatorOptions{}.timeout
                                       : std::min(options.timeout, longest_limit));
    transport::team::decline_to_join(exchange, error.what());
    throw;
  }
}

Team::Settings CommunicatorCollectives::Impl::prepared(const CommunicatorOptions& options) {
  Team::Settings result = settings(options);
  transport::team::free_deferred(Runtime::get(), result.devices);
  return result;
}

CommunicatorCollectives::Impl::~Impl() {
  if (!is_forked_off()) {
    const bool has_ended_kernels = end_symmetric_memory();
    if (end_work_of_calls() && has_ended_kernels) return;
    log_warning(
        "Communicator: destroyed while its calls are running: the memory that they use stays allocated");
    context->team().live_teams().stop_counting(context->team().calls());
  }
  keep(std::move(context));
}

bool CommunicatorCollectives::Impl::end_symmetric_memory() {
  constexpr std::chrono::seconds moment{1};
  Team& team = context->team();
  std::vector<std::shared_ptr<SymmetricAllocation>> all;
  for (const auto& allocation : context->symmetric()) {
    if (auto used = allocation.lock()) all.push_back(std::move(used));
  }
  for (const auto& allocation : all) allocation->begin_release();
  bool are_over = true;
  for (const auto& allocation : all) {
    if (allocation->await_own_release(longest_wait_of(team))) continue;
    team.abort().set(ErrorCode::aborted, "a rank left with kernels under way that use symmetric memory");
    are_over = allocation->await_own_release(moment) && are_over;
  }
  // Ranks that are threads of this process may need the thread that waits. What they use stays in any case.
  const auto is_needless = [&team](std::size_t rank) {
    return team.membership().shares_process(rank) ||
           team.state().status(rank).state.load() >= transport::team::RankStatus::leaving;
  };
  for (const auto& allocation : all) static_cast<void>(allocation->await_all(is_needless));
  return are_over;
}

bool CommunicatorCollectives::Impl::end_work_of_calls() {
  BlockingCall::warn("the end of a Communicator");
  using Clock = std::chrono::steady_clock;
  // Calls are complete a moment before their last work is over. Where they are not marked, the streams may
  // have work of others behind it, which may wait for what happens only after this.
  constexpr std::chrono::milliseconds moment{100};
  constexpr std::chrono::seconds least_patience{1};
  Team& team = context->team();
  const auto deadline = Clock::now() + longest_wait_of(team);
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
  if (is_over && context->launcher().has_captured())
    end_launches(longest_wait_of(team), "a rank left with launches under way");
  return is_over;
}

bool CommunicatorCollectives::Impl::settle_calls(std::chrono::milliseconds longest) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds moment{1};
  Team& team = context->team();
  if (!team.abort().is_set()) {
    const auto deadline = Clock::now() + longest;
    const bool is_over = wait_until(deadline, [&team] {
      return team.abort().is_set() || (team.progress().is_idle() && have_all_completed(team));
    });
    // Launches of graphs are not among the calls that are counted.
    if (!team.abort().is_set() && context->launcher().has_captured()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      end_launches(std::max<std::chrono::milliseconds>(left, moment),
                   "ranks changed with launches under way");
    }
    if (!team.abort().is_set()) return is_over;
  }
  context->launcher().mark();
  if (wait_until(Clock::now() + moment, [this] { return context->launcher().has_passed(); })) take_failures();
  team.take_ends();
  return false;
}

void CommunicatorCollectives::Impl::end_launches(std::chrono::milliseconds longest, const char* reason) {
  // What NCCL carries, and messages, nobody watches: they may wait for ranks that have left.
  std::mutex mutex;
  std::condition_variable ends;
  bool are_over = false;
  const auto end_soon = [&, &team = context->team()] {
    std::unique_lock lock(mutex);
    if (ends.wait_for(lock, longest, [&] { return are_over; })) return;
    team.abort().set(ErrorCode::aborted, reason);
    log_warning("Communicator: launches of graphs are still running and are aborted");
  };
  backend::Thread ender;
  try {
    ender = backend::Thread({.name = "tutti-ender", .purpose = "that ends launches of graphs"}, end_soon,
                            [&team = context->team()](const backend::Escaped& escaped) {
                              team.abort().fail("cannot wait for launches of graphs", escaped);
                            });
  } catch (const std::exception& error) {
    log_warning(
        fmt::format("Communicator: waits for launches of graphs without a time limit: {}", error.what()));
  }
  for (const Device device : context->devices()) {
    try {
      // A wait that another thread's capture refuses would let memory go that launches still use.
      const CaptureGate::Wait wait(context->runtime().part<CaptureGate>());
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

void CommunicatorCollectives::Impl::take_failures() {
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

CommunicatorOptions CommunicatorCollectives::Impl::options() const {
  const Team::Settings& settings = context->team().settings();
  const bool is_open = settings.transport_source == TransportSource::environment;
  const bool is_limited = settings.most_multiprocessors != backend::all_multiprocessors;
  CommunicatorOptions options{.devices = context->devices(),
                              .timeout = settings.timeout,
                              .patience = settings.patience,
                              .window_bytes = settings.window_bytes,
                              .transport = is_open ? TransportKind::automatic : settings.transport,
                              .determinism = settings.determinism,
                              .opens_foreign_memory = settings.opens_foreign_memory};
  if (is_limited) options.multiprocessors = static_cast<int>(settings.most_multiprocessors);
  return options;
}

Team::Settings CommunicatorCollectives::Impl::settings(const CommunicatorOptions& options) {
  const auto usual = Environment::get().patience;
  const std::chrono::milliseconds patience =
      options.patience.value_or(usual ? *usual : std::max(usual_patience, options.timeout));
  Team::Settings settings{
      .timeout = std::min(options.timeout, longest_limit),
      .patience = std::min(patience, longest_limit),
      .window_bytes = options.window_bytes,
      .transport = options.transport,
      .determinism = options.determinism,
      .most_multiprocessors = transport::most_multiprocessors_of(options.multiprocessors),
      .is_direct = Environment::get().direct,
      .opens_foreign_memory = options.opens_foreign_memory.value_or(Environment::get().opens_foreign_memory),
      .devices = {}};
  const TransportKind from_environment = Environment::get().transport;
  if (settings.transport == TransportKind::automatic && from_environment != TransportKind::automatic) {
    settings.transport = from_environment;
    settings.transport_source = TransportSource::environment;
  }
  for (const Device device : checked_devices(options)) settings.devices.push_back(device.index());
  return settings;
}

}  // namespace tutti
