#include "ranks/lost_ranks.hpp"

#include "support/process_resources.hpp"

#include <cstddef>
#include <cstdlib>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tutti::test::ranks {

Communicator make(Exchange& exchange, std::chrono::milliseconds limit) {
  return Communicator(exchange, {.devices = {Device(0)}, .timeout = limit});
}

Tensor some_tensor(std::int64_t count) {
  return zeros({count}, {.device = 0});
}

void pretend_host(int host) {
  setenv("TUTTI_HOST_ID", fmt::format("host {}", host).c_str(), 1);
}

void expect_endings(Ranks& ranks, const std::vector<Ending>& expected) {
  EXPECT_EQ(ranks.wait(std::chrono::seconds(60)), expected);
}

void expect_nothing_left_behind(int hosts) {
  expect_all_right(2, [hosts](Exchange& exchange) {
    pretend_host(exchange.rank() % hosts);
    static_cast<void>(device_count());  // what the library opens once
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
