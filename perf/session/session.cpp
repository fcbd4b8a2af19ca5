// SPDX-License-Identifier: Apache-2.0
#include "perf/session/session.hpp"

#include "perf/processes/failure.hpp"
#include "perf/session/provenance.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tuple>

#include <fmt/format.h>
#include <unistd.h>

namespace tutti::perf {
namespace {

constexpr int most_buffer_sets = 32;
constexpr double most_of_free_memory = 0.75;  ///< for operands that share a block

void set_environment(const char* name, const std::string& value) {
  if (!value.empty()) setenv(name, value.c_str(), 1);
}

/// An error that begins with a variable begins with the option whose value the variable has passed on.
std::string with_option_named(std::string error, const Options& options) {
  const auto rename = [&error](std::string_view variable, std::string_view option) {
    if (error.starts_with(variable)) error.replace(0, variable.size(), option);
  };
  if (!options.virtual_topology.empty()) rename("TUTTI_VIRTUAL_TOPOLOGY: ", "--topology: ");
  if (options.backend == "cuda") rename("TUTTI_BACKEND is ", "--backend is ");
  if (options.virtual_devices) rename("TUTTI_VIRTUAL_DEVICES: ", "--devices: ");
  return error;
}

/// Starts the library on the backend and the virtual devices that the options ask for, by the environment,
/// which it reads when it is first used; in one process also tests the peers. Returns what there is then.
/// Throws UsageError, which names the option, for a backend or a topology that cannot be used.
Topology start_library(const Options& options, bool are_ranks) {
  // The library reads these when it is first used, which is below.
  set_environment("TUTTI_BACKEND", options.backend);
  set_environment("TUTTI_VIRTUAL_TOPOLOGY", options.virtual_topology);
  if (options.virtual_devices)
    set_environment("TUTTI_VIRTUAL_DEVICES", fmt::format("{}", *options.virtual_devices));
  // A rank has few devices; every virtual one it does not use would cost threads.
  const bool limits = are_ranks && std::getenv("TUTTI_VIRTUAL_TOPOLOGY") == nullptr &&
                      std::getenv("TUTTI_VIRTUAL_DEVICES") == nullptr;
  if (limits) set_environment("TUTTI_VIRTUAL_DEVICES", fmt::format("{}", options.devices_used.value_or(1)));
  try {
    init();
    if (limits) unsetenv("TUTTI_VIRTUAL_DEVICES");  // results record what was asked for
    // A rank's devices are seldom each other's peers, and a test would take memory on all that it sees.
    if (!are_ranks) self_test_peers();
    return discover_topology();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported) {
      throw UsageError(with_option_named(error.what(), options));  // an unusable backend or topology
    }
    throw;
  }
}

}  // namespace

Session::Session(const Options& options, Processes& processes) : processes_(processes) {
  job_.mode = processes.are_ranks() ? Mode::ranks : Mode::single_process;
  topology_ = start_library(options, processes.are_ranks());
  choose_devices(options);
  const bool have_root = std::ranges::any_of(options.operations, [](const Operation* operation) {
    return operation->has_root() && !operation->is_copy();
  });
  if (have_root && options.root && *options.root >= members_.count) {
    throw UsageError(fmt::format("-r: root {} is not one of the {} {} (0 to {})", *options.root,
                                 members_.count, processes.are_ranks() ? "members" : "devices",
                                 members_.count - 1));
  }
  for (const Device device : members_.local) {
    streams_.emplace_back(device.index());
    set_stream(streams_.back());
    const std::size_t free = mem_get_info(device.index()).free;
    free_bytes_ = streams_.size() == 1 ? free : std::min(free_bytes_, free);
  }
  set_device(members_.local.front().index());  // device 0 may be another rank's
  gather_members();
  if (options.memory != MemoryChoice::tutti) make_arena(options.memory);
  watch_ = std::make_unique<DeviceWatch>(members_.local);
  settings_.devices = members_.local;
  settings_.transport = options.collective.transport;
  settings_.determinism = options.collective.determinism;
  settings_.multiprocessors = options.collective.multiprocessors;
  if (processes.are_ranks()) {
    join_ranks();
  } else if (std::ranges::any_of(options.operations, &Operation::needs_communicator)) {
    join_local_devices();
  }
}

void Session::choose_devices(const Options& options) {
  const int available = tutti::device_count();
  const int used = options.devices_used.value_or(processes_.are_ranks() ? 1 : available);
  if (used > available) {
    throw UsageError(fmt::format("-g: {} devices asked for, but there are {} on backend {}", used, available,
                                 name_of(topology_.backend)));
  }
  const DeviceChoice choice =
      devices_of_rank(used, available, topology_.backend, processes_.rank(), processes_.gather(host_name()));
  devices_shown_ = choice.shown;
  members_.local.clear();
  for (int device = choice.first; device < choice.first + used; ++device) members_.local.emplace_back(device);
  job_.ranks = processes_.size();
  job_.groups = options.groups;
  job_.devices_per_rank = used;
  if (job_.ranks % job_.groups != 0) {
    throw UsageError(
        fmt::format("--groups: {} groups of {} ranks, expected a number that divides the ranks evenly",
                    job_.groups, job_.ranks));
  }
  members_.count = used * job_.ranks_of_group();
  members_.first_local = used * (processes_.rank() % job_.ranks_of_group());
}

