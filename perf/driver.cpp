// SPDX-License-Identifier: Apache-2.0
#include "driver.hpp"

#include "buffer_sets.hpp"
#include "cases.hpp"
#include "fill_and_check.hpp"
#include "interrupt.hpp"
#include "tutti/error.hpp"
#include "tutti/graph.hpp"
#include "tutti/stream.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

/// How many operations one graph holds, of a peer or between ranks: as NCCL's own benchmark does it.
constexpr std::size_t operations_per_graph = 20;

/// From now on every transfer between virtual devices of this process is damaged, until the object is gone.
class Corruption {
 public:
  Corruption() {
    using namespace virtual_devices;
    constexpr std::uint64_t always = std::uint64_t{1} << 40U;
    for (const auto operation : {virtual_devices::Operation::copy, virtual_devices::Operation::kernel}) {
      inject({.operation = operation, .kind = FaultKind::corrupt, .count = always});
    }
  }
  Corruption(const Corruption&) = delete;
  Corruption& operator=(const Corruption&) = delete;
  ~Corruption() { virtual_devices::clear_faults(); }
};

/// Measures one row after another with the same settings.
class Driver {
 public:
  Driver(const Options& options, Session& session, Peer* peer, Results& results, Listener& listener)
      : options_(options), session_(session), peer_(peer), results_(results), listener_(listener) {}

  void measure_operation(const Operation& operation) {
    listener_.start_operation(operation);
    if (const std::string refusal = session_.refusal(operation); !refusal.empty()) {
      skip({std::string(operation.name()), refusal, Skipped::Cause::refused});
      return listener_.finish_operation(operation);
    }
    for (const Case& what : cases_of(operation, options_, session_.members_of(operation))) {
      if (const std::string reason = too_small(operation, what); !reason.empty()) {
        skip({describe(operation, what), reason, Skipped::Cause::too_small});
        continue;
      }
      listener_.start_row(operation, what);
      measure_case(operation, what);
    }
    listener_.finish_operation(operation);
  }

 private:
  void measure_case(const Operation& operation, Case what) {
    Row row;
    session_.together([&] {
      check_interrupt();
      if (!listener_.wants_more()) throw Interrupted();
      row = empty_row(operation, what);
    });
    Row peer_row = row;
    std::vector<Skipped> skipped;
    std::optional<Skipped> peer_skipped;
    for (const Placement placement : placements_of(operation, row.results)) {
      what.members = session_.members_of(operation);  // the communicator may have been made anew
      std::optional<BufferSets> buffers;
      const std::optional<Skipped> left_out = attempt(placed(operation, what, placement), [&] {
        buffers.emplace(operation, what, placement, row.buffer_sets, session_);
        note_payload(buffers->call(0), row);
        part_of(row, placement) = measure_tutti(operation, what, placement, *buffers, row);
      });
      if (left_out) {
        skipped.push_back(*left_out);
      } else if (peer_ != nullptr && !peer_skipped) {
        peer_skipped = attempt(describe(operation, what) + " by the peer", [&] {
          if (const std::string refusal = peer_->refusal(operation, buffers->call(0)); !refusal.empty())
            throw Error(ErrorCode::unsupported, refusal);
          part_of(peer_row, placement) = measure_peer(operation, what, placement, *buffers);
        });
      }
    }
    if (!row.leading()) {
      skipped.front().what = describe(operation, what);
      return skip(skipped.front());
    }
    for (const Skipped& left_out : skipped) skip(left_out);
    add(operation, row);
    if (peer_skipped) skip(*peer_skipped);
    if (!peer_row.leading()) return;
    complete_peer_row(row, peer_row);
    add(operation, peer_row);
  }

  static std::vector<Placement> placements_of(const Operation& operation, ResultForm results) {
    if (results == ResultForm::returned) return {Placement::returned};
    std::vector<Placement> placements;
    for (const Placement placement : {Placement::out_of_place, Placement::in_place}) {
      if (operation.has(placement)) placements.push_back(placement);
    }
    return placements;
  }
  static std::string placed(const Operation& operation, const Case& what, Placement placement) {
    return describe(operation, what) + (placement == Placement::in_place ? " in place" : " out of place");
  }

