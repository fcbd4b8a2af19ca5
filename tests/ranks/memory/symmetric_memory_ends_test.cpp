// SPDX-License-Identifier: Apache-2.0
#include "ranks/memory/symmetric_kernels.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/communicator.hpp"
#include "tutti/memory.hpp"
#include "tutti/stream.hpp"
#include "tutti/symmetric.hpp"
#include "tutti/tensor.hpp"
#include "tutti/virtual_devices.hpp"

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

/// How symmetric memory and its waits end where ranks do not do their part.
namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using test::all_right;
using test::expect_all_right;
using test::holds;
using test::killed;
using test::Ranks;
using test::refuses;
using test::SymmetricLaunch;

/// Longer than any test takes.
constexpr std::chrono::milliseconds for_ever = std::chrono::minutes(10);
/// A wait that has ended by itself has ended before.
const std::chrono::milliseconds soon = test::patient(30s);

[[nodiscard]] Communicator make_for_ends(Exchange& exchange,
                                         std::chrono::milliseconds timeout = test::patient(20s)) {
  return Communicator(exchange, {.devices = {Device(exchange.rank() % device_count())}, .timeout = timeout});
}

[[nodiscard]] Tensor new_status(const Communicator& communicator) {
  return full({1}, 99, {.dtype = DType::int32, .device = communicator.devices()[0]});
}

void meet(Communicator& communicator) {
  communicator.barrier();
  synchronize(communicator.devices()[0]);
}

/// Waits on the host until all ranks have come, which an end of the communicator does not cut short.
void meet_on_host(Exchange& exchange) {
  const std::byte mine{};
  std::vector<std::byte> all(static_cast<std::size_t>(exchange.size()));
  exchange.all_gather(std::span(&mine, 1), all);
}

/// Expects how the last wait has ended, and resets the status, as kernels of GPUs write no `done`.
void expect_status(const Tensor& status, WaitStatus expected) {
  try {
    synchronize(status.device());
  } catch (const Error&) {
    // The communicator's end is told once.
  }
  EXPECT_TRUE(holds(status, static_cast<int>(expected)));
  status.fill_(0);
}

TEST(EndsOfSymmetricMemory, ARankThatDiesEndsTheWaitsOfOthers) {
  Ranks ranks(3, [](Exchange& exchange) {
    Communicator communicator = make_for_ends(exchange);
    SymmetricMemory memory = communicator.symmetric({1});
    const Tensor status = new_status(communicator);
    meet_on_host(exchange);
    if (exchange.rank() == 2) {
      raise(SIGKILL);
    }
    const auto begin = Clock::now();
    if (exchange.rank() == 0) test::launch_barrier(SymmetricLaunch{memory, 0, status, for_ever}, 3);
    if (exchange.rank() == 1) test::launch_wait(SymmetricLaunch{memory, 0, status, for_ever}, 5);
    expect_status(status, WaitStatus::ended);
    EXPECT_LT(Clock::now() - begin, soon);
    EXPECT_TRUE(refuses([&] { communicator.check(); }, ErrorCode::peer_unavailable, {"rank 2"}));
    // Its process counts as having released the memory.
    memory.release();
  });
  const auto endings = ranks.wait();
  EXPECT_EQ(endings[0], all_right);
  EXPECT_EQ(endings[1], all_right);
  EXPECT_EQ(endings[2], killed);
}

TEST(EndsOfSymmetricMemory, AnAbortEndsTheWaitsOfAll) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make_for_ends(exchange);
    const SymmetricMemory memory = communicator.symmetric({1});
    const Tensor status = new_status(communicator);
    meet_on_host(exchange);
    const auto begin = Clock::now();
    if (exchange.rank() == 0) {
      test::launch_barrier(SymmetricLaunch{memory, 0, status, for_ever}, 0);
      expect_status(status, WaitStatus::ended);
      EXPECT_LT(Clock::now() - begin, soon);
    } else {
      communicator.abort("enough");
    }
    EXPECT_TRUE(refuses([&] { communicator.check(); }, ErrorCode::aborted, {"enough"}));
  });
}

