// SPDX-License-Identifier: Apache-2.0
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/stream_gate.hpp"
#include "transport/team/agreement.hpp"
#include "tutti/tutti.hpp"

#include <gtest/gtest.h>

/// Events that two processes use.
namespace tutti::test {
namespace {

using transport::ranks::synchronize;

/// What rank 0's event is on every rank.
Event shared_event(Exchange& exchange, Event& own) {
  const IpcEventHandle mine = exchange.rank() == 0 ? own.ipc_handle() : IpcEventHandle{};
  const IpcEventHandle handle = transport::ranks::gather(exchange, mine).front();
  return exchange.rank() == 0 ? std::move(own) : Event::from_ipc_handle(0, handle);
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

TEST(SharedEvent, OrdersWorkOfManyRounds) {
  expect_all_right(2, [](Exchange& exchange) {
    Event own({.interprocess = true});
    Event event = shared_event(exchange, own);
    const Stream stream(0);
    const Stream other(0);
    for (int round = 0; round < 100; ++round) {
      if (exchange.rank() == round % 2) {
        event.record(round % 4 < 2 ? stream : other);
        synchronize(exchange);
      } else {
        synchronize(exchange);
        event.wait(stream);
        if (round % 8 == 3) event.synchronize();
      }
      synchronize(exchange);
    }
    stream.synchronize();
    other.synchronize();
    EXPECT_TRUE(event.query());
    synchronize(exchange);
  });
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
                        ErrorCode::invalid_argument,
                        {"device 0", "not the handle of a virtual device's event"}));
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
