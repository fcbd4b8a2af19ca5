// SPDX-License-Identifier: Apache-2.0
// One rank dies, stops, is late, or its host is cut off; the others say what they hear of it, or, if there is
// SHRINKS in the environment, go on without it. Run by lost_rank_test.

#include "collectives/bootstrap/world.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"
#include "tutti/tensor.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <string_view>
#include <thread>

namespace {

using namespace std::chrono_literals;

/// How long the others wait for a rank that may still be there. One that is gone is not waited for.
constexpr auto short_timeout = 1500ms;
constexpr auto long_timeout = 60s;
/// What may come on top: looking around, waking up, on a busy machine.
constexpr auto slack = 5s;

/// Says what happens to the victim.
struct Fate {
  std::string name;
  bool is_noticed_at_once = true;
  bool strikes_during_calls = false;
  std::chrono::milliseconds after = 200ms;  ///< the beginning of the calls
};

/// Knows the fates by name: "before", "during" and "after" the first calls it is killed. "random 7" is one of
/// all, at a time that nobody knows.
Fate fate_of(const std::string& name) {
  if (name == "before" || name == "after") return {.name = name};
  if (name == "during") return {.name = name, .strikes_during_calls = true};
  if (!name.starts_with("random ")) return {.name = name, .is_noticed_at_once = false};
  std::minstd_rand generator(static_cast<unsigned>(std::stoul(name.substr(7))));
  generator.discard(10);
  static constexpr const char* all[] = {"during", "stopped", "cut", "dead"};
  Fate fate{.name = all[generator() % 4], .is_noticed_at_once = false, .strikes_during_calls = true};
  fate.after = std::chrono::milliseconds(generator() % 400);
  return fate;
}

/// The host's only way to others. Needs a namespace of its own.
void cut_the_link() {
  if (std::system("ip link set tutti0 down") != 0) std::cout << "the link cannot be cut\n" << std::flush;
}

/// What comes over the victim, at the given time.
void strike(std::string_view fate) {
  if (fate == "stopped") {
    std::raise(SIGSTOP);
  } else if (fate == "late") {
    std::this_thread::sleep_for(2 * short_timeout);
  } else if (fate == "cut") {
    cut_the_link();
  } else {
    if (fate == "dead") cut_the_link();  // nobody hears that it dies
    std::raise(SIGKILL);
  }
}

/// Goes on with the ranks that are left, and says as which of them.
void go_on(tutti::Communicator& former) {
  tutti::Communicator communicator =
      former.shrink({.late = tutti::LateRanks::leave_out, .timeout = 2 * short_timeout});
  const tutti::Tensor ones = tutti::full({10'000}, 1, {.device = communicator.devices().front()});
  communicator.all_reduce({ones}, {ones});
  if (ones.to_vector<float>().back() != static_cast<float>(communicator.rank_count())) return;
  communicator.check();
  std::cout << "rank " + std::to_string(tutti::test::rank_in_world()) + ": goes on as rank " +
                   std::to_string(communicator.rank()) + " of " + std::to_string(communicator.rank_count()) +
                   "\n"
            << std::flush;
}

void run(const Fate& fate) {
  const std::chrono::milliseconds limit = fate.is_noticed_at_once ? long_timeout : short_timeout;
  tutti::Communicator communicator =
      tutti::test::communicator_of_world({.devices = {}, .timeout = limit, .patience = limit});
  const tutti::Device device = communicator.devices().front();
  const char* const victim = std::getenv("VICTIM");
  const bool is_victim = communicator.rank() == std::stoi(victim == nullptr ? "1" : victim);
  // Small where little time is left for them.
  const tutti::Tensor tensor = tutti::zeros(
      {fate.name == "during" && fate.is_noticed_at_once ? 1'000'000 : 10'000}, {.device = device});
  const int calls = fate.name == "before" ? 0 : 5;
  for (int call = 0; call < calls; ++call) communicator.all_reduce_add({tensor}, {tensor});
  tutti::synchronize(device.index());
  tutti::test::world_barrier();  // the others have completed them too

  if (is_victim && fate.strikes_during_calls) {
    std::thread([&] {
      std::this_thread::sleep_for(fate.after);
      strike(fate.name);
    }).detach();
  } else if (is_victim) {
    strike(fate.name);
  }
  const auto start = std::chrono::steady_clock::now();
  try {
    for (;;) {
      communicator.all_reduce_add({tensor}, {tensor});
      tutti::synchronize(device.index());
    }
  } catch (const tutti::Error&) {
    const auto elapsed = std::chrono::steady_clock::now() - start;
    const auto waits = fate.is_noticed_at_once ? 0ms : 2 * short_timeout;
    if (!is_victim && elapsed > slack + waits + fate.after) std::cout << "far too late\n" << std::flush;
    if (std::getenv("SHRINKS") != nullptr) return go_on(communicator);
    communicator.barrier();  // work that failed says so first; the next call says why
  }
}

}  // namespace

int main(int argc, char** argv) {
  tutti::test::enter_world(argc, argv);
  // mpirun ends all others as soon as it misses one. They are to say what the library told them.
  std::signal(SIGTERM, SIG_IGN);
  try {
    run(fate_of(argc == 2 ? argv[1] : ""));
  } catch (const tutti::Error& error) {
    std::cout << "rank " + std::to_string(tutti::test::rank_in_world()) + ": " +
                     std::string(name_of(error.code())) + ": " + error.what() + "\n"
              << std::flush;
  }
  // Without leaving the world, which would wait for the lost one under MPI: mpirun ends the job.
  std::_Exit(1);
}