  /// Runs `work` on all ranks. What one transport cannot carry, or there is no memory for, is left out by all
  /// of them; the others of the run may still be measured.
  std::optional<Skipped> attempt(const std::string& what, const std::function<void()>& work) {
    try {
      session_.together(work);
      return std::nullopt;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::unsupported) return Skipped{what, error.what(), Skipped::Cause::refused};
      if (error.code() != ErrorCode::out_of_memory) throw;
      session_.recover();
      return Skipped{what, error.what(), Skipped::Cause::out_of_memory};
    }
  }

  static void note_payload(const Call& call, Row& row) {
    row.bytes = call.bytes;
    row.count = call.count;
    row.tensors = call.tensors;
  }
  void note_last_plan(const Operation& operation, Row& row) const {
    // A copy has no plan of its own: the last one would be some collective's.
    const PlanSummary plan =
        operation.is_copy() ? PlanSummary{"copy", "device to device"} : session_.last_plan(operation);
    row.transport = plan.transport;
    row.algorithm = plan.algorithm;
  }

  [[nodiscard]] Row empty_row(const Operation& operation, const Case& what) const {
    Row row;
    row.operation = operation.name();
    row.tensor_list = what.tensors.empty() ? "" : options_.tensors_name;
    row.dtype = what.dtype;
    if (operation.sums()) row.redop = what.reduce_kind;
    row.root = operation.has_root() ? what.root : -1;
    row.partner = operation.is_copy() ? what.partner : -1;
    row.dim = what.dim;
    row.device_count = what.members.count;
    row.launch = operation.is_copy() ? LaunchForm::eager : options_.launch;
    row.results = operation.is_copy() ? ResultForm::given : options_.results;
    row.bus_factor = operation.bus_factor(what.members.count);
    row.buffer_sets = options_.buffer_sets.value_or(session_.buffer_sets(payload_bytes(operation, what)));
    return row;
  }

  static std::optional<Measurement>& part_of(Row& row, Placement placement) {
    return placement == Placement::in_place ? row.in_place : row.out_of_place;
  }

  Measurement measure_tutti(const Operation& operation, const Case& what, Placement placement,
                            BufferSets& buffers, Row& row) const {
    if (placement == Placement::returned) return measure_returned(operation, what, buffers, row);
    if (row.launch == LaunchForm::eager) {
      const Measurement measurement = measure_and_check(
          launcher([&](std::size_t index) { operation.run(buffers.call(index), what); }, buffers), buffers);
      note_last_plan(operation, row);
      return measurement;
    }
    if (operation.needs_communicator()) return measure_captured(operation, what, buffers, row);
    std::vector<PersistentCollective> bound;
    for (const Call& call : buffers.calls()) bound.push_back(operation.bind(call, what));
    row.transport = bound.front().summary().transport;
    row.algorithm = bound.front().summary().algorithm;
    return measure_and_check(
        launcher([&bound](std::size_t index) { bound[index % bound.size()].launch(); }, buffers), buffers);
  }

  /// Calls of a communicator: replays of a graph of several.
  Measurement measure_captured(const Operation& operation, const Case& what, const BufferSets& buffers,
                               Row& row) const {
    // What is set up in a first call cannot be captured.
    session_.processes().barrier();
    for (const Call& call : buffers.calls()) session_.call([&] { operation.run(call, what); });
    session_.synchronize();
    std::vector<Stream> streams;
    for (const Device device : buffers.call(0).devices) streams.push_back(current_stream(device.index()));
    const Stream& stream = streams.front();
    const std::vector<const Call*> calls = calls_of_a_graph(buffers);
    const auto capture = [&](std::span<const Call* const> captured) {
      std::optional<Graph> graph;
      session_.call([&] {
        graph = Graph::capture(streams, [&] {
          for (const Call* const call : captured) operation.run(*call, what);
        });
      });
      return *std::move(graph);
    };
    const Graph graph = capture(calls);
    const Graph one = capture(std::span(calls).first(1));
    note_last_plan(operation, row);
    row.algorithm += ", replayed";
    Launcher how = launcher([&](std::size_t) { graph.launch(stream); }, buffers);
    how.launch_one = [&] { session_.call([&] { one.launch(stream); }); };
    how.operations_per_launch = calls.size();
    how.rotation = 1;
    return measure_and_check(how, buffers);
  }

  static std::vector<const Call*> calls_of_a_graph(const BufferSets& buffers) {
    std::vector<const Call*> calls;
    const std::size_t count = std::max(operations_per_graph, buffers.calls().size());
    for (std::size_t index = 0; index < count; ++index) calls.push_back(&buffers.call(index));
    return calls;
  }

  /// The last results of every set are checked as the timed calls left them, and again made anew in memory
  /// that was poisoned: the allocator gives out what it got back, and so what an earlier call had put there.
  Measurement measure_returned(const Operation& operation, const Case& what, BufferSets& buffers,
                               Row& row) const {
    std::vector<Lists> results(buffers.calls().size());
    const Launcher how = launcher(
        [&](std::size_t index) {
          results[index % results.size()] = operation.run_returning(buffers.call(index), what);
        },
        buffers);
    buffers.fill_all(session_);
    Measurement measurement;
    measurement.timing = measure(how, options_.timing, session_.processes());
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
    measurement.wrong = wrong;
    return measurement;
  }

  /// On the same buffers, or on equal ones.
  Measurement measure_peer(const Operation& operation, const Case& what, Placement placement,
                           const BufferSets& buffers) const {
    if (!peer_->wants_host_memory()) return measure_peer(operation, buffers);
    Case on_host = what;
    on_host.on_host = true;
    const BufferSets equal(operation, on_host, placement, static_cast<int>(buffers.calls().size()), session_);
    return measure_peer(operation, equal);
  }

  Measurement measure_peer(const Operation& operation, const BufferSets& buffers) const {
    Launcher how =
        launcher([&](std::size_t index) { peer_->enqueue(operation, buffers.call(index)); }, buffers);
    how.interruptible = !session_.processes().are_ranks();
    if (options_.launch == LaunchForm::eager || operation.is_copy()) return measure_and_check(how, buffers);
    const std::vector<const Call*> calls = calls_of_a_graph(buffers);
    how.launch = [launch = peer_->record(operation, calls)](std::size_t) { launch(); };
    how.launch_one = peer_->record(operation, {calls.front()});
    how.operations_per_launch = calls.size();
    how.rotation = 1;
    return measure_and_check(how, buffers);
  }

  [[nodiscard]] Launcher launcher(std::function<void(std::size_t)> launch, const BufferSets& buffers) const {
    return {.launch = [this, launch = std::move(launch)](
                          std::size_t index) { session_.call([&] { launch(index); }); },
            .launch_one = {},
            .synchronize = [this] { session_.synchronize(); },
            .rotation = buffers.calls().size()};
  }

  /// The timed launches themselves produce what is checked; only where each of them changes its own inputs,
  /// the call is made once more on fresh ones.
  Measurement measure_and_check(const Launcher& how, const BufferSets& buffers) const {
    if (options_.check) buffers.poison_all(session_);
    buffers.fill_all(session_);  // second, because in place an output holds an input
    Measurement measurement;
    measurement.timing = measure(how, options_.timing, session_.processes());
    if (!options_.check) return measurement;
    const bool repeatable = buffers.call(0).repeatable;
    if (!repeatable) buffers.fill_all(session_);
    if (!repeatable || options_.inject_corruption) launch_each_once(how);
    damage_if_asked(buffers);
    // A graph of many calls makes some of them twice: then the first set alone can be predicted.
    const bool only_first = !repeatable && how.launch_one;
    measurement.wrong = session_.processes().sum(only_first ? count_wrong(buffers.call(0).output_buffers)
                                                            : buffers.count_wrong_in_all());
    return measurement;
  }

  void launch_each_once(const Launcher& how) const {
    session_.synchronize();  // what is launched need not follow all current streams
    session_.processes().barrier();
    std::optional<Corruption> corruption;
    if (options_.inject_corruption) corruption.emplace();
    if (how.launch_one) {
      how.launch_one();
    } else {
      for (std::size_t index = 0; index < how.rotation; ++index) how.launch(index);
    }
    session_.synchronize();
  }

  /// Of a communicator's calls, what a transfer brings is damaged after it has arrived.
  void damage_if_asked(const BufferSets& buffers) const {
    if (!options_.inject_corruption || !buffers.of_communicator()) return;
    for (const Call& call : buffers.calls()) damage(call.output_buffers);
  }

  void complete_peer_row(const Row& row, Row& peer_row) const {
    peer_row.peer = peer_->name();
    peer_row.bytes = row.bytes;
    peer_row.count = row.count;
    peer_row.tensors = row.tensors;
    peer_row.transport = peer_->name();
    peer_row.algorithm = row.launch == LaunchForm::eager ? "plain calls" : "graph replay";
    peer_row.peer_over_tutti =
        peer_row.leading()->microseconds(options_.headline) / row.leading()->microseconds(options_.headline);
  }

  void add(const Operation& operation, const Row& row) {
    results_.rows.push_back(row);
    listener_.finish_row(operation, row);
  }
  void skip(Skipped skipped) {
    listener_.skip_row(skipped);
    results_.skipped.push_back(std::move(skipped));
  }

  const Options& options_;
  Session& session_;
  Peer* peer_;
  Results& results_;
  Listener& listener_;
};

}  // namespace

void run_measurements(const Options& options, Session& session, Peer* peer, Results& results,
                      Listener& listener) {
  Driver driver(options, session, peer, results, listener);
  for (const Operation* operation : options.operations) driver.measure_operation(*operation);
}

}  // namespace tutti::perf
