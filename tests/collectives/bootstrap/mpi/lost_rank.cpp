// SPDX-License-Identifier: Apache-2.0
// One rank dies, stops or is late; the others say what they hear of it. Run by lost_rank_test.

#include "collectives/bootstrap/mpi/world.hpp"
#include "tutti/error.hpp"
#include "tutti/mpi.hpp"
#include "tutti/tensor.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>

namespace {

using namespace std::chrono_literals;

constexpr int victim = 1;
/// How long the others wait for a rank that is still there. One that is gone is not waited for.
constexpr auto short_timeout = 1500ms;
constexpr auto long_timeout = 60s;
/// What may come on top: looking around, waking up, on a busy machine.
constexpr auto slack = 5s;

/// What comes over the victim, at the given time.
void strike(std::string_view fate) {
  if (fate == "stopped") {
    std::raise(SIGSTOP);
  } else if (fate == "late") {
    std::this_thread::sleep_for(2 * short_timeout);
  } else {
    std::raise(SIGKILL);
  }
}

void run(std::string_view fate) {
  const bool dies = fate != "stopped" && fate != "late";
  const std::chrono::milliseconds limit = dies ? long_timeout : short_timeout;
  tutti::Communicator communicator =
      tutti::mpi::make_communicator(MPI_COMM_WORLD, {.devices = {}, .timeout = limit, .patience = limit});
  const tutti::Device device = communicator.devices().front();
  const bool is_victim = communicator.rank() == victim;
  const tutti::Tensor tensor = tutti::zeros({fate == "during" ? 1'000'000 : 10'000}, {.device = device});
  const int calls = fate == "before" ? 0 : 5;
  for (int call = 0; call < calls; ++call) communicator.all_reduce_add({tensor}, {tensor});
  tutti::synchronize(device.index());
  MPI_Barrier(MPI_COMM_WORLD);  // the others have completed them too

  if (is_victim && fate == "during") {
    std::thread([&] {
      std::this_thread::sleep_for(200ms);
      strike(fate);
    }).detach();
  } else if (is_victim) {
    strike(fate);
  }
  const auto start = std::chrono::steady_clock::now();
  try {
    for (;;) {
      communicator.all_reduce_add({tensor}, {tensor});
      tutti::synchronize(device.index());
    }
  } catch (const tutti::Error&) {
    const auto elapsed = std::chrono::steady_clock::now() - start;
    if (elapsed > slack + (dies ? 0ms : 2 * short_timeout)) std::cout << "far too late\n" << std::flush;
    communicator.barrier();  // work that failed says so first; the next call says why
  }
}

}  // namespace

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);  // for several hosts
  // mpirun ends all others as soon as it misses one. They are to say what the library told them.
  std::signal(SIGTERM, SIG_IGN);
  try {
    run(argc == 2 ? argv[1] : "");
  } catch (const tutti::Error& error) {
    std::cout << "rank " + std::to_string(tutti::test::world_rank()) + ": " +
                     std::string(name_of(error.code())) + ": " + error.what() + "\n"
              << std::flush;
  }
  // Without MPI_Finalize, which would wait for the lost one: mpirun ends the job.
  std::_Exit(1);
}
