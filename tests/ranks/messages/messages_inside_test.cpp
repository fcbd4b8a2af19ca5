// SPDX-License-Identifier: Apache-2.0
#include "device/runtime.hpp"
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "support/environment.hpp"
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
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

/// Messages between members of one process.
namespace tutti::test::ranks {
namespace {

/// A communicator of one rank, and what it does with messages between its members.
class Inside {
 public:
  Inside(Exchange& exchange, int members, std::optional<int> multiprocessors = {})
      : members_(members),
        communicator_(exchange, {.devices = first_devices(members), .multiprocessors = multiprocessors}) {}

  /// Each member sends so many messages of `count` elements to the next, all of which begin `shift` elements
  /// behind the beginning of their memory; returns the plan.
  std::string pass_on(std::int64_t count, int messages_each, std::int64_t shift = 0) {
    std::vector<Message> batch;
    std::vector<Tensor> received;
    for (int i = 0; i < messages_each; ++i) {
      for (int member = 0; member < members_; ++member) {
        const TensorOptions options{.dtype = DType::int32, .device = member};
        const Tensor sent = full({count + shift}, 10 * i + member, options);
        batch.push_back(Message::send(sent.narrow(0, shift, count), (member + 1) % members_));
        const Tensor whole = full({count + shift}, -1, options);
        received.push_back(whole.narrow(0, shift, count));
        batch.push_back(Message::recv(received.back(), (member + members_ - 1) % members_));
      }
    }
    communicator_.batch_send_recv(batch);
    for (std::size_t i = 0; i < received.size(); ++i) {
      const int member = static_cast<int>(i) % members_;
      const int message = static_cast<int>(i) / members_;
      const std::int32_t expected = 10 * message + (member + members_ - 1) % members_;
      const auto values = received[i].to_vector<std::int32_t>();
      EXPECT_EQ(std::ranges::count(values, expected), count) << count << " elements, message " << i;
    }
    return plan();
  }
  [[nodiscard]] std::string plan() const { return communicator_.last_plan().algorithm; }
  [[nodiscard]] Communicator& communicator() { return communicator_; }

 private:
  int members_;
  Communicator communicator_;
};

bool reach_one_another(int devices) {
  for (int device = 0; device < devices; ++device) {
    for (int peer = 0; peer < devices; ++peer) {
      if (device != peer && !can_device_access_peer(device, peer)) return false;
    }
  }
  return true;
}

TEST(Messages, AmongAllMembersOfAProcessAreARound) {
  expect_all_right(1, [](Exchange& exchange) {
    for (const int members : {2, 3}) {
      if (device_count() < members) return;
      const bool reach = reach_one_another(members);
      Inside inside(exchange, members);
      const auto expect_a_round = [&](const std::string& plan, std::string_view kind, std::int64_t count) {
        if (reach) {
          EXPECT_THAT(plan, testing::AllOf(testing::StartsWith("1 "), testing::EndsWith("round")));
          EXPECT_THAT(plan, testing::HasSubstr(kind)) << count << " elements";
        } else {
          EXPECT_EQ(plan, "copy engines");
        }
      };
      for (const int each : {1, 3}) {
        expect_a_round(inside.pass_on(1, each, 1), "low-latency", 1);
        expect_a_round(inside.pass_on(10'000, each, 1), "", 10'000);
      }
      for (const std::int64_t count : {1'000'001, 2'000'003, 4'194'304})
        expect_a_round(inside.pass_on(count, 1), "direct", count);
      expect_a_round(inside.pass_on(600'001, 2), "direct", 600'001);
      EXPECT_EQ(inside.pass_on(4'194'305, 1), "copy engines");
      EXPECT_EQ(inside.pass_on(2'000, 300), "copy engines");  // more than can be given, and than a slot holds
      EXPECT_EQ(Inside(exchange, members, 31).pass_on(1'000, 2), "copy engines");
    }
  });
}

TEST(Messages, InsideAProcessThatMembersCannotBeGivenAreCopied) {
  expect_all_right(1, [](Exchange& exchange) {
    if (device_count() < 2) return;
    Inside inside(exchange, 2);
    if (backend_kind() == BackendKind::cuda) {
      EXPECT_EQ(inside.pass_on(1'000'001, 1, 1), "copy engines");
    }
    constexpr std::int64_t count = 1'000'001;
    backend::Backend& backend = Runtime::get().backend();
    std::vector<void*> foreign;
    std::vector<Tensor> tensors;
    for (const int device : {0, 1}) {
      foreign.push_back(backend.allocate_device(device, count * sizeof(float)));
      tensors.emplace_back(TensorView(foreign.back(), DType::float32, {count}, Device(device)));
      tensors.back().fill_(7 + device);
    }
    inside.communicator().batch_send_recv({Message::send(tensors[0], 1), Message::recv(tensors[1], 0)});
    EXPECT_EQ(inside.plan(), "copy engines");
    EXPECT_EQ(tensors[1].to_vector<float>(), std::vector<float>(count, 7));
    for (const int device : {0, 1}) {
      synchronize(device);
      backend.free_device(device, foreign[static_cast<std::size_t>(device)]);
    }
  });
}

TEST(Messages, InsideAProcessThatSomeMembersHaveNoPartInAreCopied) {
  expect_all_right(1, [](Exchange& exchange) {
    if (device_count() < 3) return;
    Inside inside(exchange, 3);
    const Tensor sent = full({5}, 4, {.device = 0});
    const Tensor own = empty_like(sent);
    const Tensor others = empty({5}, {.device = 1});
    const Tensor nothing = empty({0}, {.device = 2});
    const auto to_itself_and = [&](std::vector<Message> messages) {
      messages.insert(messages.end(), {Message::send(sent, 0), Message::recv(own, 0),
                                       Message::send(nothing, 2), Message::recv(nothing, 2)});
      inside.communicator().batch_send_recv(messages);
      EXPECT_EQ(own.to_vector<float>(), sent.to_vector<float>());
      EXPECT_EQ(inside.plan(), "copy engines");
    };
    to_itself_and({});
    to_itself_and({Message::send(sent, 1), Message::recv(others, 0)});
    EXPECT_EQ(others.to_vector<float>(), sent.to_vector<float>());
  });
}

TEST(Messages, RoundsOfThemTakeTurnsWithOtherCalls) {
  expect_all_right(1, [](Exchange& exchange) {
    if (device_count() < 2) return;
    Inside inside(exchange, 2);
    for (int i = 0; i < 20; ++i) {
      inside.pass_on(1 + 997 * i, 1 + i % 3);
      std::vector<Tensor> numbers;
      for (int member = 0; member < 2; ++member)
        numbers.push_back(full({1000}, i + member, {.dtype = DType::int32, .device = member}));
      for (const Tensor& tensor : inside.communicator().all_reduce_add(numbers))
        EXPECT_EQ(tensor.to_vector<std::int32_t>(), std::vector<std::int32_t>(1000, 2 * i + 1));
    }
  });
}

TEST(Messages, InsideAProcessCrossWithoutWaitingForOneAnother) {
  expect_all_right(1, [](Exchange& exchange) {
    if (backend_kind() == BackendKind::cuda || device_count() < 3) return;
    constexpr int members = 3;
    // Bounded: by copies.
    Communicator communicator(exchange, {.devices = first_devices(members), .multiprocessors = 31});
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