void Session::gather_members() {
  using Told = std::tuple<std::string, int, int, std::string, std::string>;
  std::vector<Told> mine;
  for (const Device device : members_.local) {
    const DeviceProperties& properties = topology_.devices[static_cast<std::size_t>(device.index())];
    mine.emplace_back(host_name(), getpid(), device.index(), properties.name, properties.pci_bus_id);
  }
  const std::vector<std::string> all = processes_.gather(nlohmann::json(mine).dump());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (const auto& [host, process, device, name, bus] :
         nlohmann::json::parse(all[rank]).get<std::vector<Told>>())
      job_.members.push_back({static_cast<int>(rank), host, process, device, name, bus});
  }
}

void Session::make_arena(MemoryChoice choice) {
  const double most = processes_.smallest(static_cast<double>(free_bytes_)) * most_of_free_memory;
  arena_ = std::make_unique<OperandArena>(choice, members_.local, static_cast<std::size_t>(most));
}

void Session::join_local_devices() {
  if (settings_.multiprocessors == 0) {
    communicator_refusal_ = kernels_carry_communicators;
    return;
  }
  try {
    communicator_ = std::make_unique<Communicator>(settings_);
    members_.communicator = communicator_.get();
  } catch (const Error& error) {
    // A transport that there is not, or too many devices: other operations can do without.
    if (error.code() != ErrorCode::unsupported && error.code() != ErrorCode::invalid_argument) throw;
    communicator_refusal_ = error.what();
  }
}

void Session::join_ranks() {
  for (const Device device : members_.local) tutti::synchronize(device.index());  // makes CUDA's context
  const double before = processes_.milliseconds_since_start();
  try {
    join();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unsupported)
      throw UsageError(error.what());  // a transport, or several hosts
    throw;
  }
  const double joined = processes_.milliseconds_since_start();

  std::vector<Tensor> numbers;
  for (const Device device : members_.local) numbers.push_back(ones({1}, {.device = device}));
  members_.communicator->all_reduce_add(numbers, numbers);
  synchronize();
  const double complete = processes_.milliseconds_since_start();
  job_.start_up = StartUp{.devices = processes_.largest(before),
                          .communicator = processes_.largest(joined - before),
                          .first_collective = processes_.largest(complete)};
}

void Session::synchronize() const {
  for (const Stream& stream : streams_) stream.synchronize();
}

int Session::buffer_sets(std::size_t payload_bytes) const {
  const std::size_t payload = std::max<std::size_t>(payload_bytes, 1);
  const std::size_t cache = topology_.devices.front().l2_cache_size;
  // Virtual devices share the host's caches: rotating shows mistakes in reuse there, not bandwidth.
  const std::size_t wanted = topology_.backend == BackendKind::host ? 2 : 2 * cache / payload + 1;
  const std::size_t affordable = free_bytes_ / 2 / (2 * payload);  // the root holds an input and an output
  const auto sets = std::clamp<std::size_t>(std::min(wanted, affordable), 1, most_buffer_sets);
  return static_cast<int>(processes_.smallest(static_cast<double>(sets)));
}

Members Session::members_of(const Operation& operation) const {
  Members members = members_;
  if (!operation.needs_communicator()) members.communicator = nullptr;
  return members;
}

std::string Session::refusal(const Operation& operation) const {
  return operation.needs_communicator() ? communicator_refusal_ : "";
}

PlanSummary Session::last_plan(const Operation& operation) const {
  return operation.needs_communicator() ? members_.communicator->last_plan() : tutti::last_plan();
}

void Session::together(const std::function<void()>& work) const {
  is_calling_ = false;
  processes_.together(work, [this](const Failure& failure) {
    // Want of memory is told in the next meeting, unless others wait for this rank elsewhere.
    const bool is_awaited = is_calling_ || !failure.is(ErrorCode::out_of_memory);
    if (is_awaited) abort(failure.message);
  });
}

void Session::abort(const std::string& reason) const {
  const std::scoped_lock lock(communicators_);
  if (group_) group_->abort(reason);
  if (communicator_) communicator_->abort(reason);
}

void Session::join() {
  auto all = processes_.make_communicator(settings_);
  std::unique_ptr<Communicator> group;
  if (job_.groups > 1) group = std::make_unique<Communicator>(*all->split(job_.group_of(processes_.rank())));
  const std::scoped_lock lock(communicators_);
  communicator_ = std::move(all);
  group_ = std::move(group);
  members_.communicator = group_ ? group_.get() : communicator_.get();
}

void Session::part() {
  const std::scoped_lock lock(communicators_);
  members_.communicator = nullptr;
  group_.reset();
  communicator_.reset();
}

void Session::recover() {
  const bool has_ended = processes_.largest(is_calling_ ? 1.0 : 0.0) != 0.0;
  together([&] {
    if (processes_.are_ranks() && has_ended) {
      part();
      join();
    }
    synchronize();
  });
}

}  // namespace tutti::perf
