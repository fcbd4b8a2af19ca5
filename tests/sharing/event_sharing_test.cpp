// SPDX-License-Identifier: Apache-2.0
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/stream_gate.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/tutti.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <gtest/gtest.h>

/// Events that two processes use.
namespace tutti::test {
namespace {

using transport::team::synchronize;

/// What rank 0's event is on every rank.
Event shared_event(Exchange& exchange, Event& own) {
  const IpcEventHandle mine = exchange.rank() == 0 ? own.ipc_handle() : IpcEventHandle{};
  const IpcEventHandle handle = transport::team::gather(exchange, mine).front();
  return exchange.rank() == 0 ? std::move(own) : Event::from_ipc_handle(0, handle);
}

/// On rank 1, what rank 0 shares.
Tensor opened_by_second(Exchange& exchange, const std::optional<SharedTensor>& shared) {
  std::array<std::byte, 1024> bytes{};
  std::size_t count = 0;
  if (shared.has_value()) count = shared->handle().size();
  if (shared.has_value()) std::ranges::copy(shared->handle(), bytes.begin());
  const auto handle = transport::team::gather(exchange, bytes).front();
  count = transport::team::gather(exchange, count).front();
  return exchange.rank() == 0 ? Tensor() : open_shared_tensor(std::span(handle).first(count));
}

TEST(SharedEvent, IsCreatedWhenItIsSharedAndThenNeverRecorded) {
  expect_all_right(2, [](Exchange& exchange) {
    Event own({.interprocess = true});
    const Event event = shared_event(exchange, own);
    EXPECT_TRUE(event.is_created());
    EXPECT_EQ(event.device(), 0);
    EXPECT_TRUE(event.query());
    event.synchronize();
    const Stream stream(0);
    event.wait(stream);
    stream.synchronize();
    synchronize(exchange);
  });
}

TEST(SharedEvent, IsWaitedForByTheOtherProcess) {
  for (const int recorder : {0, 1}) {
    expect_all_right(2, [recorder](Exchange& exchange) {
      Event own({.interprocess = true});
      Event event = shared_event(exchange, own);
      const Stream stream(0);
      if (exchange.rank() == recorder) {
        StreamGate gate(stream);
        event.record(stream);
        EXPECT_FALSE(event.query());
        synchronize(exchange);  // it is recorded
        synchronize(exchange);  // the other process waits
        gate.open();
        event.synchronize();
        EXPECT_TRUE(event.query());
      } else {
        synchronize(exchange);
        EXPECT_FALSE(event.query());
        event.wait(stream);
        const StreamFlag done(stream);
        EXPECT_TRUE(done.stays_unset());
        synchronize(exchange);
        EXPECT_TRUE(done.becomes_set());
        event.synchronize();
        EXPECT_TRUE(event.query());
      }
      synchronize(exchange);
    });
  }
}

/// In each round one process writes its number to memory of both, behind a gate that opens only when the
/// other has queued a wait and a copy of what is there then.
TEST(SharedEvent, OrdersWorkOfManyRounds) {
  expect_all_right(2, [](Exchange& exchange) {
    constexpr int rounds = 40;
    const Tensor value = zeros({1, 1000}, {.dtype = DType::int32, .device = 0});
    Event own({.interprocess = true});
    Event event = shared_event(exchange, own);
    std::optional<SharedTensor> shared;
    if (exchange.rank() == 0) shared.emplace(value);
    const Tensor opened = opened_by_second(exchange, shared);
    const Tensor& place = exchange.rank() == 0 ? value : opened;
    const Tensor seen = zeros({rounds, 1000}, {.dtype = DType::int32, .device = 0});
    const Stream stream(0);
    const Stream other(0);
    tutti::synchronize(0);
    for (int round = 0; round < rounds; ++round) {
      if (exchange.rank() == round % 2) {
        const Stream& recorder = round % 4 < 2 ? stream : other;
        recorder.wait_stream(stream);  // it has read there
        StreamGate gate(recorder);
        {
          const StreamGuard guard(recorder);
          place.fill_(round + 1);
        }
        event.record(recorder);
        synchronize(exchange);
        synchronize(exchange);  // the other process has queued what it does
        gate.open();
      } else {
        synchronize(exchange);
        event.wait(stream);
        const StreamGuard guard(stream);
        seen.narrow(0, round, 1).copy_(place, Blocking::no);
        synchronize(exchange);
        if (round % 8 == 3) event.synchronize();
      }
    }
    stream.synchronize();
    other.synchronize();
    EXPECT_TRUE(event.query());
    const std::vector<std::int32_t> all = seen.to_vector<std::int32_t>();
    for (int round = 0; round < rounds; ++round) {
      const std::int32_t expected = exchange.rank() == round % 2 ? 0 : round + 1;
      const auto row = std::span(all).subspan(static_cast<std::size_t>(round) * 1000, 1000);
      EXPECT_EQ(std::ranges::count(row, expected), 1000) << "round " << round;
    }
    synchronize(exchange);
  });
}

TEST(SharedEvent, WaitsForAsManyMarksOfOtherStreamsAsThereAre) {
  expect_all_right(2, [](Exchange& exchange) {
    // On GPUs this does not come to its end: something there waits for the mark of `held`.
    if (backend_kind() == BackendKind::cuda) return;
    Event own({.interprocess = true});
    Event event = shared_event(exchange, own);
    if (exchange.rank() == 0) {
      const Stream held(0);
      const Stream free_one(0);
      StreamGate gate(held);
      event.record(held);
      for (int times = 0; times < 100; ++times) event.record(free_one);
      free_one.synchronize();  // which waits for no mark of the other stream
      EXPECT_TRUE(event.query());
      event.record(held);
      EXPECT_FALSE(event.query());
      synchronize(exchange);
      synchronize(exchange);
      gate.open();
      event.synchronize();
      held.synchronize();
    } else {
      synchronize(exchange);
      EXPECT_FALSE(event.query());
      synchronize(exchange);
      event.synchronize();
    }
    synchronize(exchange);
  });
}

TEST(SharedEvent, CountsMarksThatAKilledProcessHasNotComeToAsReached) {
  Ranks ranks(2, [](Exchange& exchange) {
    if (backend_kind() == BackendKind::cuda) {  // CUDA says nothing of events of processes that are killed
      if (exchange.rank() == 1) raise(SIGKILL);
      return;
    }
    Event own({.interprocess = true});
    Event event = shared_event(exchange, own);
    const Stream stream(0);
    if (exchange.rank() == 1) {
      const StreamGate gate(stream);
      event.record(stream);
      synchronize(exchange);
      synchronize(exchange);
      raise(SIGKILL);
    }
    synchronize(exchange);
    EXPECT_FALSE(event.query());
    event.wait(stream);
    synchronize(exchange);
    stream.synchronize();
    event.synchronize();
    EXPECT_TRUE(event.query());
    for (int times = 0; times < 100; ++times) event.record(stream);
    event.synchronize();
    EXPECT_TRUE(event.query());
  });
  EXPECT_EQ(ranks.wait(), (std::vector<Ending>{all_right, killed}));
}

TEST(SharedEvent, OutlivesTheProcessThatHasMadeIt) {
  expect_all_right(2, [](Exchange& exchange) {
    Event own({.interprocess = true});
    own.record(Stream(0));
    own.synchronize();
    Event event = shared_event(exchange, own);
    synchronize(exchange);  // it is opened
    if (exchange.rank() == 0) {
      event = Event();
      synchronize(exchange);
      return;
    }
    synchronize(exchange);
    EXPECT_TRUE(event.query());
    const Stream stream(0);
    event.record(stream);
    event.synchronize();
    EXPECT_TRUE(event.query());
  });
}

TEST(SharedEvent, HasOneHandleWhichOnlyOthersCanOpen) {
  expect_all_right(1, [](Exchange&) {
    Event event({.blocking = true, .interprocess = true});
    const IpcEventHandle handle = event.ipc_handle();
    EXPECT_EQ(event.ipc_handle(), handle);
    event.record(Stream(0));
    event.synchronize();
    EXPECT_EQ(event.ipc_handle(), handle);
    EXPECT_THROW(static_cast<void>(Event::from_ipc_handle(0, IpcEventHandle{})), Error);
    EXPECT_TRUE(refuses([&] { static_cast<void>(Event::from_ipc_handle(device_count(), handle)); },
                        ErrorCode::invalid_argument, {"Event::from_ipc_handle", "device is"}));
    if (backend_kind() == BackendKind::cuda) return;
    EXPECT_TRUE(refuses([&] { static_cast<void>(Event::from_ipc_handle(0, handle)); },
                        ErrorCode::invalid_argument, {"device 0", "this process's own"}));
    EXPECT_TRUE(refuses([&] { static_cast<void>(Event::from_ipc_handle(1, handle)); },
                        ErrorCode::invalid_argument, {"device 1", "an event of device 0"}));
    EXPECT_TRUE(refuses([] { static_cast<void>(Event::from_ipc_handle(0, IpcEventHandle{})); },
                        ErrorCode::invalid_argument, {"device 0", "not one of a virtual device's event"}));
  });
}

TEST(SharedEvent, IsPassedOnByItsFirstOwnerAlone) {
  expect_all_right(2, [](Exchange& exchange) {
    Event own({.interprocess = true});
    Event event = shared_event(exchange, own);
    if (exchange.rank() == 1) {
      EXPECT_TRUE(refuses([&] { static_cast<void>(event.ipc_handle()); }, ErrorCode::invalid_argument,
                          {"Event::ipc_handle", "comes from another process"}));
    }
    synchronize(exchange);
  });
}

}  // namespace
}  // namespace tutti::test
