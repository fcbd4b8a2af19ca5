// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/rank.hpp"
#include "support/machines/machines.hpp"
#include "support/ranks.hpp"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>

/// Communicators that tutti does not carry: NCCL does, for which a small library stands here
/// (`fake_nccl/`).
namespace tutti::test {
namespace {

/// Sets variables of a rank, before it uses the library.
void set(const char* name, const std::string& value) {
  ::setenv(name, value.c_str(), 1);
}
void use_fake(const std::string& host) {
  set("TUTTI_NCCL_FALLBACK", TUTTI_FAKE_NCCL);
  set("TUTTI_HOST_ID", host);
  set("TUTTI_LOG", "off");
}
std::string host_of(const Exchange& exchange) {
  return "host" + std::to_string(exchange.rank() / 2);
}

/// Returns how often a function of the fake library has been called in this process; -1 if it is not loaded.
int fake_calls(const char* function) {
  void* const library = dlopen(TUTTI_FAKE_NCCL, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return -1;
  const auto calls = reinterpret_cast<int (*)(const char*)>(dlsym(library, "fake_nccl_calls"));
  const int count = calls(function);
  dlclose(library);
  return count;
}

Floats all_reduced(ncclComm_t comm, Floats values, ncclRedOp_t op = ncclSum) {
  TUTTI_EXPECT_SUCCESS(
      ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat, op, comm, nullptr));
  return values;
}

TEST(NcclFallback, HasNcclCarryRanksOfSeveralHosts) {
  expect_all_right(3, [](Exchange& exchange) {
    use_fake(host_of(exchange));
    const ncclUniqueId id = common_id(exchange);
    EXPECT_EQ(fake_calls("ncclGroupStart"), -1) << "the library is opened when it is needed";
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const int rank = exchange.rank();
    TUTTI_ASSERT_SUCCESS(ncclCommInitRankConfig(&comm, 3, id, rank, &config));
    EXPECT_EQ(fake_calls("ncclGetUniqueId"), rank == 0 ? 1 : 0);
    EXPECT_EQ(fake_calls("ncclCommInitRankConfig"), 1);
    int known = -1;
    TUTTI_EXPECT_SUCCESS(ncclCommUserRank(comm, &known));
    EXPECT_EQ(known, rank);
    TUTTI_EXPECT_SUCCESS(ncclCommCount(comm, &known));
    EXPECT_EQ(known, 3);

    const auto value = static_cast<float>(rank);
    EXPECT_EQ(all_reduced(comm, {value, 1}), (Floats{3, 3}));
    EXPECT_EQ(all_reduced(comm, {value}, ncclMax), (Floats{2}));
    Floats all(3);
    TUTTI_EXPECT_SUCCESS(ncclAllGather(&value, all.data(), 1, ncclFloat, comm, nullptr));
    EXPECT_EQ(all, (Floats{0, 1, 2}));
    float part = 0;
    TUTTI_EXPECT_SUCCESS(ncclReduceScatter(all.data(), &part, 1, ncclFloat, ncclSum, comm, nullptr));
    EXPECT_EQ(part, 3 * value);
    TUTTI_EXPECT_SUCCESS(ncclBcast(&part, 1, ncclFloat, 2, comm, nullptr));
    EXPECT_EQ(part, 6);

    float factor = 0.5;
    ncclRedOp_t op = ncclSum;
    TUTTI_EXPECT_SUCCESS(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat, ncclScalarHostImmediate, comm));
    EXPECT_EQ(all_reduced(comm, {2 * value}, op), (Floats{3}));
    TUTTI_EXPECT_SUCCESS(ncclRedOpDestroy(op, comm));

    // Messages and collectives of a group go at once.
    const int groups = fake_calls("ncclGroupStart");
    float got = -1;
    Floats sum{value};
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    TUTTI_EXPECT_SUCCESS(ncclSend(&value, 1, ncclFloat, (rank + 1) % 3, comm, nullptr));
    TUTTI_EXPECT_SUCCESS(ncclRecv(&got, 1, ncclFloat, (rank + 2) % 3, comm, nullptr));
    TUTTI_EXPECT_SUCCESS(ncclAllReduce(sum.data(), sum.data(), 1, ncclFloat, ncclSum, comm, nullptr));
    EXPECT_EQ(got, -1);
    TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    EXPECT_EQ(fake_calls("ncclGroupStart"), groups + 1);
    EXPECT_EQ(got, static_cast<float>((rank + 2) % 3));
    EXPECT_EQ(sum, (Floats{3}));

    // What its version does not have.
    uint64_t bytes = 0;
    EXPECT_EQ(ncclCommMemStats(comm, ncclStatGpuMemTotal, &bytes), ncclInvalidUsage);
    EXPECT_NE(last_sentence().find("2.28.9"), std::string::npos) << last_sentence();

    TUTTI_EXPECT_SUCCESS(ncclCommFinalize(comm));
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
    EXPECT_EQ(fake_calls("ncclCommDestroy"), 1);
  });
}

/// Loads the library as programs do, PyTorch for one, before tutti needs it: the loader has it find the
/// names of tutti then, if the program has them.
void load_fake_early() {
  ASSERT_NE(dlopen(TUTTI_FAKE_NCCL, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
}

TEST(NcclFallback, CallsItsOwnFunctionsThoughTheProgramHasLoadedItBefore) {
  expect_all_right(2, [](Exchange& exchange) {
    use_fake(std::to_string(exchange.rank()));
    load_fake_early();
    const ncclComm_t comm = common_communicator(exchange);
    EXPECT_EQ(all_reduced(comm, {1}), (Floats{2}));
    EXPECT_EQ(all_reduced(comm, {2}), (Floats{4}));
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
  expect_all_right(1, [](Exchange&) {
    use_fake("here");
    set("TUTTI_NCCL_FALLBACK", "always");
    set("TUTTI_NCCL_LIBRARY", TUTTI_FAKE_NCCL);
    load_fake_early();
    boot("island", 2);
    std::array<ncclComm_t, 2> comms{};
    TUTTI_ASSERT_SUCCESS(ncclCommInitAll(comms.data(), 2, nullptr));
    EXPECT_EQ(fake_calls("ncclGetUniqueId"), 1);
    EXPECT_EQ(fake_calls("ncclGroupEnd"), 1);
    for (const ncclComm_t comm : comms) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

TEST(NcclFallback, PartsOfNcclsCommunicatorsAreNccls) {
  expect_all_right(3, [](Exchange& exchange) {
    use_fake(host_of(exchange));
    const ncclComm_t comm = common_communicator(exchange);
    ASSERT_NE(comm, nullptr);
    const int rank = exchange.rank();
    ncclComm_t part = nullptr;
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    TUTTI_EXPECT_SUCCESS(ncclCommSplit(comm, rank == 1 ? NCCL_SPLIT_NOCOLOR : 0, -rank, &part, nullptr));
    TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    EXPECT_EQ(part == nullptr, rank == 1);
    if (part != nullptr) {
      int known = -1;
      TUTTI_EXPECT_SUCCESS(ncclCommUserRank(part, &known));
      EXPECT_EQ(known, rank == 2 ? 0 : 1);
      EXPECT_EQ(all_reduced(part, {1}), (Floats{2}));
    }
    int last = 2;
    ncclComm_t rest = nullptr;
    if (rank != 2) {
      TUTTI_EXPECT_SUCCESS(ncclCommShrink(comm, &last, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT));
      EXPECT_EQ(all_reduced(rest, {1}), (Floats{2}));
    }
    // Destroyed when the group ends, which the calls before need.
    Floats sum{1};
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    TUTTI_EXPECT_SUCCESS(ncclAllReduce(sum.data(), sum.data(), 1, ncclFloat, ncclSum, comm, nullptr));
    for (const ncclComm_t one : {comm, part, rest}) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(one));
    EXPECT_EQ(fake_calls("ncclCommDestroy"), 0);
    TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    EXPECT_EQ(sum, (Floats{3}));
    EXPECT_EQ(fake_calls("ncclCommDestroy"), rank == 0 ? 3 : 2);
  });
}

TEST(NcclFallback, NcclLetsNewRanksIntoItsCommunicators) {
  expect_all_right(3, [](Exchange& exchange) {
    use_fake(std::to_string(exchange.rank()));
    const ncclUniqueId first = common_id(exchange);
    const int rank = exchange.rank();
    ncclComm_t comm = nullptr;
    std::array<ncclUniqueId, 3> ids{};
    if (rank < 2) {
      TUTTI_ASSERT_SUCCESS(ncclCommInitRank(&comm, 2, first, rank));
      TUTTI_ASSERT_SUCCESS(ncclCommGetUniqueId(comm, ids.data()));
    }
    const ncclUniqueId own = ids.front();
    exchange.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(ids)));
    ncclComm_t larger = nullptr;
    TUTTI_ASSERT_SUCCESS(ncclCommGrow(comm, 3, ids.data(), comm == nullptr ? rank : -1, &larger, nullptr));
    EXPECT_EQ(fake_calls("ncclCommGrow"), 1);
    EXPECT_EQ(all_reduced(larger, {static_cast<float>(rank)}), (Floats{3}));
    if (comm != nullptr) {
      EXPECT_EQ(all_reduced(comm, {1}), (Floats{2}));
    }
    for (const ncclComm_t one : {larger, comm}) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(one));
  });
}

TEST(NcclFallback, AGroupMayHaveCommunicatorsOfBoth) {
  expect_all_right(4, [](Exchange& exchange) {
    use_fake(host_of(exchange));
    const ncclComm_t all = common_communicator(exchange);
    const int rank = exchange.rank();
    std::array<ncclUniqueId, 4> ids{};
    if (rank % 2 == 0) {
      TUTTI_EXPECT_SUCCESS(ncclGetUniqueId(ids.data()));
    }
    const ncclUniqueId own = ids.front();
    exchange.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(ids)));
    ncclComm_t pair = nullptr;
    TUTTI_ASSERT_SUCCESS(ncclCommInitRank(&pair, 2, ids[static_cast<std::size_t>(rank / 2 * 2)], rank % 2));
    EXPECT_EQ(fake_calls("ncclCommInitRank"), 1) << "tutti carries the ranks of one host";
    {
      const auto value = static_cast<float>(rank);
      const Tensor tensor = full({4}, value, {.device = Device::current()});
      synchronize();
      Floats sum{value};
      TUTTI_EXPECT_SUCCESS(ncclGroupStart());
      TUTTI_EXPECT_SUCCESS(ncclAllReduce(sum.data(), sum.data(), 1, ncclFloat, ncclSum, all, nullptr));
      TUTTI_EXPECT_SUCCESS(ncclAllReduce(tensor.data(), tensor.data(), 4, ncclFloat, ncclSum, pair, nullptr));
      TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
      EXPECT_EQ(sum, (Floats{6}));
      EXPECT_EQ(tensor.to_vector<float>(), Floats(4, rank < 2 ? 1 : 5));

      // A bad call of either keeps those of both from being made.
      const int calls = fake_calls("ncclAllReduce");
      TUTTI_EXPECT_SUCCESS(ncclGroupStart());
      TUTTI_EXPECT_SUCCESS(ncclAllReduce(sum.data(), sum.data(), 1, ncclFloat, ncclSum, all, nullptr));
      EXPECT_EQ(ncclAllReduce(tensor.data(), tensor.data(), 4, ncclNumTypes, ncclSum, pair, nullptr),
                ncclInvalidArgument);
      EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
      TUTTI_EXPECT_SUCCESS(ncclGroupStart());
      TUTTI_EXPECT_SUCCESS(ncclAllReduce(tensor.data(), tensor.data(), 4, ncclFloat, ncclSum, pair, nullptr));
      EXPECT_EQ(ncclAlltoAll(sum.data(), sum.data(), 1, ncclFloat, all, nullptr), ncclInvalidUsage);
      EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
      EXPECT_NE(last_sentence().find("ncclAlltoAll"), std::string::npos) << last_sentence();
      EXPECT_EQ(fake_calls("ncclAllReduce"), calls);
      EXPECT_EQ(tensor.to_vector<float>(), Floats(4, rank < 2 ? 1 : 5));
    }
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(pair));
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(all));
    TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
  });
}

