// SPDX-License-Identifier: Apache-2.0
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "support/values/test_tensor.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/communicator.hpp"
#include "tutti/graph.hpp"
#include "tutti/message.hpp"
#include "tutti/stream.hpp"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// Messages whose other side is another one, late, or never comes.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

TEST(Messages, EndTheCommunicatorOnBothSidesIfTheseDiffer) {
  struct UnlikeSides {
    std::function<void(Communicator&)> send;
    std::function<void(Communicator&)> receive;
    std::vector<std::string> mentions;
  };
  const std::vector<UnlikeSides> unlike{
      {[](Communicator& communicator) { communicator.send(some_tensor(4000), 1); },
       [](Communicator& communicator) { communicator.recv(some_tensor(8000), 0); },
       {"4000 float32", "8000 float32"}},
      {[](Communicator& communicator) {
         communicator.send(zeros({4}, {.dtype = DType::int16, .device = 0}), 1);
       },
       [](Communicator& communicator) {
         communicator.recv(zeros({4}, {.dtype = DType::int8, .device = 0}), 0);
       },
       {"4 int16", "4 int8"}},
      {[](Communicator& communicator) { communicator.send(some_tensor(0), 1); },
       [](Communicator& communicator) { communicator.recv(some_tensor(1), 0); },
       {"0 float32", "1 float32"}}};
  for (const UnlikeSides& sides : unlike) {
    expect_all_right(3, [&](Exchange& exchange) {
      Communicator communicator = make(exchange, 60s);
      std::vector<std::string> mentions = sides.mentions;
      mentions.emplace_back("message #2 from member 0 to member 1 does not match: rank ");
      try {
        if (exchange.rank() == 0) {
          communicator.send(some_tensor(7), 1);
          sides.send(communicator);
        } else if (exchange.rank() == 1) {
          communicator.recv(some_tensor(7), 0);
          sides.receive(communicator);
        }
      } catch (const Error& error) {  // of whoever comes second
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      }
      expect_end(communicator, ErrorCode::invalid_argument, mentions);
    });
  }
}

