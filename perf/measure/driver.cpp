// SPDX-License-Identifier: Apache-2.0
#include "perf/measure/driver.hpp"

#include "perf/measure/measurer.hpp"
#include "perf/options/cases.hpp"
#include "perf/processes/interrupt.hpp"
#include "perf/processes/row_deadline.hpp"
#include "perf/report/table.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

/// Measures one row after another with the same settings.
class Driver {
 public:
  Driver(const Options& options, Session& session, Peer* peer, Results& results, TablePrinter& printer)
      : options_(options),
        session_(session),
        peer_(peer),
        results_(results),
        printer_(printer),
        measurer_(options, session) {}

  void start_cycle(int cycle) {
    cycle_ = cycle;
    printer_.start_cycle(cycle);
  }

  /// What the peer has not, here and in all that follows.
  void skip_modes() {
    if (peer_ == nullptr) return;
    for (const PeerMode& mode : peer_->modes()) {
      if (!mode.refusal.empty()) skip({contender(mode), mode.refusal, Skipped::Cause::refused});
    }
  }

  /// Tells the memory of operands and the peer of all that follows.
  void foresee() {
    OperandArena* const arena = session_.arena();
    if (peer_ == nullptr && arena == nullptr) return;
    session_.together([this, arena] {
      for_each_case([this, arena](const Operation& operation, const Case& what) {
        const auto sets = static_cast<std::size_t>(sets_of(operation, what));
        const std::size_t bytes_of_set = operand_bytes(operation, what);
        if (arena != nullptr) arena->foresee(sets * bytes_of_set);
        if (peer_ != nullptr) peer_->foresee(sets, bytes_of_set);
      });
    });
  }

  void measure_operation(const Operation& operation) {
    printer_.start_operation(operation);
    if (const std::string refusal = session_.refusal(operation); !refusal.empty()) {
      skip({std::string(operation.name()), refusal, Skipped::Cause::refused});
      return printer_.finish_operation();
    }
    for (const Case& what : cases_of(operation, options_, session_.members_of(operation))) {
      if (const std::string reason = too_small(operation, what); !reason.empty()) {
        skip({in_words(operation, what), reason, Skipped::Cause::too_small});
        continue;
      }
      within(
          options_.row_timeout, in_words(operation, what), [&] { measure_case(operation, what); },
          [this](const std::string& reason) { session_.abort(reason); });
    }
    printer_.finish_operation();
  }

 private:
  /// Of those that a cycle measures.
  template <class Visit>
  void for_each_case(Visit&& visit) const {
    for (const Operation* const operation : options_.operations) {
      if (!session_.refusal(*operation).empty()) continue;
      for (const Case& what : cases_of(*operation, options_, session_.members_of(*operation))) {
        if (too_small(*operation, what).empty()) visit(*operation, what);
      }
    }
  }

  void measure_case(const Operation& operation, Case what) {
    Row row;
    session_.together([&] {
      check_interrupt();
      row = empty_row(operation, what);
    });
    std::vector<Skipped> skipped;
    PeerSide peers;
    if (peer_ != nullptr) peers.rows.assign(peer_->modes().size(), row);
    peers.skipped.resize(peers.rows.size());
    for (const Placement placement : placements_of(operation, row.results)) {
      what.members = session_.members_of(operation);  // the communicator may have been made anew
      std::optional<BufferSets> buffers;
      const std::optional<Skipped> left_out = attempt(placed(operation, what, placement), [&] {
        if (OperandArena* const arena = session_.arena()) {
          arena->reserve(static_cast<std::size_t>(row.buffer_sets), operand_bytes(operation, what));
          what.memory = arena;
        }
        buffers.emplace(operation, what, placement, row.buffer_sets, session_);
        note_payload(buffers->call(0), row);
        part_of(row, placement) = measurer_.tutti(operation, what, placement, *buffers, row);
      });
      if (left_out) {
        skipped.push_back(*left_out);
      } else if (peer_ != nullptr) {
        measure_peer(operation, what, placement, *buffers, peers);
      }
    }
    if (!row.leading()) {
      skipped.front().what = in_words(operation, what);
      return skip(skipped.front());
    }
    for (const Skipped& left_out : skipped) skip(left_out);
    add(operation, row);
    add_peers(operation, row, peers);
  }

  /// What a peer does beside one row of tutti's.
  struct PeerSide {
    std::vector<Row> rows;  ///< of each mode
    std::vector<std::optional<Skipped>> skipped;
    std::optional<Skipped> refused;  ///< in all modes
  };

  void measure_peer(const Operation& operation, const Case& what, Placement placement,
                    const BufferSets& buffers, PeerSide& side) {
    if (side.refused) return;
    side.refused = attempt(in_words(operation, what) + " by the peer", [&] {
      if (const std::string refusal = peer_->refusal(operation, buffers.call(0)); !refusal.empty())
        throw Error(ErrorCode::unsupported, refusal);
    });
    for (std::size_t mode = 0; mode < side.rows.size() && !side.refused; ++mode) {
      const PeerMode described = peer_->modes()[mode];
      if (!described.refusal.empty() || side.skipped[mode]) continue;
      side.skipped[mode] = attempt(in_words(operation, what) + " by " + contender(described), [&] {
        part_of(side.rows[mode], placement) =
            measurer_.peer(*peer_, mode, operation, what, placement, buffers);
      });
    }
  }

