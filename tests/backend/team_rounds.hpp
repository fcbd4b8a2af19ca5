// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/host/host_backend.hpp"
#include "backend/team_exercise.hpp"
#include "settings/environment.hpp"
#include "support/environment.hpp"
#include "support/timing.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::backend {

/// Tests the promises of `Backend::team_round`, on virtual devices and on GPUs. The members are devices of
/// this process; a single GPU stands for two.
class TeamRounds : public testing::TestWithParam<WindowMemory> {
 protected:
  void SetUp() override {
    std::string reason;
    if (Environment::get().backend == BackendChoice::host) {
      auto description = virtual_devices::VirtualMachine::from_topology("island", 4);
      description.memory_bytes = std::size_t{64} << 20U;
      machine_ = make_host_backend(description, Environment::read().virtual_seed).backend;
    } else {
      machine_ = make_cuda_backend(reason);
    }
    if (machine_ == nullptr) GTEST_SKIP() << reason;
    for (int device = 0; device < std::min(machine_->device_count(), 4); ++device) devices_.push_back(device);
    if (devices_.size() == 1) devices_.push_back(0);
    for (const int device : devices_) {
      for (const int peer : devices_) {
        if (device == peer) continue;
        if (GetParam() == WindowMemory::device_with_wide_lines && !may_have_wide_lines(device, peer))
          GTEST_SKIP() << "no NVLink of Hopper or newer from device " << device << " to device " << peer;
        if (machine_->can_access_peer(device, peer)) {
          machine_->enable_peer_access(device, peer);
        } else if (GetParam() != WindowMemory::pinned) {
          GTEST_SKIP() << "device " << device << " cannot access device " << peer;
        }
      }
    }
    start();
  }

  void start(std::uint32_t rounds_before = 0) {
    team_.reset();
    team_.emplace(*machine_, devices_, GetParam(), rounds_before);
  }

  Backend& machine() { return *machine_; }
  TeamExercise& team() { return *team_; }
  [[nodiscard]] std::uint32_t members() { return team().members(); }
  TeamCall call_of(std::uint32_t rounds) { return {members(), rounds}; }
  std::uint32_t any_member() { return static_cast<std::uint32_t>(team().random().next() % members()); }
  std::uint64_t draw(std::int64_t low, std::int64_t high) {
    return static_cast<std::uint64_t>(team().random().between(low, high));
  }

  /// Returns some of the members but `member`, at least one.
  Numbers some_but(std::uint32_t member) {
    Numbers others = team().everyone_but(member);
    const std::uint32_t kept = others[team().random().next() % others.size()];
    std::erase_if(others, [&](std::uint32_t other) { return other != kept && team().random().one_in(2); });
    return others;
  }
  /// Returns rectangles of at most `budget` bytes, and room between them in a slot.
  std::vector<Rectangle> random_rectangles(std::int64_t budget);
  void add_random_work(TeamCall& call, std::uint32_t round, std::int64_t budget);
  /// Gives members without a part in the call an empty one, in the last round.
  static void complete(TeamCall& call) {
    for (std::uint32_t member = 0; member < call.parts.size(); ++member) {
      if (call.parts[member].empty()) call.part(member, call.rounds);
    }
  }
  /// Enqueues the parts of all, sometimes late for one of them.
  void run(TeamCall& call) {
    complete(call);
    call.tells_host = team().random().one_in(3);
    call.counts_done = team().random().one_in(2);
    if (team().random().one_in(10)) team().delay(any_member());
    team().enqueue(call);
    team().check_if_full();
  }
  /// Captures the parts of each member into a graph.
  std::vector<GraphHandle> capture(const TeamCall& call) {
    std::vector<GraphHandle> graphs;
    for (std::uint32_t member = 0; member < members(); ++member) {
      machine().begin_capture(team().stream(member), CaptureErrorMode::thread);
      team().enqueue(call, member);
      graphs.push_back(machine().end_capture(team().stream(member), nullptr));
    }
    return graphs;
  }
  /// Runs so many calls, scaled, of `least` to `most` rounds each. `add` is given each of the rounds to add
  /// work to, and counts on where it takes more of them.
  void run_many(std::int64_t calls, std::int64_t least, std::int64_t most,
                const std::function<void(TeamCall& call, std::uint32_t& round)>& add) {
    std::uint32_t rounds = 0;
    for (std::int64_t i = 0; i < test::scaled(calls); ++i) {
      TeamCall call = call_of(static_cast<std::uint32_t>(draw(least, most)));
      for (std::uint32_t round = 1; round <= call.rounds; ++round) {
        add(call, round);
        if (HasFatalFailure()) return;
      }
      run(call);
      if (HasFatalFailure()) return;
      rounds += call.rounds;
    }
    team().check();
    expect_flags(rounds);
  }
  /// Returns counts for one to four columns of numbers: up to `few` each, or sometimes as many as there may
  /// be.
  std::vector<std::uint64_t> random_counts(DType dtype, std::int64_t few) {
    const auto most = static_cast<std::int64_t>(TeamExercise::numbers_bytes / size_of(dtype));
    std::vector<std::uint64_t> counts(draw(1, 4));
    std::ranges::generate(counts, [&] { return draw(0, team().random().one_in(3) ? most : few); });
    return counts;
  }
  [[nodiscard]] static bool has_inboxes() { return GetParam() != WindowMemory::pinned; }
  Way any_way() {
    return static_cast<Way>(draw(0, static_cast<int>(has_inboxes() ? Way::low_latency : Way::written)));
  }
  /// Adds an exchange in which everyone sends everyone so many bytes.
  void add_all_gather(TeamCall& call, std::uint32_t round, std::span<const Rectangle> rectangles, Way way) {
    for (std::uint32_t writer = 0; writer < members(); ++writer) {
      team().add_message(call, round, writer, team().everyone_but(writer), rectangles, way);
    }
  }
  /// Checks the flags, except for the latest kernel's round, or two of a relay: low-latency kernels choose
  /// whether they report the end at once.
  void expect_flags(std::uint32_t rounds) {
    team().check_counts();
    for (std::uint32_t member = 0; member < members(); ++member) {
      for (std::uint32_t from = 0; from < members(); ++from) {
        EXPECT_LE(rounds - team().finished_flag(member, from), 2U) << from << " in the window of " << member;
      }
    }
  }
  /// Expects member 0 to reach the point where `is_there` is true, and to wait there.
  void expect_to_wait(const std::function<bool()>& is_there = [] { return true; }) {
    // Flags are read by copies, which are not meant to see them change.
    std::this_thread::sleep_for(test::patient(std::chrono::milliseconds(50)));
    EXPECT_TRUE(test::becomes_true(is_there));
    EXPECT_FALSE(machine().query_stream(team().stream(0)));
  }
  /// Sets the abort word; the members must then end soon.
  void give_up() {
    team().give_up();
    const test::Stopwatch watch;
    for (std::uint32_t member = 0; member < members(); ++member) team().synchronize(member);
    EXPECT_LT(watch.elapsed(), test::patient(std::chrono::seconds(1)));
  }

 private:
  bool may_have_wide_lines(int device, int peer) {
    constexpr int hopper = 9;
    return machine_->link(device, peer).kind == LinkKind::nvlink &&
           (machine_->kind() == BackendKind::host || machine_->properties(device).major >= hopper);
  }

  std::unique_ptr<Backend> machine_;
  std::vector<int> devices_;
  std::optional<TeamExercise> team_;
};

}  // namespace tutti::backend
