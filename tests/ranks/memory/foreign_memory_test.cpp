// SPDX-License-Identifier: Apache-2.0
#include "ranks/memory/own_memory.hpp"
#include "support/ranks.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/communicator.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include <gtest/gtest.h>

/// Memory of the program's own that communicators open without a registration.
namespace tutti::test {
namespace {

class ForeignMemory : public testing::TestWithParam<Origin> {};
INSTANTIATE_TEST_SUITE_P(Origins, ForeignMemory, each_origin(), name_of_origin);

TEST_P(ForeignMemory, IsOpenedByItself) {
  expect_all_right(2, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange), origin, 3 * own_count);
    const OwnMemory received(device_of(exchange), origin);
    Communicator communicator = make_opening(exchange);
    // Parts that share bytes with earlier ones, within them and around them, in a call and in the next.
    const std::size_t unit = own_count * sizeof(std::int32_t) / 4 / 512 * 512;
    constexpr std::pair<std::size_t, std::int64_t> parts[] = {{4, 4}, {5, 4},  {2, 5},
                                                              {6, 4}, {0, 12}, {3, 4}};
    for (int round = 0; round < 12; ++round) {
      SCOPED_TRACE(round);
      const auto [begin, units] = parts[static_cast<std::size_t>(round) % std::size(parts)];
      const Tensor mine = own.tensor(begin * unit, own_count * units / 4);
      mine.fill_(rank + round);
      communicator.all_reduce({mine}, {mine});
      EXPECT_TRUE(is_in_place(communicator));
      EXPECT_TRUE(holds(mine, 2 * round + 1));
    }
    if (rank == 0) {
      own.tensor().fill_(7);
      communicator.send(own.tensor(0, own_count), 1);
    } else {
      communicator.recv(received.tensor(), 0);
      EXPECT_TRUE(holds(received.tensor(), 7));
    }
    synchronize(device_of(exchange));
    transport::team::synchronize(exchange);
  });
}

TEST(ForeignPieces, MayBeMappedAnewAtItsAddress) {
  expect_all_right(2, [](Exchange& exchange) {
    const int rank = exchange.rank();
    OwnMemory own(device_of(exchange), Origin::pieces);
    const Tensor mine = own.tensor();
    Communicator communicator = make_opening(exchange);
    for (int round = 0; round < 6; ++round) {
      mine.fill_(rank + round);
      communicator.all_reduce({mine}, {mine});
      EXPECT_TRUE(is_in_place(communicator));
      EXPECT_TRUE(holds(mine, 2 * round + 1));
      synchronize(device_of(exchange));
      transport::team::synchronize(exchange);
      if (round % 2 == rank) own.map_anew();
    }
  });
}

TEST_P(ForeignMemory, ServesReplaysAfterLargerPartsWereUsed) {
  expect_all_right(2, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange), origin, 2 * own_count);
    Communicator communicator = make_opening(exchange);
    const Tensor part = own.tensor(4096, own_count);
    PersistentCollective call = communicator.persistent([&] { communicator.all_reduce({part}, {part}); });
    for (int round = 0; round < 3; ++round) {
      const Tensor all = own.full_of(rank);
      communicator.all_reduce({all}, {all});
      EXPECT_TRUE(holds(all, 1));
      part.fill_(rank + round);
      call.launch();
      EXPECT_TRUE(holds(part, 2 * round + 1));
    }
    synchronize(device_of(exchange));
    transport::team::synchronize(exchange);
  });
}

}  // namespace
}  // namespace tutti::test
