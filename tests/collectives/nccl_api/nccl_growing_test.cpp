// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/growth.hpp"
#include "collectives/nccl_api/meeting/meeting.hpp"
#include "collectives/nccl_api/rank.hpp"
#include "support/ranks.hpp"
#include "support/variable_guard.hpp"

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// `ncclCommGrow`: new processes come to communicators.
namespace tutti::test {
namespace {

/// Gives every process what process `from` has.
template <class T>
T handed_out(Exchange& exchange, const T& mine, int from) {
  std::vector<T> all(static_cast<std::size_t>(exchange.size()));
  exchange.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all[static_cast<std::size_t>(from)];
}

/// Makes a communicator of the first `members` processes; null on the others.
ncclComm_t communicator_of_first(Exchange& exchange, int members) {
  const ncclUniqueId id = common_id(exchange);
  set_device(exchange.rank() % device_count());
  ncclComm_t comm = nullptr;
  if (exchange.rank() < members) {
    TUTTI_EXPECT_SUCCESS(ncclCommInitRank(&comm, members, id, exchange.rank()));
  }
  return comm;
}

/// Returns the id that process `from` gets for its communicator, to all processes.
ncclUniqueId growth_id(Exchange& exchange, ncclComm_t comm, int from = 0) {
  ncclUniqueId id{};
  if (exchange.rank() == from) {
    TUTTI_EXPECT_SUCCESS(ncclCommGetUniqueId(comm, &id));
  }
  return handed_out(exchange, id, from);
}

TEST(NcclGrowing, NewProcessesHaveTheNumbersThatTheyAskFor) {
  expect_all_right(4, [](Exchange& exchange) {
    const ncclComm_t comm = communicator_of_first(exchange, 2);
    const ncclUniqueId id = growth_id(exchange, comm, 1);
    const int process = exchange.rank();
    const int rank = process < 2 ? process : 5 - process;
    ncclComm_t larger = nullptr;
    const bool gives_id = process != 0;
    TUTTI_ASSERT_SUCCESS(
        ncclCommGrow(comm, 4, gives_id ? &id : nullptr, comm == nullptr ? rank : -1, &larger, nullptr));
    expect_works(larger, rank, 4);
    if (comm != nullptr) expect_works(comm, rank, 2);
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
    expect_works(larger, rank, 4);
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(larger));
  });
}

TEST(NcclGrowing, GrowsAgainWithoutAnIdGiven) {
  expect_all_right(3, [](Exchange& exchange) {
    ncclComm_t comm = communicator_of_first(exchange, 1);
    const int rank = exchange.rank();
    for (int ranks = 2; ranks <= 3; ++ranks) {
      const ncclUniqueId id = growth_id(exchange, comm, ranks - 2);
      ncclComm_t larger = nullptr;
      if (rank < ranks - 1) {
        TUTTI_ASSERT_SUCCESS(ncclCommGrow(comm, ranks, nullptr, -1, &larger, nullptr));
      } else if (rank == ranks - 1) {
        TUTTI_ASSERT_SUCCESS(ncclCommGrow(nullptr, ranks, &id, rank, &larger, nullptr));
      }
      TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
      comm = larger;
    }
    expect_works(comm, rank, 3);
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

TEST(NcclGrowing, OldRanksThatDifferEndItForAll) {
  expect_all_right(3, [](Exchange& exchange) {
    const ncclComm_t comm = communicator_of_first(exchange, 2);
    const ncclUniqueId id = growth_id(exchange, comm);
    const int process = exchange.rank();
    ncclComm_t larger = nullptr;
    if (comm != nullptr) {
      expect_refused(ncclCommGrow(comm, 3 + process, nullptr, -1, &larger, nullptr), ncclInvalidArgument,
                     "nRanks is 3 on rank 0 and 4 on rank 1");
      expect_works(comm, process, 2);
    } else {
      EXPECT_NE(ncclCommGrow(nullptr, 3, &id, 2, &larger, nullptr), ncclSuccess);
      // The new process may come before the ranks have given it up, or after that.
      EXPECT_NE(last_sentence().find("given"), std::string::npos) << last_sentence();
    }
    EXPECT_EQ(larger, nullptr);
    await_all(exchange);
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

TEST(NcclGrowing, AnAbortOfTheOldCommunicatorEndsItForAll) {
  expect_all_right(3, [](Exchange& exchange) {
    const ncclComm_t comm = communicator_of_first(exchange, 2);
    const ncclUniqueId id = growth_id(exchange, comm);
    ncclComm_t larger = nullptr;
    if (exchange.rank() == 1) {
      TUTTI_EXPECT_SUCCESS(ncclCommAbort(comm));
    } else {
      EXPECT_NE(ncclCommGrow(comm, 3, &id, comm == nullptr ? 2 : -1, &larger, nullptr), ncclSuccess);
      EXPECT_FALSE(last_sentence().empty());
    }
    EXPECT_EQ(larger, nullptr);
    await_all(exchange);
    if (exchange.rank() == 0) {
      TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
    }
  });
}

TEST(NcclGrowing, ANewProcessThatIsKilledBeforeItComesIsNamed) {
  const VariableGuard timeout("TUTTI_JOIN_TIMEOUT", "1");
  Ranks ranks(4, [](Exchange& exchange) {
    const ncclComm_t comm = communicator_of_first(exchange, 2);
    const ncclUniqueId id = growth_id(exchange, comm);
    if (exchange.rank() == 3) raise(SIGKILL);
    ncclComm_t larger = nullptr;
    expect_refused(ncclCommGrow(comm, 4, &id, comm == nullptr ? 2 : -1, &larger, nullptr), ncclTimeout,
                   "ncclCommGrow: rank 3 have not come in time");
    EXPECT_EQ(larger, nullptr);
    if (comm != nullptr) expect_works(comm, exchange.rank(), 2);
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
  EXPECT_EQ(ranks.wait(), (std::vector<Ending>{all_right, all_right, all_right, killed}));
}

TEST(NcclGrowing, ANewProcessThatIsKilledWhileRanksMakeTheCommunicatorIsNamed) {
  Ranks ranks(3, [](Exchange& exchange) {
    const ncclComm_t comm = communicator_of_first(exchange, 2);
    const ncclUniqueId id = growth_id(exchange, comm);
    if (comm == nullptr) {
      nccl_api::MeetingAddress address;
      std::memcpy(&address, id.internal, sizeof(address));
      const nccl_api::Meeting meeting(
          address, 3, {.first = 2, .count = 1, .facts = nccl_api::own_facts()}, std::chrono::seconds(60),
          {.function = "", .purpose = nccl_api::Purpose::grow, .require_wish = {}});
      raise(SIGKILL);
    }
    ncclComm_t larger = nullptr;
    expect_refused(ncclCommGrow(comm, 3, nullptr, -1, &larger, nullptr), ncclRemoteError,
                   "the process of rank 2 has left");
    EXPECT_EQ(larger, nullptr);
    expect_works(comm, exchange.rank(), 2);
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
  EXPECT_EQ(ranks.wait(), (std::vector<Ending>{all_right, all_right, killed}));
}

}  // namespace
}  // namespace tutti::test