TEST(Messages, ThatDifferAreNotReceivedHoweverFarAheadTheirSenderIs) {
  struct Side {
    DType dtype;
    std::int64_t count;
  };
  constexpr Side usual{DType::int32, 10};
  const auto filled = [](const Side& side, int value) {
    return full({side.count}, value, {.dtype = side.dtype, .device = 0});
  };
  // What is sent and what is received, between messages that are as usual.
  const std::vector<std::pair<Side, Side>> pairs{{usual, {DType::float32, 10}},
                                                 {usual, {DType::int32, 9}},
                                                 {usual, {DType::int32, 0}},
                                                 {{DType::int32, 0}, usual},
                                                 {{DType::int32, 300'000}, {DType::int32, 300'001}},
                                                 {{DType::int32, 300'001}, {DType::int32, 300'000}},
                                                 {{DType::int32, 300'000}, {DType::float32, 300'000}},
                                                 {{DType::int32, 300'000}, usual},
                                                 {usual, {DType::int32, 300'000}}};
  const auto check = [&](const Side& sent, const Side& received, bool are_together) {
    expect_all_right(2, [&](Exchange& exchange) {
      Communicator communicator = make(exchange, 60s);
      constexpr int before = 30;
      const bool sends = exchange.rank() == 0;
      const Tensor other = filled(sends ? sent : received, sends ? 1 : 2);
      const Tensor next = filled(usual, sends ? 1 : 2);
      synchronize(0);
      if (!sends) transport::team::synchronize(exchange);
      try {
        const auto send_or_receive = [&](const Tensor& tensor) {
          sends ? communicator.send(tensor, 1) : communicator.recv(tensor, 0);
        };
        for (int i = 0; i < before; ++i) send_or_receive(filled(usual, 1));
        if (sends && are_together) {
          communicator.batch_send_recv({Message::send(other, 1), Message::send(next, 1)});
        } else {
          send_or_receive(other);
          send_or_receive(next);
        }
      } catch (const Error& error) {  // of whoever comes second
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      }
      if (sends) transport::team::synchronize(exchange);
      expect_end(communicator, ErrorCode::invalid_argument,
                 {"message #31 from member 0 to member 1 does not match"});
      try {
        synchronize(0);  // the failure is told of once
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      }
      const Stream fresh(0);
      const StreamGuard guard(fresh);
      for (const Tensor& tensor : {other, next})
        EXPECT_TRUE(tensor.numel() == 0 || holds(tensor.to(DType::int32), sends ? 1 : 2));
    });
  };
  for (const auto& [sent, received] : pairs) {
    for (const bool are_together : {false, true}) check(sent, received, are_together);
  }
}

TEST(Messages, AnOtherSideThatIsLateForTooLongIsNamed) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    communicator.barrier();
    if (exchange.rank() == 0) communicator.batch_send_recv({Message::recv(some_tensor(), 1)});
    expect_end(communicator, ErrorCode::timeout,
               {"message #1 from member 1 to member 0 did not finish on rank 0 " + within_timeout,
                "rank 1 has not come to send", "its last call is barrier (#1)"});
    if (exchange.rank() != 0) return;
    EXPECT_TRUE(refuses([] { current_stream(0).synchronize(); }, ErrorCode::timeout, {within_timeout}));
  });
}

TEST(Messages, ARankThatIsLateWithACallBeforeThemIsBlamedAndNobodyElse) {
  expect_all_right(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    communicator.barrier();
    if (exchange.rank() != 2) communicator.barrier();
    if (exchange.rank() == 0) communicator.recv(some_tensor(), 1);
    if (exchange.rank() == 1) communicator.send(some_tensor(), 0);
    expect_end(communicator, ErrorCode::timeout, {"barrier (#2) did not finish", "rank 2 has not made it"});
  });
}

/// Rank 0 has asked for all of rank 1's messages, and for what `then` does, before the first of them comes.
/// All have been sent when it returns.
void exchange_two_before(Communicator& communicator, Exchange& exchange, const std::function<void()>& then) {
  if (exchange.rank() == 0) {
    for (int i = 0; i < 2; ++i) communicator.recv(some_tensor(), 1);
    then();
  }
  transport::team::synchronize(exchange);
  if (exchange.rank() == 1) {
    for (int i = 0; i < 2; ++i) communicator.send(some_tensor(), 0);
  }
  transport::team::synchronize(exchange);
}

TEST(Messages, WhoHasSentEarlierOnesIsNotBlamedForThoseOfALateRank) {
  expect_all_right(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    exchange_two_before(communicator, exchange, [&] { communicator.recv(some_tensor(), 2); });
    expect_end(
        communicator, ErrorCode::timeout,
        {"message #1 from member 2 to member 0 did not finish on rank 0", "rank 2 has not come to send"});
  });
}

TEST(Messages, WhoLeavesWithoutOneThatIsNotTheNextEndsThemAtOnce) {
  expect_all_right(3, [](Exchange& exchange) {
    std::optional<Communicator> communicator = make(exchange, 60s);
    exchange_two_before(*communicator, exchange, [&] {
      communicator->recv(some_tensor(), 1);  // never sent
      communicator->recv(some_tensor(), 2);
    });
    if (exchange.rank() == 2) return communicator.reset();
    expect_end(*communicator, ErrorCode::peer_unavailable,
               {"rank 2 has left without message #1 from member 2 to member 0"});
  });
}

TEST(Messages, ARankThatIsLateWithACallBetweenThemIsBlamedAndNobodyElse) {
  expect_all_right(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    communicator.barrier();
    exchange_two_before(communicator, exchange, [&] {
      communicator.barrier();
      communicator.recv(some_tensor(), 1);
    });
    if (exchange.rank() == 1) {
      communicator.barrier();
      communicator.send(some_tensor(), 0);
    }
    expect_end(communicator, ErrorCode::timeout, {"barrier (#2) did not finish", "rank 2 has not made it"});
  });
}

TEST(Messages, AnOtherSideThatIsLateInTimeIsWaitedFor) {
  expect_all_right(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange, 60s);
    const Tensor tensor = full({50'000}, exchange.rank(), {.dtype = DType::int32, .device = 0});
    if (exchange.rank() == 1) std::this_thread::sleep_for(500ms);
    if (exchange.rank() == 0) communicator.recv(tensor, 1);
    if (exchange.rank() == 1) communicator.send(tensor, 0);
    communicator.barrier();
    const std::vector<std::int32_t> found = tensor.to_vector<std::int32_t>();
    EXPECT_EQ(found.back(), exchange.rank() == 2 ? 2 : 1);
  });
}

