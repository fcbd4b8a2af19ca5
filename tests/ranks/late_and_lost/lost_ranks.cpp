// SPDX-License-Identifier: Apache-2.0
#include "ranks/late_and_lost/lost_ranks.hpp"

#include "support/errors.hpp"
#include "support/memory/process_resources.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/agreement.hpp"

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tutti::test::ranks {

Communicator make(Exchange& exchange, std::chrono::milliseconds limit) {
  return Communicator(exchange, {.devices = {Device(0)}, .timeout = limit, .patience = limit});
}

Communicator make_patient(Exchange& exchange) {
  return Communicator(exchange,
                      {.devices = {Device(0)}, .timeout = timeout, .patience = std::chrono::minutes(2)});
}

Tensor some_tensor(std::int64_t count) {
  return zeros({count}, {.device = 0});
}

void pretend_host(int host) {
  setenv("TUTTI_HOST_ID", fmt::format("host {}", host).c_str(), 1);
}

void expect_named_as_missing(Exchange& exchange, Communicator& communicator, std::chrono::milliseconds limit,
                             const std::vector<std::string>& fragments) {
  const Tensor tensor = some_tensor();
  transport::team::synchronize(exchange);
  const Stopwatch watch;
  if (exchange.rank() == 1) {
    EXPECT_TRUE(becomes_true([&] { return !communicator.is_running(); }));
  } else {
    const std::string text = failure_of(0, [&] { communicator.all_reduce_add({tensor}, {tensor}); });
    EXPECT_GE(watch.elapsed(), limit);
    EXPECT_TRUE(mentions(text, {within(limit), "rank 1 has not made it"}));
    EXPECT_TRUE(mentions(text, fragments));
  }
  EXPECT_LT(watch.elapsed(), limit + slack);
}

void expect_end(Communicator& communicator, ErrorCode code, const std::vector<std::string>& fragments) {
  EXPECT_TRUE(becomes_true([&] { return !communicator.is_running(); }));
  EXPECT_TRUE(refuses([&] { communicator.check(); }, code, fragments));
  EXPECT_TRUE(refuses([&] { communicator.barrier(); }, code, fragments));
  const int other = communicator.rank() == 0 ? 1 : 0;
  EXPECT_TRUE(refuses([&] { communicator.send(some_tensor(), other); }, code, fragments));
  EXPECT_TRUE(refuses([&] { communicator.batch_send_recv({}); }, code, fragments));
}

void expect_endings(Ranks& ranks, const std::vector<Ending>& expected) {
  EXPECT_EQ(ranks.wait(std::chrono::seconds(60)), expected);
}

void expect_that_who_leaves_ends_calls(int hosts) {
  using Call = std::pair<std::string, std::function<void(Communicator & communicator, const Tensor& tensor)>>;
  const std::vector<Call> calls{
      {"split", [](auto& communicator, const auto&) { static_cast<void>(communicator.split(0)); }},
      {"all_reduce",
       [](auto& communicator, const auto& tensor) { communicator.all_reduce_add({tensor}, {tensor}); }},
      {"scatter", [](auto& communicator, const auto& tensor) { communicator.scatter({}, {tensor}, 1); }}};
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    expect_all_right(3, [&](Exchange& exchange) {
      pretend_host(exchange.rank() % hosts);
      std::optional<Communicator> communicator = make(exchange, hang_limit());
      const Tensor tensor = some_tensor();
      communicator->barrier();
      synchronize(0);
      transport::team::synchronize(exchange);  // nobody is still in the barrier
      const Stopwatch watch;
      if (exchange.rank() == 1) {
        communicator.reset();
      } else {
        const std::string text = failure_of(0, [&] { call(*communicator, tensor); });
        EXPECT_TRUE(mentions(text, {"rank 1 has left, its last call was barrier (#1)", name + " "}));
        EXPECT_TRUE(
            refuses([&] { communicator->barrier(); }, ErrorCode::peer_unavailable, {"rank 1 has left"}));
      }
      EXPECT_LT(watch.elapsed(), slack);
    });
  }
}

void expect_that_who_leaves_waits_for_late_ranks(int hosts) {
  expect_all_right(4, [hosts](Exchange& exchange) {
    pretend_host(exchange.rank() * hosts / 4);
    std::optional<Communicator> communicator = make_patient(exchange);
    const Tensor tensor = full({1000}, 1, {.device = 0});
    // On two hosts, what rank 3 gives comes to rank 0 through rank 1, which has gone on.
    if (exchange.rank() == 3) std::this_thread::sleep_for(2 * timeout);
    communicator->reduce_add({tensor}, {tensor}, 0);
    if (exchange.rank() == 0) {
      EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(1000, 4.0F));
    }
    communicator.reset();
  });
}

void expect_nothing_left_behind(int hosts) {
  expect_all_right(2, [hosts](Exchange& exchange) {
    pretend_host(exchange.rank() % hosts);
    init();  // what the library opens once
    const Tensor tensor = some_tensor();
    {
      Communicator communicator = make(exchange);
      communicator.all_reduce_add({tensor}, {tensor});
    }
    const std::size_t descriptors = open_descriptors();
    const std::size_t mappings = shared_mappings();
    for (int round = 0; round < 20; ++round) {
      Communicator communicator = make(exchange);
      communicator.all_reduce_add({tensor}, {tensor});
    }
    EXPECT_EQ(open_descriptors(), descriptors);
    EXPECT_EQ(shared_mappings(), mappings);
  });
}

}  // namespace tutti::test::ranks