TEST(NcclFallback, ErrorsHaveNcclsWords) {
  expect_all_right(2, [](Exchange& exchange) {
    use_fake(std::to_string(exchange.rank()));
    const ncclComm_t comm = common_communicator(exchange);
    Floats sum{1};
    const Floats large(1000);
    set("FAKE_NCCL_FAIL", "ncclReduce");
    EXPECT_EQ(ncclReduce(sum.data(), sum.data(), 1, ncclFloat, ncclSum, 0, comm, nullptr), ncclSystemError);
    EXPECT_EQ(last_sentence(), "ncclReduce: NCCL: a fake error (fake: ncclReduce is to fail)");
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    TUTTI_EXPECT_SUCCESS(ncclAllReduce(sum.data(), sum.data(), 1, ncclFloat, ncclSum, comm, nullptr));
    TUTTI_EXPECT_SUCCESS(ncclReduce(sum.data(), sum.data(), 1, ncclFloat, ncclSum, 0, comm, nullptr));
    EXPECT_EQ(ncclGroupEnd(), ncclSystemError);
    EXPECT_EQ(sum, (Floats{1})) << "NCCL drops the group";
    const int one = 0;
    EXPECT_EQ(ncclCommShrink(comm, nullptr, 0, nullptr, nullptr, one), ncclInvalidArgument);

    ncclResult_t state = ncclInternalError;
    TUTTI_EXPECT_SUCCESS(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclSuccess);
    await_all(exchange);
    if (exchange.rank() == 0) {
      TUTTI_EXPECT_SUCCESS(ncclCommAbort(comm));
      return;
    }
    while (state == ncclSuccess) TUTTI_EXPECT_SUCCESS(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclRemoteError);
    EXPECT_EQ(last_sentence(), "fake: a rank has aborted");
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    TUTTI_EXPECT_SUCCESS(ncclAllReduce(sum.data(), sum.data(), 1, ncclFloat, ncclSum, comm, nullptr));
    std::thread([&] { TUTTI_EXPECT_SUCCESS(ncclCommAbort(comm)); }).join();
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "NCCL hears no more of it";
  });
}

