#include "driver.hpp"

#include "fill_and_check.hpp"
#include "interrupt.hpp"
#include "tutti/error.hpp"
#include "tutti/graph.hpp"
#include "tutti/stream.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

/// How many operations one graph holds, of a peer or between ranks: as NCCL's own benchmark does it.
constexpr std::size_t operations_per_graph = 20;

std::string describe(const Operation& operation, const Case& what) {
  std::string text(operation.name());
  if (what.tensors.empty()) text += " " + format_size(what.bytes);
  text += fmt::format(" {}", name_of(what.dtype));
  if (operation.has_root()) text += fmt::format(" root {}", what.root);
  if (what.dim != 0) text += fmt::format(" dim {}", what.dim);
  return text;
}

/// The buffers of a case under one placement, several sets of them.
class BufferSets {
 public:
  BufferSets(const Operation& operation, const Case& what, Placement placement, int count,
             const Session& session)
      : of_communicator_(operation.needs_communicator()) {
    for (int set = 0; set < count; ++set) calls_.push_back(operation.prepare(what, placement));
    session.synchronize();  // preparing enqueues copies
  }

  [[nodiscard]] bool of_communicator() const noexcept { return of_communicator_; }
  [[nodiscard]] const std::vector<Call>& calls() const noexcept { return calls_; }
  [[nodiscard]] std::vector<Call>& calls() noexcept { return calls_; }
  [[nodiscard]] const Call& call(std::size_t index) const noexcept { return calls_[index % calls_.size()]; }

  void fill_all(const Session& session) const {
    fill(calls_.front().input_buffers);
    copy_first_to_others(&Call::input_buffers, session);
  }
  void poison_all(const Session& session) const {
    poison(calls_.front().poisonable);
    copy_first_to_others(&Call::poisonable, session);
  }
  [[nodiscard]] std::uint64_t count_wrong_in_all() const {
    std::uint64_t wrong = 0;
    for (const Call& call : calls_) wrong += count_wrong(call.output_buffers);
    return wrong;
  }

 private:
  void copy_first_to_others(std::vector<Buffer> Call::*buffers, const Session& session) const {
    for (std::size_t set = 1; set < calls_.size(); ++set) {
      for (std::size_t index = 0; index < (calls_[set].*buffers).size(); ++index) {
        (calls_[set].*buffers)[index].tensor.copy_((calls_.front().*buffers)[index].tensor, Blocking::no);
      }
    }
    session.synchronize();
  }

