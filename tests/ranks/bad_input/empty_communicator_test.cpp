// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/member_call.hpp"
#include "support/errors.hpp"
#include "tutti/communicator.hpp"
#include "tutti/data_parallel.hpp"
#include "tutti/sharded_optimizer.hpp"

#include <functional>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// Communicators that are not made yet, and those that have been moved away.
namespace tutti {
namespace {

void expect_empty(const std::function<void()>& call, std::string_view name) {
  EXPECT_TRUE(test::refuses(call, ErrorCode::invalid_argument, {"Communicator: it is empty", "expected one"}))
      << name;
}

void expect_no_calls(Communicator& communicator) {
  const Tensor tensor = ones({4}, {.device = 0});
  for (const CollectiveForm form : test::all_forms()) {
    const test::MemberCall call{.inputs = {{tensor}}, .out = {{tensor}}};
    expect_empty([&] { test::make_call(communicator, form, call); }, name_of(form));
    expect_empty([&] { static_cast<void>(test::make_returning_call(communicator, form, call)); },
                 name_of(form));
  }
  expect_empty([&] { communicator.barrier(); }, "barrier");
  expect_empty([&] { communicator.send(tensor, 0); }, "send");
  expect_empty([&] { communicator.recv(tensor, 0); }, "recv");
  expect_empty([&] { communicator.sendrecv(tensor, 0, tensor, 0); }, "sendrecv");
  expect_empty([&] { static_cast<void>(communicator.sendrecv(tensor, 0, 0)); }, "returning sendrecv");
  expect_empty([&] { communicator.batch_send_recv({}); }, "batch_send_recv");
  expect_empty([&] { static_cast<void>(communicator.persistent([] {})); }, "persistent");
  expect_empty([&] { static_cast<void>(communicator.split(0)); }, "split");
}

void expect_no_properties(const Communicator& communicator) {
  expect_empty([&] { static_cast<void>(communicator.rank()); }, "rank");
  expect_empty([&] { static_cast<void>(communicator.rank_count()); }, "rank_count");
  expect_empty([&] { static_cast<void>(communicator.member_count()); }, "member_count");
  expect_empty([&] { static_cast<void>(communicator.first_member()); }, "first_member");
  expect_empty([&] { static_cast<void>(communicator.devices()); }, "devices");
  expect_empty([&] { static_cast<void>(communicator.last_plan()); }, "last_plan");
  expect_empty([&] { static_cast<void>(communicator.explain()); }, "explain");
  expect_empty([&] { static_cast<void>(communicator.explain(Workload{})); }, "explain of a workload");
  expect_empty([&] { communicator.check(); }, "check");
  expect_empty([&] { static_cast<void>(communicator.flight_record()); }, "flight_record");
}

void expect_no_trainers(Communicator& communicator) {
  const std::vector<Tensor> tensors{ones({4}, {.device = 0})};
  expect_empty([&] { const GradientBuckets buckets(communicator, tensors); }, "GradientBuckets");
  expect_empty([&] { const ShardedOptimizer optimizer(communicator, tensors); }, "ShardedOptimizer");
  expect_empty([&] { static_cast<void>(replicate(communicator, tensors)); }, "replicate");
}

void expect_empty(Communicator& communicator) {
  EXPECT_FALSE(communicator);
  EXPECT_FALSE(communicator.is_running());
  communicator.abort("nothing is there");
  expect_no_calls(communicator);
  expect_no_properties(communicator);
  expect_no_trainers(communicator);
}

/// A class that has its communicator before the processes have met.
struct Trainer {
  Communicator communicator;
};

TEST(EmptyCommunicator, RefusesEveryCall) {
  Communicator communicator;
  expect_empty(communicator);
  static_assert(std::is_nothrow_default_constructible_v<Communicator>);
  static_assert(!std::is_convertible_v<Communicator, bool>);
}

TEST(EmptyCommunicator, BecomesOneThatIsMovedIn) {
  Trainer trainer;
  EXPECT_FALSE(trainer.communicator);
  trainer.communicator = Communicator({.devices = {Device(0)}});
  EXPECT_TRUE(trainer.communicator);
  EXPECT_TRUE(trainer.communicator.is_running());
  const Tensor tensor = ones({4}, {.device = 0});
  EXPECT_EQ(trainer.communicator.all_reduce(tensor).to_vector<float>(), std::vector<float>(4, 1.0F));

  Communicator taken = std::move(trainer.communicator);
  EXPECT_TRUE(taken);
  expect_empty(trainer.communicator);
  trainer.communicator = std::move(taken);
  EXPECT_EQ(trainer.communicator.rank(), 0);
  trainer.communicator = {};
  EXPECT_FALSE(trainer.communicator);
}

TEST(EmptyCommunicator, IsNotOneThatHasEnded) {
  Communicator communicator({.devices = {Device(0)}});
  communicator.abort("enough");
  EXPECT_FALSE(communicator.is_running());
  EXPECT_TRUE(communicator);
  EXPECT_EQ(communicator.rank(), 0);
}

}  // namespace
}  // namespace tutti
