// SPDX-License-Identifier: Apache-2.0
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "support/ranks.hpp"
#include "support/values/test_tensor.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/communicator.hpp"
#include "tutti/graph.hpp"
#include "tutti/stream.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// Messages that are written where they are received.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

/// Elements of 4 bytes, so many that messages of them are large. Not to be asked for before ranks are forked.
std::int64_t large_count() {
  return backend_kind() == BackendKind::cuda ? 300'000 : 70'000;
}

TEST(Messages, OfOneLargeLengthGoWhereEachIsReceived) {
  constexpr int messages = 150;
  expect_all_right(2, [](Exchange& exchange) {
    const std::int64_t elements = large_count();
    Communicator communicator = make(exchange, 60s);
    const bool sends = exchange.rank() == 0;
    const auto value_of = [](int number) { return 1000 + number; };
    std::vector<Tensor> tensors;
    for (int number = 0; number < messages; ++number) {
      const int value = sends ? value_of(number) : 0;
      tensors.push_back(full({elements}, value, {.dtype = DType::int32, .device = 0}));
    }
    synchronize(0);
    for (int number = 0; number < messages; ++number) {
      const Tensor& tensor = tensors[static_cast<std::size_t>(number)];
      if (number % 16 == (sends ? 3 : 11)) std::this_thread::sleep_for(3ms);  // either is first now and then
      sends ? communicator.send(tensor, 1) : communicator.recv(tensor, 0);
    }
    synchronize(0);
    for (int number = 0; number < messages; ++number)
      EXPECT_TRUE(holds(tensors[static_cast<std::size_t>(number)], value_of(number))) << number;
  });
}

TEST(Messages, ALargeOneIsNotWrittenWhereAnEarlierOneIsMissing) {
  for (const std::int64_t before : {0, 10}) {
    expect_all_right(2, [before](Exchange& exchange) {
      const std::int64_t elements = large_count();
      Communicator communicator = make(exchange, 60s);
      const bool sends = exchange.rank() == 0;
      const auto tensor_of = [&](std::int64_t count) {
        return full({count}, sends ? 1 : 2, {.dtype = DType::int32, .device = 0});
      };
      const Tensor large = tensor_of(elements);
      const Tensor small = tensor_of(before);
      synchronize(0);
      try {
        if (sends) {
          communicator.batch_send_recv({Message::send(small, 1), Message::send(large, 1)});
        } else {
          communicator.batch_send_recv({Message::recv(large, 0), Message::recv(small, 0)});
        }
      } catch (const Error& error) {  // of whoever comes second
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      }
      expect_end(communicator, ErrorCode::invalid_argument, {"message #1 from member 0 to member 1"});
      try {
        synchronize(0);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      }
      const Stream fresh(0);
      const StreamGuard guard(fresh);
      // On GPUs it may have come, as another kind of lane has the small one; but no kernel has ended with it.
      const bool is_whole = backend_kind() == BackendKind::host;
      EXPECT_TRUE(!is_whole || holds(large, sends ? 1 : 2));
    });
  }
}

TEST(Messages, LargeOnesGoOnWithoutARankThatHasLeft) {
  expect_all_right(3, [](Exchange& exchange) {
    std::optional<Communicator> communicator = make(exchange, 60s);
    communicator->barrier();
    synchronize(0);
    if (exchange.rank() == 2) {
      communicator.reset();
      transport::team::synchronize(exchange);
      return;
    }
    transport::team::synchronize(exchange);
    const bool sends = exchange.rank() == 0;
    const Tensor tensor = full({large_count()}, sends ? 5 : 0, {.dtype = DType::int32, .device = 0});
    synchronize(0);
    for (int i = 0; i < 3; ++i) sends ? communicator->send(tensor, 1) : communicator->recv(tensor, 0);
    synchronize(0);
    EXPECT_TRUE(holds(tensor, 5));
  });
}

/// A batch of one rank against the same messages of the other, one call after another.
void exchange_in_turn(Communicator& communicator, bool is_first, std::int64_t count,
                      std::int64_t last_count) {
  const auto tensor_of = [](std::int64_t elements, int value) {
    return full({elements}, value, {.dtype = DType::int32, .device = 0});
  };
  const Tensor there = tensor_of(count, is_first ? 1 : 0);
  const Tensor back = tensor_of(count, is_first ? 0 : 2);
  const Tensor last = tensor_of(last_count, is_first ? 3 : 0);
  if (is_first) {
    communicator.batch_send_recv({Message::send(there, 1), Message::recv(back, 1), Message::send(last, 1)});
  } else {
    communicator.recv(there, 0);
    communicator.send(back, 0);
    communicator.recv(last, 0);
  }
  synchronize(0);
  EXPECT_TRUE(holds(there, 1));
  EXPECT_TRUE(holds(back, 2));
  EXPECT_TRUE(holds(last, 3));
}

TEST(Messages, OfABatchGoOnWhereTheirPartnerMakesACallForEach) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange, 60s);
    for (const std::int64_t count : {20'000, 250'000})
      exchange_in_turn(communicator, exchange.rank() == 0, count, 2 * large_count());
  });
}

TEST(Messages, OfABatchGoOnWhereManyCommunicatorsShareADevice) {
  expect_all_right(2, [](Exchange& exchange) {
    // So many that on GPUs no more than a few blocks are left for each.
    const int others = backend_kind() == BackendKind::cuda ? 19 : 1;
    std::vector<Communicator> communicators;
    for (int i = 0; i <= others; ++i) communicators.push_back(make(exchange, 60s));
    for (const std::int64_t count : {20'000, 250'000, 400'000})
      exchange_in_turn(communicators.back(), exchange.rank() == 0, count, 2 * large_count());
  });
}

TEST(Messages, LargeAndSmallThatAreReplayedInAnotherOrderWaitUntilTheCommunicatorIsAborted) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange, 60s);
    const bool sends = exchange.rank() == 0;
    const Stream stream(0);
    const StreamGuard guard(stream);
    const auto captured = [&](const Tensor& tensor) {
      return Graph::capture({stream},
                            [&] { sends ? communicator.send(tensor, 1) : communicator.recv(tensor, 0); });
    };
    const auto tensor_of = [&](std::int64_t count) {
      return full({count}, sends ? 1 : 2, {.dtype = DType::int32, .device = 0});
    };
    const Tensor small = tensor_of(25);
    const Tensor large = tensor_of(2 * large_count());
    stream.synchronize();
    const Graph of_small = captured(small);
    const Graph of_large = captured(large);
    (sends ? of_small : of_large).launch(stream);
    (sends ? of_large : of_small).launch(stream);
    std::this_thread::sleep_for(300ms);
    EXPECT_TRUE(sends || !stream.query());  // what is sent may have gone
    transport::team::synchronize(exchange);
    if (sends) communicator.abort("enough");
    expect_end(communicator, ErrorCode::aborted, {"enough"});
  });
}

}  // namespace
}  // namespace tutti::test::ranks