TEST(NcclFallback, MemoryAndWindowsAreNcclsWhereItIsInUse) {
  expect_all_right(2, [](Exchange& exchange) {
    use_fake(std::to_string(exchange.rank()));
    void* before = nullptr;
    TUTTI_EXPECT_SUCCESS(ncclMemAlloc(&before, 4096));
    const ncclComm_t comm = common_communicator(exchange);
    void* memory = nullptr;
    TUTTI_EXPECT_SUCCESS(ncclMemAlloc(&memory, 4096));
    EXPECT_EQ(fake_calls("ncclMemAlloc"), 1);
    ncclWindow_t window = nullptr;
    void* handle = nullptr;
    void* address = nullptr;
    TUTTI_EXPECT_SUCCESS(ncclCommRegister(comm, memory, 4096, &handle));
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    TUTTI_EXPECT_SUCCESS(ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
    TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    TUTTI_EXPECT_SUCCESS(ncclWinGetUserPtr(comm, window, &address));
    EXPECT_EQ(address, memory);
    TUTTI_EXPECT_SUCCESS(ncclCommWindowDeregister(comm, window));
    TUTTI_EXPECT_SUCCESS(ncclCommDeregister(comm, handle));
    for (const char* const function :
         {"ncclCommRegister", "ncclCommDeregister", "ncclCommWindowRegister", "ncclCommWindowDeregister"})
      EXPECT_EQ(fake_calls(function), 1) << function;
    TUTTI_EXPECT_SUCCESS(ncclMemFree(memory));
    TUTTI_EXPECT_SUCCESS(ncclMemFree(before));
    EXPECT_EQ(fake_calls("ncclMemFree"), 1) << "what was tutti's stays so";
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
    EXPECT_EQ(ncclCommWindowDeregister(nullptr, window), ncclInvalidArgument);
  });
}

/// Expects that all ranks, on hosts of their own, are refused with the same sentence about rank 1, which has
/// another setting.
void expect_refusal(const std::string& fallback_of_rank_1, const std::string& part) {
  expect_all_right(2, [&](Exchange& exchange) {
    use_fake(std::to_string(exchange.rank()));
    if (exchange.rank() == 1) set("TUTTI_NCCL_FALLBACK", fallback_of_rank_1);
    const ncclUniqueId id = common_id(exchange);
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, 2, id, exchange.rank()), ncclInvalidUsage);
    EXPECT_EQ(comm, nullptr);
    EXPECT_NE(last_sentence().find("ranks 0 and 1 are on different hosts"), std::string::npos);
    EXPECT_NE(last_sentence().find("says rank 1: " + part), std::string::npos) << last_sentence();
    await_all(exchange);  // the id's maker answers until then
  });
}

