// SPDX-License-Identifier: Apache-2.0
#include "perf/measure/measurer.hpp"

#include "perf/measure/fill_and_check.hpp"
#include "perf/options/cases.hpp"
#include "tutti/error.hpp"
#include "tutti/graph.hpp"
#include "tutti/stream.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <utility>

namespace tutti::perf {
namespace {

/// How many operations one graph holds, of a peer or between ranks, unless -m says: as NCCL's own benchmark
/// does it.
constexpr std::size_t operations_per_graph = 20;

std::vector<const Call*> calls_of_a_graph(const BufferSets& buffers, const Options& options) {
  std::vector<const Call*> calls;
  const std::size_t count = options.calls_of_a_launch > 1
                                ? static_cast<std::size_t>(options.calls_of_a_launch)
                                : std::max(operations_per_graph, buffers.calls().size());
  for (std::size_t index = 0; index < count; ++index) calls.push_back(&buffers.call(index));
  return calls;
}

/// Returns the current streams of the call's devices.
std::vector<Stream> streams_of(const BufferSets& buffers) {
  std::vector<Stream> streams;
  for (const Device device : buffers.call(0).devices) streams.push_back(current_stream(device.index()));
  return streams;
}

/// Captures `work` in a graph for each of the streams, as programs do with NCCL's calls.
std::vector<Graph> capture_each(std::span<const Stream> streams, const std::function<void()>& work) {
  std::vector<Graph> graphs;
  if (streams.empty()) {
    work();
    return graphs;
  }
  Graph last =
      Graph::capture(streams.back(), [&] { graphs = capture_each(streams.first(streams.size() - 1), work); });
  graphs.push_back(std::move(last));
  return graphs;
}

/// Captures `work` in a graph for each stream, or in one if it joins them; the result launches it.
std::function<void()> record(const std::vector<Stream>& streams, bool joins_streams,
                             const std::function<void()>& work) {
  const auto graphs = std::make_shared<std::vector<Graph>>();
  if (joins_streams) {
    graphs->push_back(Graph::capture(streams, work));
  } else {
    *graphs = capture_each(streams, work);
  }
  return [streams, graphs] {
    for (std::size_t index = 0; index < graphs->size(); ++index) (*graphs)[index].launch(streams[index]);
  };
}

}  // namespace

BufferSets::BufferSets(const Operation& operation, const Case& what, Placement placement, int count,
                       const Session& session)
    : of_communicator_(operation.needs_communicator()), have_outputs_(operation.moves_tensors()) {
  for (int set = 0; set < count; ++set) {
    if (what.memory != nullptr) what.memory->start_set(static_cast<std::size_t>(set));
    calls_.push_back(operation.prepare(what, placement));
  }
  session.synchronize();  // preparing enqueues copies
}

void BufferSets::fill_all(const Session& session) const {
  fill(calls_.front().input_buffers);
  copy_first_to_others(&Call::input_buffers, session);
}

void BufferSets::poison_all(const Session& session) const {
  poison(calls_.front().poisonable);
  copy_first_to_others(&Call::poisonable, session);
}

std::uint64_t BufferSets::count_wrong_in_all() const {
  std::uint64_t wrong = 0;
  for (const Call& call : calls_) wrong += count_wrong(call.output_buffers);
  return wrong;
}

void BufferSets::copy_first_to_others(std::vector<Buffer> Call::*buffers, const Session& session) const {
  for (std::size_t set = 1; set < calls_.size(); ++set) {
    for (std::size_t index = 0; index < (calls_[set].*buffers).size(); ++index) {
      (calls_[set].*buffers)[index].tensor.copy_((calls_.front().*buffers)[index].tensor, Blocking::no);
    }
  }
  session.synchronize();
}

Measurement Measurer::tutti(const Operation& operation, const Case& what, Placement placement,
                            BufferSets& buffers, Row& row) const {
  if (placement == Placement::returned) return returned(operation, what, buffers, row);
  if (row.launch == LaunchForm::eager) {
    const Measurement measurement = measure_and_check(
        launcher_of_calls([&](std::size_t index) { operation.run(buffers.call(index), what); }, buffers),
        buffers);
    note_last_plan(operation, row);
    return measurement;
  }
  return is_replayed(operation) ? replayed(operation, what, buffers, row)
                                : bound(operation, what, buffers, row);
}

bool Measurer::is_replayed(const Operation& operation) const {
  return operation.needs_communicator() && options_.replays;
}

void Measurer::note_last_plan(const Operation& operation, Row& row) const {
  // A copy has no plan of its own: the last one would be some collective's.
  const PlanSummary plan =
      operation.is_copy() ? PlanSummary{"copy", "device to device"} : session_.last_plan(operation);
  row.transport = plan.transport;
  row.algorithm = plan.algorithm;
}

void Measurer::make_first_calls(const Operation& operation, const Case& what,
                                const BufferSets& buffers) const {
  session_.processes().barrier();
  for (const Call& call : buffers.calls()) session_.call([&] { operation.run(call, what); });
  session_.synchronize();
}

Measurement Measurer::bound(const Operation& operation, const Case& what, const BufferSets& buffers,
                            Row& row) const {
  if (operation.needs_communicator()) make_first_calls(operation, what, buffers);
  std::vector<Stream> streams;  // none: the current stream of the call's home
  if (operation.needs_communicator()) streams = streams_of(buffers);
  std::vector<PersistentCollective> bound;
  for (const Call& call : buffers.calls())
    session_.call([&] { bound.push_back(operation.bind(call, what)); });
  row.transport = bound.front().summary().transport;
  row.algorithm = bound.front().summary().algorithm;
  const auto launch = [&](std::size_t index) {
    PersistentCollective& call = bound[index % bound.size()];
    streams.empty() ? call.launch() : call.launch(streams);
  };
  return measure_and_check(launcher_of_calls(launch, buffers), buffers);
}

Measurement Measurer::replayed(const Operation& operation, const Case& what, const BufferSets& buffers,
                               Row& row) const {
  make_first_calls(operation, what, buffers);
  // Messages inside a process join its streams.
  const Launcher how = launcher_of_graphs([&](const Call& call) { operation.run(call, what); }, buffers,
                                          operation.goes_around());
  note_last_plan(operation, row);
  row.algorithm += ", replayed";
  return measure_and_check(how, buffers);
}

Measurement Measurer::returned(const Operation& operation, const Case& what, BufferSets& buffers,
                               Row& row) const {
  std::vector<Lists> results(buffers.calls().size());
  const Launcher how = launcher(
      [&](std::size_t index) {
        results[index % results.size()] = operation.run_returning(buffers.call(index), what);
      },
      buffers);
  buffers.fill_all(session_);
  Measurement measurement;
  measurement.timing = time(how);
  note_last_plan(operation, row);
  if (!options_.check) return measurement;

  const auto check_results = [&] {
    for (std::size_t set = 0; set < results.size(); ++set) {
      buffers.calls()[set].set_outputs(std::exchange(results[set], {}));
    }
    return buffers.count_wrong_in_all();
  };
  std::uint64_t wrong = check_results();
  for (Call& call : buffers.calls()) {
    poison(call.poisonable);
    call.drop_outputs();
  }
  buffers.fill_all(session_);  // some results were inputs
  launch_each_once(how);
  wrong += check_results();
  measurement.wrong = session_.processes().sum(wrong);
  return measurement;
}

Measurement Measurer::peer(Peer& peer, std::size_t mode, const Operation& operation, const Case& what,
                           Placement placement, const BufferSets& buffers) const {
  const std::size_t sets = buffers.calls().size();
  OperandMemory* const memory = peer.memory(mode, operation, what, sets);
  if (memory == nullptr) return this->peer(peer, mode, operation, buffers);
  Case elsewhere = what;
  elsewhere.memory = memory;
  Measurement measurement;
  {
    const BufferSets equal(operation, elsewhere, placement, static_cast<int>(sets), session_);
    measurement = this->peer(peer, mode, operation, equal);
  }
  peer.trim();
  return measurement;
}

Measurement Measurer::peer(Peer& peer, std::size_t mode, const Operation& operation,
                           const BufferSets& buffers) const {
  const auto run = [&](Launcher how) {
    how.interruptible = !session_.processes().are_ranks();
    return measure_and_check(how, buffers);
  };
  const Enqueue enqueue = [&](const Call& call) { peer.enqueue(mode, operation, call); };
  if (options_.launch == LaunchForm::eager || operation.is_copy())
    return run(launcher_of_calls([&](std::size_t index) { enqueue(buffers.call(index)); }, buffers));
  if (is_replayed(operation)) return run(launcher_of_graphs(enqueue, buffers, false));
  // As what tutti has bound: a launch for each call.
  std::vector<std::function<void()>> launches;
  for (const Call& call : buffers.calls())
    launches.push_back(record(streams_of(buffers), false, [&] { enqueue(call); }));
  return run(
      launcher_of_calls([&launches](std::size_t index) { launches[index % launches.size()](); }, buffers));
}

Launcher Measurer::launcher(std::function<void(std::size_t)> launch, const BufferSets& buffers) const {
  return {.launch = [this, launch = std::move(launch)](
                        std::size_t index) { session_.call([&] { launch(index); }); },
          .launch_one = {},
          .synchronize = [this] { session_.synchronize(); },
          .rotation = buffers.calls().size()};
}

Launcher Measurer::launcher_of_calls(std::function<void(std::size_t)> call, const BufferSets& buffers) const {
  const auto calls = static_cast<std::size_t>(options_.calls_of_a_launch);
  if (calls == 1) return launcher(std::move(call), buffers);
  Launcher how = launcher(
      [call, calls](std::size_t index) {
        for (std::size_t i = 0; i < calls; ++i) call(index * calls + i);
      },
      buffers);
  how.launch_one = [this, call] { session_.call([&] { call(0); }); };
  how.operations_per_launch = calls;
  return how;
}

Launcher Measurer::launcher_of_graphs(const Enqueue& enqueue, const BufferSets& buffers,
                                      bool joins_streams) const {
  const std::vector<const Call*> calls = calls_of_a_graph(buffers, options_);
  const auto recorded = [&](std::span<const Call* const> some) {
    std::function<void()> launch;
    session_.call([&] {
      launch = record(streams_of(buffers), joins_streams, [&] {
        for (const Call* const call : some) enqueue(*call);
      });
    });
    return launch;
  };
  Launcher how = launcher([launch = recorded(calls)](std::size_t) { launch(); }, buffers);
  how.launch_one = [this, launch = recorded(std::span(calls).first(1))] { session_.call(launch); };
  how.operations_per_launch = calls.size();
  how.rotation = 1;
  return how;
}

Timing Measurer::time(const Launcher& how) const {
  Timing timing = measure(how, options_.timing, session_.processes());
  session_.watch().look();
  return timing;
}

Measurement Measurer::measure_and_check(const Launcher& how, const BufferSets& buffers) const {
  if (options_.check) buffers.poison_all(session_);
  buffers.fill_all(session_);  // second, because in place an output holds an input
  Measurement measurement;
  measurement.timing = time(how);
  if (!options_.check || !buffers.have_outputs()) return measurement;
  const bool repeatable = buffers.call(0).repeatable;
  if (!repeatable) {
    buffers.fill_all(session_);
    launch_each_once(how);
  }
  // A graph of many calls makes some of them twice: then the first set alone can be predicted.
  const bool only_first = !repeatable && how.launch_one;
  measurement.wrong = session_.processes().sum(only_first ? count_wrong(buffers.call(0).output_buffers)
                                                          : buffers.count_wrong_in_all());
  return measurement;
}

void Measurer::launch_each_once(const Launcher& how) const {
  session_.synchronize();  // what is launched need not follow all current streams
  session_.processes().barrier();
  if (how.launch_one) {
    how.launch_one();
  } else {
    for (std::size_t index = 0; index < how.rotation; ++index) how.launch(index);
  }
  session_.synchronize();
}

}  // namespace tutti::perf