TEST(Messages, AnOtherSideThatIsGoneEndsThem) {
  Ranks ranks(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange, 60s);
    communicator.barrier();
    synchronize(0);
    transport::team::synchronize(exchange);
    if (exchange.rank() == 1) std::raise(SIGKILL);
    const Tensor tensor = some_tensor();
    const auto exchange_messages = [&] {  // which may be refused at once
      communicator.sendrecv(tensor, 1, some_tensor(), 1);
      synchronize(0);
    };
    EXPECT_TRUE(refuses(exchange_messages, ErrorCode::peer_unavailable, {"rank 1", "is gone"}));
  });
  expect_endings(ranks, {all_right, killed});
}

TEST(Messages, WhoLeavesWithoutItsSideEndsThemAndWhoHasDoneItDoesNot) {
  expect_all_right(2, [](Exchange& exchange) {
    std::optional<Communicator> communicator = make(exchange, 60s);
    const Tensor tensor = full({10}, exchange.rank(), {.dtype = DType::int32, .device = 0});
    if (exchange.rank() == 1) {
      communicator->send(tensor, 0);
      communicator.reset();
      transport::team::synchronize(exchange);
      return;
    }
    std::this_thread::sleep_for(300ms);  // it is probably leaving by now
    communicator->recv(tensor, 1);
    EXPECT_EQ(tensor.to_vector<std::int32_t>().front(), 1);
    transport::team::synchronize(exchange);
    const std::vector<std::string> mentions{"rank 1 has left without message #2 from member 1 to member 0"};
    EXPECT_TRUE(refuses([&] { communicator->recv(tensor, 1); }, ErrorCode::peer_unavailable, mentions));
    expect_end(*communicator, ErrorCode::peer_unavailable, mentions);
  });
}

TEST(Messages, ArePatientlyWaitedForByWhoHasSentThemAndLeaves) {
  expect_all_right(2, [](Exchange& exchange) {
    const std::chrono::milliseconds late = 1500ms;  // others have a second to close windows
    std::optional<Communicator> communicator = make(exchange, 60s);
    const Tensor tensor = full({10}, exchange.rank(), {.dtype = DType::int32, .device = 0});
    synchronize(0);
    if (exchange.rank() == 1) {
      communicator->send(tensor, 0);
      synchronize(0);
      const bool goes_through_devices = communicator->last_plan().transport == "p2p";
      const auto waited = time_of([&] {
        transport::team::synchronize(exchange);
        communicator.reset();
      });
      EXPECT_TRUE(!goes_through_devices || waited >= late);
      return;
    }
    transport::team::synchronize(exchange);
    std::this_thread::sleep_for(late);
    communicator->recv(tensor, 1);
    EXPECT_EQ(tensor.to_vector<std::int32_t>().front(), 1);
    communicator->check();
  });
}

TEST(Messages, AreNotSentToWhoHasLeft) {
  expect_all_right(2, [](Exchange& exchange) {
    std::optional<Communicator> communicator = make(exchange, 60s);
    if (exchange.rank() == 1) communicator.reset();
    transport::team::synchronize(exchange);
    if (exchange.rank() == 1) return;
    const std::vector<std::string> mentions{
        "rank 1 has left without receiving message #1 from member 0 to member 1"};
    EXPECT_TRUE(
        refuses([&] { communicator->send(some_tensor(), 1); }, ErrorCode::peer_unavailable, mentions));
    expect_end(*communicator, ErrorCode::peer_unavailable, mentions);
  });
}

TEST(Messages, ThatHaveBeenSentAreReceivedWhenTheirSenderHasLeft) {
  expect_all_right(2, [](Exchange& exchange) {
    std::optional<Communicator> communicator = make(exchange, 60s);
    // As many as fit into the window, so the sender has sent all of them; some without bytes.
    constexpr int full_ones = 3;
    std::vector<Tensor> tensors;
    for (int i = 0; i < 4; ++i) {
      tensors.push_back(full({i < full_ones ? 10 : 0}, exchange.rank() == 1 ? i : -1,
                             {.dtype = DType::int32, .device = 0}));
    }
    if (exchange.rank() == 1) {
      for (const Tensor& tensor : tensors) communicator->send(tensor, 0);
      synchronize(0);
      transport::team::synchronize(exchange);
      return communicator.reset();
    }
    transport::team::synchronize(exchange);
    std::this_thread::sleep_for(300ms);  // it is probably leaving by now
    for (const Tensor& tensor : tensors) communicator->recv(tensor, 1);
    for (int i = 0; i < full_ones; ++i)
      EXPECT_EQ(tensors[static_cast<std::size_t>(i)].to_vector<std::int32_t>(),
                std::vector<std::int32_t>(10, i));
    synchronize(0);
    std::this_thread::sleep_for(100ms);  // whoever looks around has looked at all of them
    communicator->check();
  });
}