  bool of_communicator_;
  std::vector<Call> calls_;
};

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
  Driver(const Options& options, const Session& session, Peer* peer, Results& results, Listener& listener)
      : options_(options), session_(session), peer_(peer), results_(results), listener_(listener) {}

  void measure_operation(const Operation& operation) {
    listener_.start_operation(operation);
    if (const std::string refusal = session_.refusal(operation); !refusal.empty()) {
      skip({std::string(operation.name()), refusal});
      return listener_.finish_operation(operation);
    }
    for (const Case& what : cases_of(operation, options_, session_.members_of(operation))) {
      listener_.start_row(operation, what);
      try {
        session_.together([&] { measure_case(operation, what); });
      } catch (const Error& error) {
        // One transport cannot carry every case; the others of the run may still be measured.
        if (error.code() != ErrorCode::unsupported) throw;
        skip({describe(operation, what), error.what()});
      }
    }
    listener_.finish_operation(operation);
  }

 private:
  void measure_case(const Operation& operation, const Case& what) {
    check_interrupt();
    Row row = empty_row(operation, what);
    if (row.results == ResultForm::returned) {
      row.out_of_place = measure_returned(operation, what, row);
      return add(operation, row);
    }
    Row peer_row = row;
    std::string peer_refusal;
    for (const Placement placement : {Placement::out_of_place, Placement::in_place}) {
      if (!operation.has(placement)) continue;
      const BufferSets buffers(operation, what, placement, row.buffer_sets, session_);
      const Call& call = buffers.call(0);
      note_payload(call, row);
      part_of(row, placement) = measure_tutti(operation, what, buffers, row);
      if (peer_ == nullptr) continue;
      peer_refusal = peer_->refusal(operation, call);
      if (peer_refusal.empty())
        part_of(peer_row, placement) = measure_peer(operation, what, placement, buffers);
    }
    add(operation, row);
    if (peer_ == nullptr) return;
    if (!peer_refusal.empty()) return skip({describe(operation, what) + " by the peer", peer_refusal});
    complete_peer_row(row, peer_row);
    add(operation, peer_row);
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
    row.sums = operation.sums();
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

  static std::size_t payload_bytes(const Operation& operation, const Case& what) {
    std::size_t bytes = 0;
    for (const TensorSpec& spec : payload_tensors(what, operation.is_coalesced())) {
      bytes += Layout(*spec.dtype, spec.sizes).nbytes();
    }
    return bytes;
  }

  static std::optional<Measurement>& part_of(Row& row, Placement placement) {
    return placement == Placement::out_of_place ? row.out_of_place : row.in_place;
  }

  Measurement measure_tutti(const Operation& operation, const Case& what, const BufferSets& buffers,
                            Row& row) const {
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
    for (const Call& call : buffers.calls()) operation.run(call, what);
    session_.synchronize();
    std::vector<Stream> streams;
    for (const Device device : buffers.call(0).devices) streams.push_back(current_stream(device.index()));
    const Stream& stream = streams.front();
    const std::vector<const Call*> calls = calls_of_a_graph(buffers);
    const Graph graph = Graph::capture(streams, [&] {
      for (const Call* const call : calls) operation.run(*call, what);
    });
    const Graph one = Graph::capture(streams, [&] { operation.run(*calls.front(), what); });
    note_last_plan(operation, row);
    row.algorithm += ", replayed";
    Launcher how = launcher([&](std::size_t) { graph.launch(stream); }, buffers);
    how.launch_one = [&] { one.launch(stream); };
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
  Measurement measure_returned(const Operation& operation, const Case& what, Row& row) const {
    BufferSets buffers(operation, what, Placement::returned, row.buffer_sets, session_);
    note_payload(buffers.call(0), row);
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
    return {.launch = std::move(launch),
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
  const Session& session_;
  Peer* peer_;
  Results& results_;
  Listener& listener_;
};

/// Every ordered pair, at the smallest size for the latency and at the largest for the bandwidth.
std::vector<Case> pair_cases(const Case& base, const Options& options) {
  std::vector<std::size_t> sizes{options.sizes.begin};
  if (options.sizes.end != options.sizes.begin) sizes.push_back(options.sizes.end);
  std::vector<Case> cases;
  for (const std::size_t bytes : sizes) {
    for (int source = 0; source < base.members.count; ++source) {
      for (int target = 0; target < base.members.count; ++target) {
        if (source == target) continue;
        Case what = base;
        what.bytes = bytes;
        what.root = source;
        what.partner = target;
        cases.push_back(what);
      }
    }
  }
  return cases;
}

}  // namespace

std::vector<Case> cases_of(const Operation& operation, const Options& options, const Members& members) {
  Case base;
  base.members = members;
  base.seed = options.seed;
  base.options = options.collective;
  std::vector<Case> cases;
  const auto add_sizes = [&](Case what) {
    if (!what.tensors.empty()) {
      cases.push_back(what);
      return;
    }
    for (const std::size_t bytes : sizes_of(options.sizes)) {
      what.bytes = bytes;
      cases.push_back(what);
    }
  };
  const std::vector<int> dims = operation.cuts_dimension() ? options.dims : std::vector<int>{0};
  const int first_root = options.root.value_or(0);
  const int last_root = operation.has_root() ? options.root.value_or(members.count - 1) : first_root;
  for (std::size_t type = 0; type < options.dtypes.size(); ++type) {
    base.dtype = options.dtypes[type];
    if (operation.is_coalesced() && !options.tensors.empty()) base.tensors = options.tensors[type];
    if (operation.is_copy()) {
      const std::vector<Case> pairs = pair_cases(base, options);
      cases.insert(cases.end(), pairs.begin(), pairs.end());
      continue;
    }
    for (const int dim : dims) {
      base.dim = dim;
      for (base.root = first_root; base.root <= last_root; ++base.root) add_sizes(base);
    }
  }
  return cases;
}

void run_measurements(const Options& options, const Session& session, Peer* peer, Results& results,
                      Listener& listener) {
  Driver driver(options, session, peer, results, listener);
  for (const Operation* operation : options.operations) driver.measure_operation(*operation);
}

}  // namespace tutti::perf