TEST(NcclFallback, ThatIsOffIsARefusal) {
  expect_refusal("off", "TUTTI_NCCL_FALLBACK is 'off'");
}

TEST(NcclFallback, ThatIsNotFoundIsARefusal) {
  expect_refusal("/nowhere/libnccl.so.2", "/nowhere/libnccl.so.2 cannot be loaded");
  expect_refusal("auto", "virtual devices have no NCCL");
}

TEST(NcclFallback, IsNeverTheLibraryItself) {
  expect_refusal(std::filesystem::read_symlink("/proc/self/exe").string(),
                 std::filesystem::read_symlink("/proc/self/exe").string() + " is tutti's own library");
}

TEST(NcclFallback, ThatFailsIsARefusal) {
  expect_all_right(2, [](Exchange& exchange) {
    use_fake(std::to_string(exchange.rank()));
    set("FAKE_NCCL_FAIL", "ncclGetUniqueId");
    const ncclUniqueId id = common_id(exchange);
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, 2, id, exchange.rank()), ncclSystemError);
    EXPECT_NE(last_sentence().find("says rank 0: ncclGetUniqueId: NCCL: a fake error"), std::string::npos)
        << last_sentence();
    await_all(exchange);  // the id's maker answers until then
  });
}

TEST(NcclFallback, OneRanksConfigurationDecidesForAll) {
  expect_all_right(2, [](Exchange& exchange) {
    use_fake("here");
    const ncclUniqueId id = common_id(exchange);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (exchange.rank() == 1) config.numRmaSig = 4;
    ncclComm_t comm = nullptr;
    TUTTI_ASSERT_SUCCESS(ncclCommInitRankConfig(&comm, 2, id, exchange.rank(), &config));
    EXPECT_EQ(all_reduced(comm, {1}), (Floats{2}));
    EXPECT_EQ(fake_calls("ncclAllReduce"), 1);
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

TEST(NcclFallback, CarriesRanksOfAThreadThatDoNotFollowOneAnother) {
  expect_all_right(1, [](Exchange&) {
    use_fake("here");
    boot("island", 3);
    ncclUniqueId id{};
    TUTTI_ASSERT_SUCCESS(ncclGetUniqueId(&id));
    std::array<ncclComm_t, 3> comms{};
    const auto make = [&](std::initializer_list<int> ranks) {
      TUTTI_EXPECT_SUCCESS(ncclGroupStart());
      for (const int rank : ranks) {
        set_device(rank);
        TUTTI_EXPECT_SUCCESS(ncclCommInitRank(&comms[static_cast<std::size_t>(rank)], 3, id, rank));
      }
      TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    };
    std::thread other([&] { make({1}); });
    make({0, 2});
    other.join();
    EXPECT_EQ(fake_calls("ncclGetUniqueId"), 1);
    std::array<float, 3> values{1, 2, 3};
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    for (std::size_t i = 0; i < 3; ++i)
      TUTTI_EXPECT_SUCCESS(ncclAllReduce(&values[i], &values[i], 1, ncclFloat, ncclSum, comms[i], nullptr));
    TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    EXPECT_EQ(values, (std::array<float, 3>{6, 6, 6}));
    for (const ncclComm_t comm : comms) TUTTI_EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}

TEST(NcclFallback, ThatIsAlwaysUsedCarriesOneProcessToo) {
  expect_all_right(1, [](Exchange&) {
    use_fake("here");
    set("TUTTI_NCCL_FALLBACK", "always");
    set("TUTTI_NCCL_LIBRARY", TUTTI_FAKE_NCCL);
    boot("island", 2);
    std::array<ncclComm_t, 2> comms{};
    TUTTI_ASSERT_SUCCESS(ncclCommInitAll(comms.data(), 2, nullptr));
    std::array<float, 2> values{1, 2};
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    for (std::size_t i = 0; i < 2; ++i)
      TUTTI_EXPECT_SUCCESS(ncclAllReduce(&values[i], &values[i], 1, ncclFloat, ncclSum, comms[i], nullptr));
    TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    EXPECT_EQ(values, (std::array<float, 2>{3, 3}));
    int device = -1;
    TUTTI_EXPECT_SUCCESS(ncclCommCuDevice(comms[1], &device));
    EXPECT_EQ(device, 1);
    TUTTI_EXPECT_SUCCESS(ncclGroupStart());
    for (std::size_t i = 0; i < 2; ++i)
      TUTTI_EXPECT_SUCCESS(ncclAllReduce(&values[i], &values[i], 1, ncclFloat, ncclSum, comms[i], nullptr));
    for (const ncclComm_t comm : comms) TUTTI_EXPECT_SUCCESS(ncclCommAbort(comm));
    TUTTI_EXPECT_SUCCESS(ncclGroupEnd());
    EXPECT_EQ(fake_calls("ncclAllReduce"), 2) << "an abort drops the calls of the group";
    EXPECT_EQ(fake_calls("ncclCommInitAll"), 1);

    ncclUniqueId id{};
    ncclComm_t alone = nullptr;
    TUTTI_ASSERT_SUCCESS(ncclGetUniqueId(&id));
    TUTTI_ASSERT_SUCCESS(ncclCommInitRank(&alone, 1, id, 0));
    EXPECT_EQ(all_reduced(alone, {5}), (Floats{5}));
    TUTTI_EXPECT_SUCCESS(ncclCommDestroy(alone));
    EXPECT_EQ(fake_calls("ncclCommDestroy"), 1);
  });
}

}  // namespace
}  // namespace tutti::test