TEST(EndsOfSymmetricMemory, PatienceEnds) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make_for_ends(exchange);
    const SymmetricMemory memory = communicator.symmetric({1});
    const Tensor status = new_status(communicator);
    const auto begin = Clock::now();
    test::launch_wait(SymmetricLaunch{memory, 0, status, 50ms}, 0);
    expect_status(status, WaitStatus::timed_out);
    EXPECT_GE(Clock::now() - begin, 50ms);
    EXPECT_LT(Clock::now() - begin, soon);
    // The communicator goes on, and so do the next waits.
    EXPECT_TRUE(communicator.is_running());
    communicator.barrier();
    test::launch_barrier(SymmetricLaunch{memory, 0, status, for_ever}, 1);
    expect_status(status, WaitStatus::done);
    // A barrier that timed out counts as passed.
    if (exchange.rank() == 0) {
      test::launch_barrier(SymmetricLaunch{memory, 0, status, 20ms}, 0);
      expect_status(status, WaitStatus::timed_out);
    }
    meet(communicator);
    // The late one passes at once, and then both meet again.
    if (exchange.rank() == 1) {
      test::launch_barrier(SymmetricLaunch{memory, 0, status, for_ever}, 0);
      expect_status(status, WaitStatus::done);
    }
    test::launch_barrier(SymmetricLaunch{memory, 0, status, for_ever}, 0);
    expect_status(status, WaitStatus::done);
  });
}

TEST(EndsOfSymmetricMemory, AReleaseNamesThoseThatDoNotCome) {
  expect_all_right(3, [](Exchange& exchange) {
    std::optional<Communicator> communicator = make_for_ends(exchange, test::patient(500ms));
    SymmetricMemory memory = communicator->symmetric({1'000'000});
    meet(*communicator);
    if (exchange.rank() != 0) {
      EXPECT_TRUE(refuses([&] { memory.release(); }, ErrorCode::timeout,
                          {"SymmetricMemory: not released by ranks 0"}));
      EXPECT_FALSE(memory);
    }
    meet(*communicator);
    EXPECT_TRUE(communicator->is_running());
    memory.release();
    meet(*communicator);
    empty_cache();
    EXPECT_EQ(memory_allocated(communicator->devices()[0]), 0U);
  });
}

TEST(EndsOfSymmetricMemory, EndsWithItsCommunicator) {
  expect_all_right(2, [](Exchange& exchange) {
    SymmetricMemory memory;
    {
      Communicator communicator = make_for_ends(exchange);
      memory = communicator.symmetric({1'000});
      const Tensor status = new_status(communicator);
      // The first to leave waits for the kernel of the other, which reads its memory.
      for (int time = 0; time < 3; ++time) {
        test::launch_barrier(SymmetricLaunch{memory, 0, status, for_ever}, 0);
      }
    }
    EXPECT_TRUE(refuses([&] { static_cast<void>(memory.peer_data(0)); }, ErrorCode::invalid_argument,
                        {"its communicator has been destroyed"}));
    memory.release();
    EXPECT_FALSE(memory);
  });
}

TEST(EndsOfSymmetricMemory, AKernelThatWaitsForEverEndsWithItsCommunicator) {
  Ranks ranks(2, [](Exchange& exchange) {
    std::optional<Communicator> communicator(
        std::in_place, exchange,
        CommunicatorOptions{.devices = {Device(exchange.rank() % device_count())},
                            .timeout = test::patient(300ms),
                            .patience = test::patient(300ms)});
    SymmetricMemory memory = communicator->symmetric({1});
    const Tensor status = new_status(*communicator);
    meet(*communicator);
    if (exchange.rank() == 0) test::launch_wait(SymmetricLaunch{memory, 0, status, for_ever}, 0);
    const auto begin = Clock::now();
    communicator.reset();
    EXPECT_LT(Clock::now() - begin, soon);
    if (exchange.rank() == 0) expect_status(status, WaitStatus::ended);
  });
  for (const test::Ending& ending : ranks.wait()) EXPECT_EQ(ending, all_right);
}

TEST(EndsOfSymmetricMemory, WhatOneRankHasNoMemoryForFailsOnAll) {
  expect_all_right(2, [](Exchange& exchange) {
    if (backend_kind() != BackendKind::host) return;  // faults are injected on virtual devices only
    Communicator communicator = make_for_ends(exchange);
    if (exchange.rank() == 1) {
      virtual_devices::inject({.operation = virtual_devices::Operation::allocate_device, .count = 1'000});
    }
    EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.symmetric({1'000'000})); },
                        ErrorCode::out_of_memory, {"symmetric: rank 1: "}));
    if (exchange.rank() == 1) virtual_devices::clear_faults();
    EXPECT_TRUE(communicator.is_running());
    SymmetricMemory memory = communicator.symmetric({1'000'000});
    memory.release();
    // The same where another cannot open it.
    if (exchange.rank() == 0) virtual_devices::inject({.operation = virtual_devices::Operation::open});
    EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.symmetric({8'000'000})); },
                        ErrorCode::transport_failure, {"symmetric: rank 1: ", "rank 0 cannot open memory"}));
    EXPECT_TRUE(communicator.is_running());
  });
}

}  // namespace
}  // namespace tutti
