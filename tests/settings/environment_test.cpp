// SPDX-License-Identifier: Apache-2.0
#include "settings/environment.hpp"

#include "base/quoted_text.hpp"
#include "support/errors.hpp"
#include "support/mutations.hpp"
#include "tutti/error.hpp"

#include <chrono>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::refuses;
using Variables = std::map<std::string, std::string>;

Environment parse(const Variables& variables) {
  return Environment::parse([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

testing::AssertionResult refused(const std::string& variable, const std::string& value,
                                 const std::string& expected) {
  return refuses(
      [&] {
        static_cast<void>(parse({{variable, value}}));
      },
      ErrorCode::invalid_argument, {variable, '"' + value + '"', "expected " + expected});
}

TEST(Environment, HasDefaults) {
  for (const Environment& environment :
       {parse({}), parse({{"TUTTI_BACKEND", ""}, {"TUTTI_VIRTUAL_DEVICES", ""}})}) {
    EXPECT_EQ(environment.backend, BackendChoice::automatic);
    EXPECT_EQ(environment.transport, TransportKind::automatic);
    EXPECT_EQ(environment.signals, SignalChoice::automatic);
    EXPECT_FALSE(environment.launch_threads.has_value());
    EXPECT_EQ(environment.log, LogLevel::warn);
    EXPECT_FALSE(environment.launch_blocking);
    EXPECT_TRUE(environment.direct);
    EXPECT_FALSE(environment.opens_foreign_memory);
    EXPECT_FALSE(environment.virtual_devices.has_value());
    EXPECT_FALSE(environment.virtual_topology.has_value());
    EXPECT_FALSE(environment.virtual_memory.has_value());
    EXPECT_FALSE(environment.virtual_seed.has_value());
    EXPECT_FALSE(environment.nccl_library.has_value());
    EXPECT_FALSE(environment.host_id.has_value());
    EXPECT_FALSE(environment.patience.has_value());
    EXPECT_EQ(environment.allocators.max_split_bytes, AllocatorSettings::no_limit);
    EXPECT_EQ(environment.allocators.garbage_collection_threshold, 0);
    EXPECT_FALSE(environment.allocators.has_expandable_segments);
  }
}

TEST(Environment, TakesEveryVariable) {
  const Environment environment =
      parse({{"TUTTI_BACKEND", "host"},
             {"TUTTI_VIRTUAL_DEVICES", "3"},
             {"TUTTI_VIRTUAL_TOPOLOGY", "two-islands"},
             {"TUTTI_VIRTUAL_MEMORY", "512M"},
             {"TUTTI_VIRTUAL_SEED", "18446744073709551615"},
             {"TUTTI_TRANSPORT", "staged"},
             {"TUTTI_NCCL_LIBRARY", "/opt/libnccl.so"},
             {"TUTTI_HOST_ID", "node 7"},
             {"TUTTI_PATIENCE", "3600"},
             {"TUTTI_SIGNALS", "on"},
             {"TUTTI_ROUNDS", "off"},
             {"TUTTI_LAUNCH_THREADS", "0"},
             {"TUTTI_ALLOC_CONF",
              "max_split_size_mb:200,garbage_collection_threshold:0.8,expandable_segments:True"},
             {"TUTTI_LAUNCH_BLOCKING", "1"},
             {"TUTTI_DIRECT", "0"},
             {"TUTTI_OPEN_FOREIGN_MEMORY", "1"},
             {"TUTTI_JIT_CXX", "/opt/bin/c++"},
             {"TUTTI_LOG", "off"},
             {"TUTTI_TRACE", "/tmp/trace.json"},
             {"TUTTI_FLIGHT_RECORD", "/tmp/record"}});
  EXPECT_EQ(environment.backend, BackendChoice::host);
  EXPECT_TRUE(environment.launch_blocking);
  EXPECT_FALSE(environment.direct);
  EXPECT_TRUE(environment.opens_foreign_memory);
  EXPECT_EQ(environment.jit_compiler, "/opt/bin/c++");
  EXPECT_EQ(environment.virtual_devices, 3);
  EXPECT_EQ(environment.virtual_topology, "two-islands");
  EXPECT_EQ(environment.virtual_memory, std::size_t{512} << 20);
  EXPECT_EQ(environment.virtual_seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(environment.transport, TransportKind::staged);
  EXPECT_EQ(environment.nccl_library, "/opt/libnccl.so");
  EXPECT_EQ(environment.host_id, "node 7");
  EXPECT_EQ(environment.patience, std::chrono::hours(1));
  EXPECT_EQ(environment.signals, SignalChoice::on);
  EXPECT_EQ(environment.rounds, RoundsChoice::off);
  EXPECT_EQ(environment.launch_threads, 0);
  EXPECT_EQ(environment.allocators.max_split_bytes, std::size_t{200} << 20);
  EXPECT_EQ(environment.allocators.garbage_collection_threshold, 0.8);
  EXPECT_TRUE(environment.allocators.has_expandable_segments);
  EXPECT_EQ(environment.log, LogLevel::off);
  EXPECT_EQ(environment.trace, "/tmp/trace.json");
  EXPECT_EQ(environment.flight_record, "/tmp/record");
}

TEST(Environment, NamesWhatIsWrongInTheAllocatorsSettings) {
  for (const char* value : {"max_split_size_mb:20", "max_split_size_mb:", "max_split_size_mb:99999999999999",
                            "max_split_size_mb:100x"})
    EXPECT_TRUE(refused("TUTTI_ALLOC_CONF", value, "max_split_size_mb to be a number of MiB of 21 or more"));
  for (const char* value : {"garbage_collection_threshold:0", "garbage_collection_threshold:1",
                            "max_split_size_mb:21,garbage_collection_threshold:nan"}) {
    EXPECT_TRUE(
        refused("TUTTI_ALLOC_CONF", value, "garbage_collection_threshold to be a number between 0 and 1"));
  }
  EXPECT_TRUE(
      refused("TUTTI_ALLOC_CONF", "expandable_segments:1", "expandable_segments to be True or False"));
  EXPECT_FALSE(parse({{"TUTTI_ALLOC_CONF", "expandable_segments:False"}}).allocators.has_expandable_segments);
  EXPECT_TRUE(refused("TUTTI_ALLOC_CONF", "max_split_size_mb", "name:value pairs"));
  EXPECT_TRUE(refused("TUTTI_ALLOC_CONF", "max_split_size_mb:21,,", "name:value pairs"));
  EXPECT_TRUE(refuses(
      [] {
        static_cast<void>(parse({{"TUTTI_ALLOC_CONF", "split:1"}}));
      },
      ErrorCode::invalid_argument, {"TUTTI_ALLOC_CONF", "garbage", "not \"split\""}));
}

TEST(Environment, NamesTheVariableItsValueAndWhatWasExpected) {
  EXPECT_TRUE(refused("TUTTI_BACKEND", "gpu", "auto, cuda or host"));
  EXPECT_TRUE(refused("TUTTI_BACKEND", "HOST", "auto, cuda or host"));
  EXPECT_TRUE(refused("TUTTI_VIRTUAL_DEVICES", "0", "a number from 1 to 1024"));
  EXPECT_TRUE(refused("TUTTI_VIRTUAL_DEVICES", "1025", "a number from 1 to 1024"));
  EXPECT_TRUE(refused("TUTTI_VIRTUAL_DEVICES", "eight", "a number from 1 to 1024"));
  EXPECT_TRUE(refused("TUTTI_VIRTUAL_DEVICES", "8 ", "a number from 1 to 1024"));
  EXPECT_TRUE(refused("TUTTI_VIRTUAL_MEMORY", "1T", "a number of bytes"));
  EXPECT_TRUE(refused("TUTTI_VIRTUAL_MEMORY", "0", "a number of bytes"));
  EXPECT_TRUE(refused("TUTTI_VIRTUAL_SEED", "-1", "a number from 0"));
  EXPECT_TRUE(refused("TUTTI_TRANSPORT", "mpi", "auto, p2p, nccl or staged"));
  EXPECT_TRUE(refused("TUTTI_PATIENCE", "0", "a number of seconds from 1"));
  EXPECT_TRUE(refused("TUTTI_PATIENCE", "31536001", "a number of seconds from 1 to 31536000"));
  EXPECT_TRUE(refused("TUTTI_PATIENCE", "10m", "a number of seconds"));
  EXPECT_TRUE(refused("TUTTI_SIGNALS", "yes", "auto, on or off"));
  EXPECT_TRUE(refused("TUTTI_ROUNDS", "1", "auto, on or off"));
  EXPECT_TRUE(refused("TUTTI_LAUNCH_THREADS", "-1", "a number from 0 to 15"));
  EXPECT_TRUE(refused("TUTTI_LAUNCH_THREADS", "16", "a number from 0 to 15"));
  EXPECT_TRUE(refused("TUTTI_LAUNCH_BLOCKING", "yes", "0 or 1"));
  EXPECT_TRUE(refused("TUTTI_DIRECT", "off", "0 or 1"));
  EXPECT_TRUE(refused("TUTTI_OPEN_FOREIGN_MEMORY", "all", "0 or 1"));
  EXPECT_TRUE(refused("TUTTI_LOG", "debug", "off, warn or info"));
}

TEST(Environment, LaunchesBlockByEitherVariable) {
  EXPECT_FALSE(parse({{"TUTTI_LAUNCH_BLOCKING", "0"}}).launch_blocking);
  EXPECT_FALSE(parse({{"TUTTI_LAUNCH_BLOCKING", "0"}, {"CUDA_LAUNCH_BLOCKING", "1"}}).launch_blocking);
  EXPECT_TRUE(parse({{"TUTTI_LAUNCH_BLOCKING", "1"}, {"CUDA_LAUNCH_BLOCKING", "0"}}).launch_blocking);
  EXPECT_TRUE(parse({{"CUDA_LAUNCH_BLOCKING", "2"}}).launch_blocking);
  for (const char* const no : {"0", "", "no"})
    EXPECT_FALSE(parse({{"CUDA_LAUNCH_BLOCKING", no}}).launch_blocking) << no;
}

TEST(Environment, HostsAreToldApartByAllOfTheirName) {
  const std::string longest(511, 'x');
  EXPECT_EQ(parse({{"TUTTI_HOST_ID", longest}}).host_id, longest);
  EXPECT_TRUE(refuses(
      [&] {
        static_cast<void>(parse({{"TUTTI_HOST_ID", longest + "y"}}));
      },
      ErrorCode::invalid_argument, {"TUTTI_HOST_ID", "a name of at most 511 bytes"}));
}

TEST(Environment, MessagesRepeatNoLongValues) {
  std::string endless(100'000, 'x');
  endless.back() = '\n';
  try {
    static_cast<void>(parse({{"TUTTI_BACKEND", endless}}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_LT(std::string_view(error.what()).size(), 400U);
  }
}

TEST(Environment, TakesOrRefusesWhateverItHolds) {
  const std::map<std::string, std::string> originals{
      {"TUTTI_BACKEND", "host"},        {"TUTTI_VIRTUAL_DEVICES", "3"},
      {"TUTTI_VIRTUAL_MEMORY", "512M"}, {"TUTTI_VIRTUAL_SEED", "1234"},
      {"TUTTI_TRANSPORT", "staged"},    {"TUTTI_SIGNALS", "on"},
      {"TUTTI_LAUNCH_THREADS", "7"},    {"TUTTI_LOG", "off"}};
  const auto words = test::with_strange_numbers({"K", "M", "G", " ", "auto", "p2p", "-"});
  test::Random random(1);
  for (const auto& [variable, original] : originals) {
    int taken = 0;
    int refused = 0;
    for (int i = 0; i < 2000; ++i) {
      const std::string value = test::mutated(original, random, words);
      try {
        static_cast<void>(parse({{variable, value}}));
        ++taken;
      } catch (const Error& error) {
        ++refused;
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_TRUE(test::mentions(error.what(), {variable, quoted_text(value, 200), "expected"}));
      }
    }
    EXPECT_GT(taken, 20) << variable;
    EXPECT_GT(refused, 200) << variable;
  }
}

TEST(ParseBytes, TakesSuffixesOfPowersOf1024) {
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes("1000"), 1000U);
  EXPECT_EQ(parse_bytes("2K"), 2048U);
  EXPECT_EQ(parse_bytes("3M"), std::size_t{3} << 20);
  EXPECT_EQ(parse_bytes("4G"), std::size_t{4} << 30);
}

TEST(ParseBytes, RefusesEverythingElse) {
  for (const char* text : {"", "K", "-1", "+1", "1.5G", "1KB", "1 K", " 1", "1k", "0x10",
                           "18446744073709551616", "18014398509481984K"}) {
    EXPECT_FALSE(parse_bytes(text).has_value()) << text;
  }
  EXPECT_TRUE(parse_bytes("18014398509481983K").has_value());
}

}  // namespace
}  // namespace tutti