  void add_peers(const Operation& operation, const Row& row, PeerSide& side) {
    if (side.refused) skip(*side.refused);
    for (const std::optional<Skipped>& skipped : side.skipped) {
      if (skipped) skip(*skipped);
    }
    for (std::size_t mode = 0; mode < side.rows.size(); ++mode)
      complete_peer_row(row, measurer_.is_replayed(operation), peer_->modes()[mode], side.rows[mode]);
    compare_with_peers(row, side.rows);
    for (const Row& peer_row : side.rows) {
      if (peer_row.leading()) add(operation, peer_row);
    }
  }

  [[nodiscard]] std::string contender(const PeerMode& mode) const {
    return mode.name.empty() ? std::string(peer_->name()) : fmt::format("{} {}", peer_->name(), mode.name);
  }

  static std::vector<Placement> placements_of(const Operation& operation, ResultForm results) {
    if (results == ResultForm::returned) return {Placement::returned};
    std::vector<Placement> found;
    for (const Placement placement : {Placement::out_of_place, Placement::in_place}) {
      if (operation.has(placement)) found.push_back(placement);
    }
    return found;
  }
  static std::string placed(const Operation& operation, const Case& what, Placement placement) {
    return in_words(operation, what) + (placement == Placement::in_place ? " in place" : " out of place");
  }

  static bool can_be_left_out(const Error& error) {
    return error.code() == ErrorCode::unsupported || error.code() == ErrorCode::out_of_memory;
  }

  /// Runs `work` on all ranks. What one transport cannot carry, or there is no memory for, is left out by all
  /// of them; the others of the run may still be measured. Other failures tell what was measured.
  std::optional<Skipped> attempt(const std::string& what, const std::function<void()>& work) {
    try {
      session_.together([&] {
        try {
          work();
        } catch (const Error& error) {
          if (const auto late = overtime()) throw TimedOut(late->message);  // that is why
          if (can_be_left_out(error)) throw;
          throw Error(error.code(), fmt::format("{}: {}", what, error.what()), error.native_code());
        }
      });
      return std::nullopt;
    } catch (const Error& error) {
      if (!can_be_left_out(error)) throw;
      if (error.code() == ErrorCode::unsupported) return Skipped{what, error.what(), Skipped::Cause::refused};
      session_.recover();
      return Skipped{what, error.what(), Skipped::Cause::out_of_memory};
    }
  }

  static void note_payload(const Call& call, Row& row) {
    row.bytes = call.bytes;
    row.count = call.count;
    row.tensors = call.tensors;
  }
  [[nodiscard]] Row empty_row(const Operation& operation, const Case& what) const {
    Row row;
    row.operation = operation.name();
    row.cycle = cycle_;
    row.tensor_list = what.tensors_name;
    row.dtype = what.dtype;
    if (operation.sums()) row.redop = what.reduce_kind;
    row.root = operation.has_root() ? what.root : -1;
    row.partner = operation.is_copy() ? what.partner : -1;
    row.dim = what.dim;
    row.device_count = what.members.count;
    row.launch = operation.is_copy() ? LaunchForm::eager : options_.launch;
    row.results = operation.has(Placement::returned) ? options_.results : ResultForm::given;
    row.memory = name_in(memory_names, options_.memory);
    row.bus_factor = operation.bus_factor(what.members.count);
    row.buffer_sets = sets_of(operation, what);
    return row;
  }
  [[nodiscard]] int sets_of(const Operation& operation, const Case& what) const {
    const int sets = session_.buffer_sets(payload_bytes(operation, what));
    // A graph of so many calls uses no others.
    const int calls = options_.calls_of_a_launch;
    return measurer_.is_replayed(operation) && calls > 1 ? std::min(sets, calls) : sets;
  }

  static std::optional<Measurement>& part_of(Row& row, Placement placement) {
    return placement == Placement::in_place ? row.in_place : row.out_of_place;
  }

  void complete_peer_row(const Row& row, bool is_replayed, const PeerMode& mode, Row& peer_row) const {
    peer_row.peer = peer_->name();
    peer_row.peer_mode = mode.name;
    peer_row.bytes = row.bytes;
    peer_row.count = row.count;
    peer_row.tensors = row.tensors;
    if (!mode.memory.empty()) peer_row.memory = mode.memory;
    peer_row.transport = peer_->name();
    peer_row.algorithm = row.launch == LaunchForm::eager ? "plain calls"
                         : is_replayed                   ? "replays of a graph of many calls"
                                                         : "replays of a graph of one call";
    if (!mode.about.empty()) peer_row.algorithm += ", " + mode.about;
  }

  void add(const Operation& operation, const Row& row) {
    results_.rows.push_back(row);
    results_.rows.back().finished = std::chrono::system_clock::now();
    if (results_.baseline) results_.baseline->compare(results_.rows.back(), results_.job);
    printer_.finish_row(operation, results_.rows.back());
  }
  void skip(Skipped skipped) {
    // What is so in the first cycle, is so in all.
    if (cycle_ > 1 && skipped.cause != Skipped::Cause::out_of_memory) return;
    printer_.skip_row(skipped);
    results_.skipped.push_back(std::move(skipped));
  }

  const Options& options_;
  Session& session_;
  Peer* peer_;
  Results& results_;
  TablePrinter& printer_;
  int cycle_ = 1;
  Measurer measurer_;
};

}  // namespace

void run_measurements(const Options& options, Session& session, Peer* peer, Results& results,
                      TablePrinter& printer) {
  Driver driver(options, session, peer, results, printer);
  driver.skip_modes();
  driver.foresee();
  for (int cycle = 1; options.cycles == 0 || cycle <= options.cycles; ++cycle) {
    driver.start_cycle(cycle);
    for (const Operation* operation : options.operations) driver.measure_operation(*operation);
    if (results.rows.empty()) return;  // nor will there be any
  }
}

}  // namespace tutti::perf
