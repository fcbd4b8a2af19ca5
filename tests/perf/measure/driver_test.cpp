// SPDX-License-Identifier: Apache-2.0
#include "perf/measure/driver.hpp"

#include "perf/options/cases.hpp"
#include "perf/report/table.hpp"
#include "tutti/error.hpp"
#include "tutti/graph.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

/// Tells where tensors would lie in memory of which each member has a piece.
class CountingMemory final : public OperandMemory {
 public:
  void start_set(std::size_t set) override {
    set_ = set;
    used_.clear();
    places_.clear();
  }
  [[nodiscard]] Tensor make(const std::vector<std::int64_t>& sizes, DType dtype, std::size_t local) override {
    const Tensor tensor =
        empty(sizes, {.dtype = dtype, .device = device_of_ ? local_device(local) : Device::host()});
    places_[local].push_back(used_[local]);
    used_[local] += std::max<std::size_t>((tensor.nbytes() + alignment - 1) / alignment, 1) * alignment;
    made_.insert(tensor.data());
    return tensor;
  }
  void lie_on_devices() { device_of_ = true; }

  [[nodiscard]] std::size_t set() const { return set_; }
  [[nodiscard]] const std::map<std::size_t, std::size_t>& used() const { return used_; }
  [[nodiscard]] const std::map<std::size_t, std::vector<std::size_t>>& places() const { return places_; }
  [[nodiscard]] bool has_made(const void* data) const { return made_.count(data) != 0; }

 private:
  static Device local_device(std::size_t local) { return Device(static_cast<int>(local)); }

  bool device_of_ = false;
  std::size_t set_ = 0;
  std::map<std::size_t, std::size_t> used_;
  std::map<std::size_t, std::vector<std::size_t>> places_;
  std::set<const void*> made_;
};

TEST(PerfOperandMemory, HoldsWhatACallTakesAtTheSamePlaceInEachMember) {
  CountingMemory memory;
  for (const Mode mode : {Mode::single_process, Mode::ranks}) {
    for (const Operation* const operation : collective_operations(mode)) {
      if (!operation->moves_tensors()) continue;
      for (const int count : {1, 2, 3, 4}) {
        for (const std::size_t bytes : {0U, 4000U, 123456U}) {
          Case what;
          what.bytes = bytes;
          what.memory = &memory;
          what.root = count - 1;
          what.members.count = count;
          what.members.local.clear();
          for (int member = 0; member < count; ++member) what.members.local.emplace_back(member);
          for (const Placement placement : {Placement::out_of_place, Placement::in_place}) {
            if (!operation->has(placement)) continue;
            memory.start_set(0);
            const Call call = operation->prepare(what, placement);
            const std::string about = in_words(*operation, what) + ", " + std::to_string(count);
            std::size_t common = memory.places().at(0).size();
            for (const auto& [local, places] : memory.places()) common = std::min(common, places.size());
            EXPECT_GT(common, 0U) << about;
            for (const auto& [local, places] : memory.places()) {
              if (placement == Placement::in_place) {
                EXPECT_EQ(places.size(), common) << about;
              }
              EXPECT_LE(memory.used().at(local), operand_bytes(*operation, what)) << about;
              EXPECT_TRUE(std::equal(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(common),
                                     memory.places().at(0).begin()))
                  << about << " of member " << local;
            }
          }
        }
      }
    }
  }
}

/// Does what tutti does, in modes that differ in what becomes of it.
class ManyModes final : public Peer {
 public:
  explicit ManyModes(const Session& session) : session_(session) { memory_.lie_on_devices(); }

  [[nodiscard]] std::string_view name() const override { return "other"; }
  [[nodiscard]] std::string name_and_version() const override { return "Other 1.0"; }
  [[nodiscard]] std::string refusal(const Operation& operation, const Call&) const override {
    return operation.has_root() ? "" : "only from roots";
  }
  [[nodiscard]] std::vector<PeerMode> modes() const override {
    return {{"late", "sleeps", ""},
            {"elsewhere", "in its own memory", "", "its own"},
            {"idle", "does nothing", ""},
            {"absent", "", "there is no such mode"},
            {"unknown", "", unknown_}};
  }
  [[nodiscard]] OperandMemory* memory(std::size_t mode, const Operation& operation, const Case& what,
                                      std::size_t sets) override {
    mode_ = mode;
    EXPECT_EQ(sets, 2U);
    EXPECT_EQ(operand_bytes(operation, what), 2U * 4096U);
    if (mode == 4) {
      unknown_ = "not between these devices";
      throw Error(ErrorCode::unsupported, unknown_);
    }
    return mode == 1 ? &memory_ : nullptr;
  }
  void trim() override { ++trims_; }
  void enqueue(std::size_t mode, const Operation& operation, const Call& call) override {
    EXPECT_EQ(mode, mode_);
    EXPECT_EQ(memory_.has_made(call.inputs[0][0].data()), mode_ == 1);
    EXPECT_EQ(memory_.has_made(call.outputs[0].back().data()), mode_ == 1);
    if (mode_ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (mode_ == 2) return;
    Case what;
    what.members = session_.members_of(operation);
    operation.run(call, what);
  }

  [[nodiscard]] int trims() const { return trims_; }
  [[nodiscard]] std::size_t last_set() const { return memory_.set(); }

 private:
  const Session& session_;
  CountingMemory memory_;
  std::size_t mode_ = 0;
  std::string unknown_;
  int trims_ = 0;
};

Options options_of(std::vector<const char*> words) {
  words.insert(words.begin(), "tutti-perf");
  return parse_options(static_cast<int>(words.size()), words.data(), Mode::single_process);
}

/// What a run of one process beside a peer has found.
template <class Other>
struct RunBeside {
  explicit RunBeside(const std::vector<const char*>& words) : options(options_of(words)) {
    const Output quiet(false);
    const Columns columns(options, true);
    TablePrinter printer(options, quiet, columns);
    run_measurements(options, session, &peer, results, printer);
  }

