// SPDX-License-Identifier: Apache-2.0
#include "ranks/lost_ranks.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/test_tensor.hpp"
#include "support/timing.hpp"
#include "transport/team/agreement.hpp"
#include "tutti/communicator.hpp"
#include "tutti/graph.hpp"
#include "tutti/message.hpp"
#include "tutti/stream.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
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

TEST(Messages, InsideAProcessGoByOneKernelForEachSenderOrByCopyEngines) {
  expect_all_right(1, [](Exchange& exchange) {
    if (device_count() < 2) return;
    const bool reach = can_device_access_peer(0, 1) && can_device_access_peer(1, 0);
    const auto options_of = [&](std::optional<int> multiprocessors) {
      CommunicatorOptions options{.devices = {Device(0), Device(1)}, .multiprocessors = multiprocessors};
      if (reach) options.transport = TransportKind::p2p;
      return options;
    };
    Communicator unbounded(exchange, options_of({}));
    Communicator bounded(exchange, options_of(31));
    const auto swap = [&](Communicator& communicator, std::int64_t count, int messages_each,
                          bool into_foreign_memory = false) {
      std::vector<Message> batch;
      std::vector<Tensor> received;
      for (int i = 0; i < messages_each; ++i) {
        for (const int member : {0, 1}) {
          const TensorOptions options{.dtype = DType::int32, .device = member};
          batch.push_back(Message::send(full({count}, 10 * i + member, options), 1 - member));
          received.push_back(full({count}, -1, options));
          const Tensor& target = received.back();
          batch.push_back(Message::recv(into_foreign_memory ? Tensor(target.view()) : target, 1 - member));
        }
      }
      communicator.batch_send_recv(batch);
      for (std::size_t i = 0; i < received.size(); ++i) {
        const auto expected = static_cast<std::int32_t>(10 * (i / 2) + 1 - i % 2);
        const auto values = received[i].to_vector<std::int32_t>();
        EXPECT_EQ(std::ranges::count(values, expected), count) << count << " elements, message " << i;
      }
      return communicator.last_plan().algorithm;
    };
    const std::string by_kernels = reach ? "one kernel per sender" : "copy engines";
    for (const std::int64_t count : {1, 65'536, 1'048'577, 3'000'000})
      EXPECT_EQ(swap(unbounded, count, 1), "copy engines") << count;
    for (const std::int64_t count : {65'537, 300'001, 1'048'576})
      EXPECT_EQ(swap(unbounded, count, 1), by_kernels) << count;
    for (const std::int64_t count : {1, 7'777, 65'536})
      EXPECT_EQ(swap(unbounded, count, 3), by_kernels) << count;
    EXPECT_EQ(swap(unbounded, 1'048'577, 2), "copy engines");
    EXPECT_EQ(swap(unbounded, 300'001, 2, true), "copy engines");
    EXPECT_EQ(swap(bounded, 300'001, 2), "copy engines");
    const Tensor nothing = empty({0}, {.device = 0});
    const auto one_and_empty_ones = [&](const Tensor& sent) {
      const Tensor own = empty_like(sent);
      unbounded.batch_send_recv({Message::send(sent, 0), Message::recv(own, 0), Message::send(nothing, 0),
                                 Message::recv(nothing, 0)});
      EXPECT_EQ(own.to_vector<float>(), sent.to_vector<float>());
      return unbounded.last_plan().algorithm;
    };
    EXPECT_EQ(one_and_empty_ones(full({5}, 3, {.device = 0})), "copy engines");
    const Tensor sent = full({5}, 4, {.device = 0});
    const Tensor own = empty_like(sent);
    const Tensor others = empty({5}, {.device = 1});
    unbounded.batch_send_recv(
        {Message::send(sent, 0), Message::recv(own, 0), Message::send(sent, 1), Message::recv(others, 0)});
    EXPECT_EQ(unbounded.last_plan().algorithm, by_kernels);  // one of two members sends two
    EXPECT_EQ(own.to_vector<float>(), sent.to_vector<float>());
    EXPECT_EQ(others.to_vector<float>(), sent.to_vector<float>());
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

TEST(Messages, InsideAProcessCrossWithoutWaitingForOneAnother) {
  expect_all_right(1, [](Exchange& exchange) {
    if (backend_kind() == BackendKind::cuda || device_count() < 3) return;
    constexpr int members = 3;
    Communicator communicator(exchange, {.devices = {Device(0), Device(1), Device(2)}});
    std::vector<Message> messages;
    for (int member = 0; member < members; ++member) {
      messages.push_back(
          Message::send(full({1000}, member, {.device = Device(member)}), (member + 1) % members));
      messages.push_back(
          Message::recv(zeros({1000}, {.device = Device(member)}), (member + members - 1) % members));
    }
    for (int device = 0; device < members; ++device) synchronize(device);
    constexpr std::chrono::seconds each{2};
    virtual_devices::inject(
        {.operation = virtual_devices::Operation::copy,
         .kind = virtual_devices::FaultKind::delay,
         .count = members,
         .delay_microseconds = static_cast<std::uint64_t>(std::chrono::microseconds(each).count())});
    const Stopwatch watch;
    communicator.batch_send_recv(messages);
    for (int device = 0; device < members; ++device) synchronize(device);
    EXPECT_GE(watch.elapsed(), each);
    EXPECT_LT(watch.elapsed(), 2 * each);
    for (const Message& message : messages) {
      if (message.kind() == Message::Kind::send) continue;
      EXPECT_EQ(message.tensor().to_vector<float>(),
                std::vector<float>(1000, static_cast<float>(message.peer())));
    }
  });
}

}  // namespace
}  // namespace tutti::test::ranks