TEST(Messages, AreInTheFlightRecord) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange, 60s);
    for (int i = 0; i < 3; ++i) {
      if (exchange.rank() == 0) communicator.send(some_tensor(5 + i), 1);
      if (exchange.rank() == 1) communicator.recv(some_tensor(5 + i), 0);
    }
    communicator.barrier();
    synchronize(0);
    nlohmann::json links;
    EXPECT_TRUE(becomes_true([&] {
      links = nlohmann::json::parse(communicator.flight_record())["messages"];
      return links.size() == 1 && links[0]["completed"] == 3 && links[0]["sent"]["last_compared"].is_string();
    })) << links.dump();
    const auto& link = links.at(0);
    EXPECT_EQ(link["from"], 0);
    EXPECT_EQ(link["to"], 1);
    for (const char* const side : {"sent", "received"}) {
      EXPECT_EQ(link[side]["made"], 3);
      EXPECT_EQ(link[side]["last_compared"], "7 float32");
    }
  });
}

TEST(Messages, GoByNcclWhereThatIsAskedForOnceItIsConnected) {
  expect_all_right(2, [](Exchange& exchange) {
    const CommunicatorOptions options{.devices = {Device(exchange.rank() % device_count())},
                                      .transport = TransportKind::nccl};
    if (backend_kind() == BackendKind::host) {
      EXPECT_TRUE(
          refuses([&] { const Communicator none(exchange, options); }, ErrorCode::unsupported, {"nccl"}));
      return;
    }
    if (device_count() < 2) return;
    Communicator communicator(exchange, options);
    const int device = options.devices[0].index();
    const int other = 1 - exchange.rank();
    const Tensor sent = full({100'001}, exchange.rank(), {.dtype = DType::int32, .device = device});
    const Tensor received = full({100'001}, -1, {.dtype = DType::int32, .device = device});
    EXPECT_TRUE(refuses([&] { communicator.sendrecv(sent, other, received, other); }, ErrorCode::unsupported,
                        {"nccl was asked for", "connect"}));
    communicator.broadcast({zeros({8}, {.device = device})}, 0);
    communicator.sendrecv(sent, other, received, other);
    EXPECT_EQ(communicator.last_plan().transport, "nccl");
    EXPECT_TRUE(holds(received, other));
    // Several of one link at once, one of them without elements, in a graph.
    const Stream stream(device);
    stream.wait_stream(current_stream(device));
    const Tensor parts = full({30}, -1, {.dtype = DType::int32, .device = device});
    synchronize(device);
    const Graph graph = Graph::capture({stream}, [&] {
      communicator.batch_send_recv(
          {Message::recv(parts.narrow(0, 0, 10), other), Message::recv(parts.narrow(0, 10, 0), other),
           Message::recv(parts.narrow(0, 10, 20), other), Message::send(sent.narrow(0, 0, 10), other),
           Message::send(sent.narrow(0, 0, 0), other), Message::send(sent.narrow(0, 0, 20), other)},
          {stream});
    });
    for (int launch = 0; launch < 2; ++launch) graph.launch(stream);
    stream.synchronize();
    EXPECT_TRUE(holds(parts, other));
  });
}

TEST(Messages, NoHostWaitsForTheOtherSide) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange, 60s);
    constexpr int count = 40;
    std::vector<Tensor> tensors;
    for (int i = 0; i < count; ++i)
      tensors.push_back(full({1000}, exchange.rank() == 0 ? i : -1, {.dtype = DType::int32, .device = 0}));
    const auto send_or_receive = [&] {
      for (const Tensor& tensor : tensors) {
        if (exchange.rank() == 0) communicator.send(tensor, 1);
        if (exchange.rank() == 1) communicator.recv(tensor, 0);
      }
    };
    if (exchange.rank() == 0) send_or_receive();
    transport::team::synchronize(exchange);
    if (exchange.rank() == 1) send_or_receive();
    for (int i = 0; i < count; ++i)
      EXPECT_EQ(tensors[static_cast<std::size_t>(i)].to_vector<std::int32_t>().back(), i);
    communicator.barrier();
  });
}

}  // namespace
}  // namespace tutti::test::ranks