  Options options;
  std::unique_ptr<Processes> processes = make_single_process();
  Session session{options, *processes};
  Other peer{session};
  Results results;
};

TEST(PerfDriver, EveryModeOfAPeerIsMeasuredWhereItWantsItsOperandsAndEveryElementChecked) {
  const RunBeside<ManyModes> run({"broadcast", "--backend", "host", "-g", "2", "-b", "4K", "-e", "4K", "-n",
                                  "1", "-w", "0", "--repetitions", "1"});
  const Results& results = run.results;
  ASSERT_EQ(results.rows.size(), 4U);
  const char* const modes[] = {"", "late", "elsewhere", "idle"};
  for (std::size_t row = 0; row < 4; ++row) {
    EXPECT_EQ(results.rows[row].peer, row == 0 ? "" : "other");
    EXPECT_EQ(results.rows[row].peer_mode, modes[row]);
    EXPECT_TRUE(results.rows[row].out_of_place && results.rows[row].in_place);
    for (const auto* const part : {&results.rows[row].out_of_place, &results.rows[row].in_place})
      EXPECT_EQ((*part)->over_tutti.has_value(), row == 1 || row == 2) << modes[row];
  }
  for (const std::size_t row : {0U, 1U, 2U}) EXPECT_EQ(results.rows[row].wrong(), 0U) << modes[row];
  EXPECT_EQ(results.rows[3].wrong(), 2U * 1024U * (2U + 1U));  // in place, the root's output is its input
  for (const auto placement : {&Row::out_of_place, &Row::in_place}) {
    const Measurement& own = *(results.rows[0].*placement);
    const Measurement& late = *(results.rows[1].*placement);
    const Measurement& elsewhere = *(results.rows[2].*placement);
    EXPECT_GE(late.microseconds(), 50e3);
    for (const Measurement* const peer : {&late, &elsewhere}) {
      EXPECT_EQ(peer->over_tutti, peer->microseconds() / own.microseconds());
    }
    // Either may be the faster one where other programs take the processors. Who does nothing is wrong.
    EXPECT_EQ(late.is_fastest_peer, late.over_tutti <= elsewhere.over_tutti);
    EXPECT_EQ(elsewhere.is_fastest_peer, !late.is_fastest_peer);
    EXPECT_FALSE((results.rows[3].*placement)->is_fastest_peer);
  }
  EXPECT_EQ(results.who_is_wrong(), "other idle 6144");
  EXPECT_EQ(status_of(results), peer_is_wrong);
  EXPECT_NE(results.rows[2].algorithm.find("in its own memory"), std::string::npos);
  EXPECT_EQ(results.rows[2].memory, "its own");
  for (const std::size_t row : {0U, 1U, 3U}) EXPECT_EQ(results.rows[row].memory, "tutti");
  EXPECT_EQ(run.peer.last_set(), 1U);
  EXPECT_GE(run.peer.trims(), 2);

  // What is not there is told once.
  ASSERT_EQ(results.skipped.size(), 2U);
  EXPECT_EQ(results.skipped[0].what, "other absent");
  EXPECT_EQ(results.skipped[0].reason, "there is no such mode");
  EXPECT_NE(results.skipped[1].what.find(" by other unknown"), std::string::npos);
  EXPECT_EQ(results.skipped[1].reason, "not between these devices");
}

/// Refuses everything, and notes what it is told before.
class Foreseeing final : public Peer {
 public:
  explicit Foreseeing(const Session&) {}

  [[nodiscard]] std::string_view name() const override { return "other"; }
  [[nodiscard]] std::string name_and_version() const override { return "Other 1.0"; }
  [[nodiscard]] std::string refusal(const Operation&, const Call&) const override {
    EXPECT_EQ(foreseen_, (std::vector<std::size_t>{2 * 2 * 1024, 2 * 2 * 4096}));
    return "of no use here";
  }
  void foresee(std::size_t sets, std::size_t bytes_of_set) override {
    foreseen_.push_back(sets * bytes_of_set);
  }
  void enqueue(std::size_t, const Operation&, const Call&) override { FAIL() << "it is refused"; }

