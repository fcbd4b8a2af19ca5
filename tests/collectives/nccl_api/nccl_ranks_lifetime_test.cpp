// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/rank.hpp"
#include "support/memory/process_resources.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "support/variable_guard.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>

/// Communicators of the C interface begin, are split and end, with every rank a process.
namespace tutti::test {
namespace {

TEST(NcclRanks, SplitsByColorInOrderOfKeys) {
  expect_all_right(3, [](Exchange& exchange) {
    const ncclComm_t comm = common_communicator(exchange);
    ncclComm_t part = nullptr;
    const int color = exchange.rank() == 1 ? NCCL_SPLIT_NOCOLOR : 4;
    TUTTI_EXPECT_SUCCESS(ncclCommSplit(comm, color, -exchange.rank(), &part, nullptr));
    ASSERT_EQ(part == nullptr, exchange.rank() == 1);
    if (part != nullptr) {
      int rank = -1;
      int count = 0;
      TUTTI_EXPECT_SUCCESS(ncclCommUserRank(part, &rank));
      TUTTI_EXPECT_SUCCESS(ncclCommCount(part, &count));
      EXPECT_EQ(rank, exchange.rank() == 2 ? 0 : 1);
      EXPECT_EQ(count, 2);
      const Tensor tensor = floats({1});
      TUTTI_EXPECT_SUCCESS(ncclAllReduce(tensor.data(), tensor.data(), 1, ncclFloat, ncclSum, part, nullptr));
      EXPECT_EQ(tensor.to_vector<float>(), (Floats{2}));
    }
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(part));
  });
}

TEST(NcclRanks, SeveralDevicesOfEachProcess) {
  expect_all_right(2, [](Exchange& exchange) {
    const ncclUniqueId id = common_id(exchange);
    std::array<ncclComm_t, 2> comms{};
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    for (int local = 0; local < 2; ++local) {
      const int rank = 2 * exchange.rank() + local;
      set_device(rank);
      TUTTI_EXPECT_SUCCESS(ncclCommInitRank(&comms[static_cast<std::size_t>(local)], 4, id, rank));
    }
    TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    std::vector<Tensor> tensors;
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    for (const ncclComm_t comm : comms) {
      int rank = -1;
      int device = -1;
      TUTTI_EXPECT_SUCCESS(ncclCommUserRank(comm, &rank));
      TUTTI_EXPECT_SUCCESS(ncclCommCuDevice(comm, &device));
      EXPECT_EQ(rank, device);
      tensors.push_back(tensor(Floats{static_cast<float>(rank)}, {.device = device}));
      TUTTI_EXPECT_SUCCESS(
          ncclAllReduce(tensors.back().data(), tensors.back().data(), 1, ncclFloat, ncclSum, comm, nullptr));
    }
    TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    for (const Tensor& tensor : tensors) EXPECT_EQ(tensor.to_vector<float>(), (Floats{6}));

    // Ranks 0 and 3, and 2 and 1: no two of one process.
    std::array<ncclComm_t, 2> parts{};
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    for (std::size_t local = 0; local < 2; ++local) {
      const int rank = 2 * exchange.rank() + static_cast<int>(local);
      TUTTI_EXPECT_SUCCESS(ncclCommSplit(comms[local], rank == 0 || rank == 3 ? 0 : 1, rank == 1 ? 9 : rank,
                                         &parts[local], nullptr));
    }
    TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    EXPECT_EQ(current_device(), 2 * exchange.rank() + 1) << "the device has changed";
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    for (std::size_t local = 0; local < 2; ++local)
      TUTTI_EXPECT_SUCCESS(ncclAllReduce(tensors[local].data(), tensors[local].data(), 1, ncclFloat, ncclSum,
                                         parts[local], nullptr));
    TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    for (const Tensor& tensor : tensors) EXPECT_EQ(tensor.to_vector<float>(), (Floats{12}));
    for (const ncclComm_t part : parts) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(part));
    for (const ncclComm_t comm : comms) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

/// Makes ranks 0 and 1 in the first process, and 2 in the second.
std::vector<ncclComm_t> uneven_ranks(Exchange& exchange) {
  const ncclUniqueId id = common_id(exchange);
  std::vector<ncclComm_t> comms(exchange.rank() == 0 ? 2 : 1);
  TUTTI_EXPECT_SUCCESS(ncclGroupStart());
  for (std::size_t local = 0; local < comms.size(); ++local) {
    const int rank = 2 * exchange.rank() + static_cast<int>(local);
    set_device(rank);
    TUTTI_EXPECT_SUCCESS(ncclCommInitRank(&comms[local], 3, id, rank));
  }
  TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
  return comms;
}

/// Makes one part of all ranks, of which this process has some.
ncclResult_t split_all(const std::vector<ncclComm_t>& comms, std::vector<ncclComm_t>& parts, int key = 0) {
  parts.assign(comms.size(), nullptr);
  TUTTI_EXPECT_SUCCESS(ncclGroupStart());
  for (std::size_t local = 0; local < comms.size(); ++local)
    TUTTI_EXPECT_SUCCESS(ncclCommSplit(comms[local], 0, key, &parts[local], nullptr));
  return ncclGroupEnd();
}

/// Has the process open nothing for its lifetime.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit none{.rlim_cur = 3, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

/// A rank waits for another, which does not come to the meeting of their part, until `end` ends what is
/// split.
std::vector<Ending> end_while_a_part_is_made(const std::function<void(Exchange&, ncclComm_t)>& end) {
  Ranks ranks(2, [&](Exchange& exchange) {
    const std::vector<ncclComm_t> comms = uneven_ranks(exchange);
    std::vector<ncclComm_t> parts;
    TUTTI_ASSERT_SUCCESS(split_all(comms, parts));
    for (const ncclComm_t part : parts) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(part));
    await_all(exchange);
    std::thread waiting;
    if (exchange.rank() == 0) {
      const std::size_t before = open_descriptors();
      waiting = std::thread([&] { EXPECT_NE(split_all(comms, parts), ncclSuccess); });
      EXPECT_TRUE(becomes_true([&] { return open_descriptors() >= before + 2; })) << "it goes to the meeting";
    } else {
      const NoDescriptors none;
      EXPECT_NE(split_all(comms, parts), ncclSuccess);
      EXPECT_NE(last_sentence().find("cannot be reached"), std::string::npos) << last_sentence();
    }
    await_all(exchange);
    const Stopwatch watch;
    end(exchange, comms.front());
    if (waiting.joinable()) waiting.join();
    EXPECT_LT(watch.elapsed(), patient(std::chrono::seconds(5)));
    EXPECT_EQ(parts, std::vector<ncclComm_t>(comms.size()));
    for (const ncclComm_t comm : std::span(comms).subspan(1)) TUTTI_EXPECT_SUCCESS(ncclCommAbort(comm));
  });
  return ranks.wait();
}

TEST(NcclRanks, APartWhoseMeetingCannotBeHeldFailsAtOnceOnAllItsRanks) {
  expect_all_right(2, [](Exchange& exchange) {
    const std::vector<ncclComm_t> comms = uneven_ranks(exchange);
    std::vector<ncclComm_t> parts;
    TUTTI_ASSERT_SUCCESS(split_all(comms, parts));
    for (const ncclComm_t part : parts) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(part));
    await_all(exchange);
    // Rank 2 is the first of its part, and its process has held no meeting yet.
    std::optional<NoDescriptors> none;
    if (exchange.rank() == 1) none.emplace();
    const Stopwatch watch;
    EXPECT_NE(split_all(comms, parts, exchange.rank() == 1 ? -1 : 0), ncclSuccess);
    EXPECT_LT(watch.elapsed(), patient(std::chrono::seconds(5)));
    EXPECT_NE(last_sentence().find(exchange.rank() == 1 ? "cannot be held" : "rank 2 cannot hold"),
              std::string::npos)
        << last_sentence();
    none.reset();
    await_all(exchange);
    TUTTI_EXPECT_SUCCESS(split_all(comms, parts, exchange.rank() == 1 ? -1 : 0));
    for (const ncclComm_t part : parts) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(part));
    for (const ncclComm_t comm : comms) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

TEST(NcclRanks, AnAbortReachesWhoWaitsForOthersOfItsPart) {
  const auto end = [](Exchange& exchange, ncclComm_t comm) {
    TUTTI_EXPECT_SUCCESS(ncclCommAbort(comm));
    await_all(exchange);
  };
  EXPECT_EQ(end_while_a_part_is_made(end), (std::vector<Ending>{all_right, all_right}));
}

TEST(NcclRanks, ALostRankReachesWhoWaitsForOthersOfItsPart) {
  const auto end = [](Exchange& exchange, ncclComm_t) {
    if (exchange.rank() == 1) raise(SIGKILL);
  };
  EXPECT_EQ(end_while_a_part_is_made(end), (std::vector<Ending>{all_right, killed}));
}

TEST(NcclRanks, ThreadsThatSplitInDifferentOrdersEndInTime) {
  VariableGuard patience("TUTTI_PATIENCE", "1");
  expect_all_right(1, [](Exchange&) {
    std::array<std::array<ncclComm_t, 2>, 2> comms{};
    for (auto& both : comms) TUTTI_ASSERT_SUCCESS(ncclCommInitAll(both.data(), 2, nullptr));
    std::vector<std::thread> threads;
    for (const std::size_t rank : {0U, 1U}) {
      threads.emplace_back([&, rank] {
        ncclComm_t part = nullptr;
        EXPECT_NE(ncclCommSplit(comms[rank][rank], 0, 0, &part, nullptr), ncclSuccess);
        EXPECT_EQ(part, nullptr);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_NE(last_sentence().find("1 of 2 ranks of this process have called it"), std::string::npos)
        << last_sentence();
    for (auto& both : comms) {
      for (const ncclComm_t comm : both) TUTTI_EXPECT_SUCCESS(ncclCommAbort(comm));
    }
  });
}

TEST(NcclRanks, AKilledRankIsNamed) {
  Ranks ranks(3, [](Exchange& exchange) {
    const ncclComm_t comm = common_communicator(exchange);
    const Tensor tensor = floats({1});
    TUTTI_EXPECT_SUCCESS(ncclAllReduce(tensor.data(), tensor.data(), 1, ncclFloat, ncclSum, comm, nullptr));
    synchronize();
    if (exchange.rank() == 1) raise(SIGKILL);
    TUTTI_EXPECT_SUCCESS(ncclAllReduce(tensor.data(), tensor.data(), 1, ncclFloat, ncclSum, comm, nullptr));
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess) TUTTI_EXPECT_SUCCESS(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclRemoteError);
    EXPECT_NE(last_sentence().find("rank 1"), std::string::npos) << last_sentence();
    EXPECT_NE(ncclAllReduce(tensor.data(), tensor.data(), 1, ncclFloat, ncclSum, comm, nullptr), ncclSuccess);
    TUTTI_EXPECT_SUCCESS(ncclCommAbort(comm));
  });
  EXPECT_EQ(ranks.wait(), (std::vector<Ending>{all_right, killed, all_right}));
}

TEST(NcclRanks, ShrinkToTheRanksThatAreLeft) {
  Ranks ranks(4, [](Exchange& exchange) {
    const ncclComm_t comm = common_communicator(exchange);
    const Tensor tensor = floats({1});
    TUTTI_EXPECT_SUCCESS(ncclAllReduce(tensor.data(), tensor.data(), 1, ncclFloat, ncclSum, comm, nullptr));
    EXPECT_EQ(tensor.to_vector<float>(), (Floats{4}));
    await_all(exchange);
    if (exchange.rank() == 1) raise(SIGKILL);
    int lost = 1;
    ncclComm_t rest = nullptr;
    TUTTI_ASSERT_SUCCESS(ncclCommShrink(comm, &lost, 1, &rest, nullptr, NCCL_SHRINK_ABORT));
    TUTTI_EXPECT_SUCCESS(ncclAllReduce(tensor.data(), tensor.data(), 1, ncclFloat, ncclSum, rest, nullptr));
    EXPECT_EQ(tensor.to_vector<float>(), (Floats{12}));
    int rank = -1;
    TUTTI_EXPECT_SUCCESS(ncclCommUserRank(rest, &rank));
    EXPECT_EQ(rank, exchange.rank() == 0 ? 0 : exchange.rank() - 1);

    int last = 2;
    ncclComm_t both = nullptr;
    if (rank == 2) {
      EXPECT_EQ(ncclCommShrink(rest, &last, 1, &both, nullptr, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
      EXPECT_NE(last_sentence().find("excludeRanksList[0] is 2"), std::string::npos) << last_sentence();
    } else {
      TUTTI_ASSERT_SUCCESS(ncclCommShrink(rest, &last, 1, &both, nullptr, NCCL_SHRINK_DEFAULT));
      TUTTI_EXPECT_SUCCESS(ncclAllReduce(tensor.data(), tensor.data(), 1, ncclFloat, ncclSum, both, nullptr));
      EXPECT_EQ(tensor.to_vector<float>(), (Floats{24}));
    }
    for (const ncclComm_t one : {both, rest, comm}) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(one));
  });
  EXPECT_EQ(ranks.wait(), (std::vector<Ending>{all_right, killed, all_right, all_right}));
}

TEST(NcclRanks, CallsThatDifferEndTheCommunicator) {
  expect_all_right(2, [](Exchange& exchange) {
    const ncclComm_t comm = common_communicator(exchange);
    const Tensor tensor = floats({1, 2});
    const std::size_t count = exchange.rank() == 0 ? 1 : 2;
    static_cast<void>(ncclAllReduce(tensor.data(), tensor.data(), count, ncclFloat, ncclSum, comm, nullptr));
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess) TUTTI_EXPECT_SUCCESS(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclInvalidUsage);
    EXPECT_NE(last_sentence().find("rank 1"), std::string::npos) << last_sentence();
    TUTTI_EXPECT_SUCCESS(ncclCommAbort(comm));
  });
}

TEST(NcclRanks, ARankThatDoesNotComeIsNamed) {
  VariableGuard timeout("TUTTI_JOIN_TIMEOUT", "1");
  expect_all_right(2, [](Exchange& exchange) {
    const ncclUniqueId id = common_id(exchange);
    if (exchange.rank() == 0) {
      ncclComm_t comm = nullptr;
      EXPECT_EQ(ncclCommInitRank(&comm, 3, id, 1), ncclTimeout);
      EXPECT_EQ(comm, nullptr);
      EXPECT_NE(last_sentence().find("ranks 0 and 2"), std::string::npos) << last_sentence();
      EXPECT_EQ(ncclCommInitRank(&comm, 3, id, 1), ncclInvalidArgument) << "the meeting is over";
    }
    await_all(exchange);
  });
}

TEST(NcclRanks, RanksThatComeWronglyAreRefused) {
  expect_all_right(2, [](Exchange& exchange) {
    const ncclUniqueId id = common_id(exchange);
    ncclComm_t comm = nullptr;
    if (exchange.rank() == 0) {
      TUTTI_EXPECT_SUCCESS(ncclCommInitRank(&comm, 2, id, 0));
    }
    if (exchange.rank() == 1) {
      TUTTI_EXPECT_SUCCESS(ncclCommInitRank(&comm, 2, id, 1));
      ncclComm_t other = nullptr;
      EXPECT_EQ(ncclCommInitRank(&other, 2, id, 1), ncclInvalidArgument) << "an id serves once";
    }
    await_all(exchange);  // the id's maker answers until then
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

}  // namespace
}  // namespace tutti::test
