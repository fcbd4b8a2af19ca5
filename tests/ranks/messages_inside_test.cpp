// SPDX-License-Identifier: Apache-2.0
#include "ranks/lost_ranks.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "tutti/communicator.hpp"
#include "tutti/message.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Messages between members of one process.
namespace tutti::test::ranks {
namespace {

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