  [[nodiscard]] const std::vector<std::size_t>& foreseen() const { return foreseen_; }

 private:
  std::vector<std::size_t> foreseen_;
};

TEST(PerfDriver, TellsAPeerBeforeItsFirstCallHowMuchMemoryItsLargestWillTake) {
  const RunBeside<Foreseeing> run({"scatter", "--backend", "host", "-g", "2", "-b", "1K", "-e", "4K", "-f",
                                   "4", "-n", "1", "-w", "0", "--repetitions", "1"});
  EXPECT_EQ(run.peer.foreseen().size(), 2U);
  EXPECT_EQ(run.results.rows.size(), 2U);
}

/// Does what tutti does, and notes how many calls are captured.
class Recording final : public Peer {
 public:
  explicit Recording(const Session& session) : session_(session) {}

  [[nodiscard]] std::string_view name() const override { return "other"; }
  [[nodiscard]] std::string name_and_version() const override { return "Other 1.0"; }
  [[nodiscard]] std::string refusal(const Operation&, const Call&) const override { return ""; }
  void enqueue(std::size_t, const Operation& operation, const Call& call) override {
    EXPECT_TRUE(is_current_stream_capturing()) << "calls are replayed";
    ++recorded_;
    Case what;
    what.members = session_.members_of(operation);
    operation.run(call, what);
  }

  [[nodiscard]] std::size_t recorded() const { return recorded_; }

 private:
  const Session& session_;
  std::size_t recorded_ = 0;
};

TEST(PerfDriver, APeersPersistentCallsAreLaunchedAsManyAtATimeAsTuttis) {
  const std::vector<std::vector<const char*>> forms{{"broadcast", "--persistent", "-n", "2", "-g", "1"},
                                                    {"all_reduce", "--persistent", "-n", "2"},
                                                    {"all_reduce", "-G", "2"}};
  for (const std::vector<const char*>& form : forms) {
    std::vector<const char*> words{"--backend", "host",          "-g", "2", "-b", "4K", "-e", "4K", "-w",
                                   "0",         "--repetitions", "1"};
    words.insert(words.end(), form.begin(), form.end());
    const RunBeside<Recording> run(words);
    const Results& results = run.results;
    const bool is_replayed = run.options.replays;
    // Out of place and in place.
    EXPECT_EQ(run.peer.recorded(), is_replayed ? 2U * (20U + 1U) : 2U * 2U);
    ASSERT_EQ(results.rows.size(), 2U);
    for (const Row& row : results.rows) EXPECT_EQ(row.wrong(), 0U) << row.algorithm;
    EXPECT_EQ(results.rows[0].out_of_place->timing.iterations,
              results.rows[1].out_of_place->timing.iterations);
    EXPECT_EQ(results.rows[0].out_of_place->timing.iterations, is_replayed ? 2U * 20U : 2U);
  }
}

TEST(PerfDriver, WhatAPeerCannotDoIsToldOnceForAllItsModes) {
  const RunBeside<ManyModes> run({"all_reduce", "--backend", "host", "-g", "2", "-b", "4K", "-e", "4K", "-n",
                                  "1", "-w", "0", "--repetitions", "1"});
  const Results& results = run.results;
  EXPECT_EQ(results.rows.size(), 1U);
  ASSERT_EQ(results.skipped.size(), 2U);
  EXPECT_EQ(results.skipped[1].reason, "only from roots");
}

/// Fails in place of its first call.
class Failing final : public Peer {
 public:
  explicit Failing(const Session&) {}

  [[nodiscard]] std::string_view name() const override { return "other"; }
  [[nodiscard]] std::string name_and_version() const override { return "Other 1.0"; }
  [[nodiscard]] std::string refusal(const Operation&, const Call&) const override { return ""; }
  void enqueue(std::size_t, const Operation&, const Call&) override {
    throw Error(ErrorCode::transport_failure, "a cable is loose", 7);
  }
};

/// What a run ends with that cannot go on.
std::string end_of_a_run(const std::vector<const char*>& words, ErrorCode code) {
  try {
    const RunBeside<Failing> run(words);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "nothing failed";
}

TEST(PerfDriver, WhatEndsARunTellsWhatWasMeasured) {
  const std::vector<const char*> words{"broadcast", "--backend", "host", "-g", "2",  "-b", "4K",
                                       "-e",        "4K",        "-n",   "1",  "-w", "0"};
  EXPECT_EQ(end_of_a_run(words, ErrorCode::transport_failure),
            "broadcast 4K float32 root 0 by other: a cable is loose");
  virtual_devices::inject({.operation = virtual_devices::Operation::copy,
                           .kind = virtual_devices::FaultKind::fail_asynchronously});
  const std::string own = end_of_a_run(words, ErrorCode::device_failure);
  virtual_devices::clear_faults();
  EXPECT_TRUE(own.starts_with("broadcast 4K float32 root 0 out of place: ")) << own;
}

}  // namespace
}  // namespace tutti::perf
