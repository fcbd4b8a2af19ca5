// SPDX-License-Identifier: Apache-2.0
#include "perf/options/parsed_options.hpp"
#include "perf/options/usage_errors.hpp"
#include "support/environment.hpp"
#include "support/mutations.hpp"
#include "tutti/version.hpp"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

TEST(PerfOptions, DefaultsMeasureOneOperationCheckedAndEager) {
  const Options options = parsed({"broadcast"});
  EXPECT_EQ(options.command, Command::measure);
  ASSERT_EQ(options.operations.size(), 1U);
  EXPECT_EQ(options.operations[0]->name(), "broadcast");
  EXPECT_EQ(options.sizes.begin, 8U);
  EXPECT_EQ(options.sizes.end, std::size_t{64} << 20U);
  EXPECT_EQ(options.dtypes, std::vector{DType::float32});
  EXPECT_EQ(options.root, 0);
  EXPECT_TRUE(options.check);
  EXPECT_EQ(options.launch, LaunchForm::eager);
  EXPECT_EQ(options.peer, PeerChoice::none);
}

TEST(PerfOptions, TakeReductions) {
  EXPECT_EQ(parsed({"all_reduce"}).reductions, std::vector{ReduceKind::sum});
  EXPECT_EQ(parsed({"all_reduce", "-o", "avg"}).reductions, std::vector{ReduceKind::avg});
  EXPECT_EQ(parsed({"all_reduce", "-o", "premul_sum"}).reductions, std::vector{ReduceKind::premul_sum});
  EXPECT_EQ(parsed({"all_reduce_perf", "-o", "mulsum"}).reductions, std::vector{ReduceKind::premul_sum});
  EXPECT_EQ(parsed({"all_reduce", "--op", "all"}).reductions.size(), all_reduce_kinds.size());
}

/// Checks what the options of nccl-tests ask for in both of their forms.
void expect_all_of(const Options& options) {
  EXPECT_EQ(options.sizes.begin, 1024U);
  EXPECT_EQ(options.sizes.end, std::size_t{4} << 20U);
  EXPECT_EQ(options.sizes.factor, 4U);
  EXPECT_EQ(options.devices_used, 4);
  EXPECT_EQ(options.timing.iterations, 30);
  EXPECT_EQ(options.timing.warmup, 7);
  EXPECT_EQ(options.dtypes, std::vector{DType::float16});
  EXPECT_EQ(options.root, 2);
  EXPECT_FALSE(options.check);
  EXPECT_EQ(options.json_file, "out.json");
}

TEST(PerfOptions, TakeTheLettersOfNcclTests) {
  expect_all_of(parsed({"reduce_add", "-b", "1K",   "-e", "4M",  "-f", "4", "-g", "4", "-n", "30",      "-w",
                        "7",          "-d", "half", "-o", "sum", "-r", "2", "-c", "0", "-J", "out.json"}));
}

TEST(PerfOptions, TakeTheLongFlagsOfNcclTests) {
  expect_all_of(parsed({"reduce_add",
                        "--minbytes",
                        "1K",
                        "--maxbytes=4M",
                        "--stepfactor",
                        "4",
                        "--ngpus",
                        "4",
                        "--iters",
                        "30",
                        "--warmup_iters",
                        "7",
                        "--datatype",
                        "half",
                        "--op",
                        "sum",
                        "--root",
                        "2",
                        "--check",
                        "0",
                        "--output_file",
                        "out.json"}));
  EXPECT_EQ(parsed({"gather", "--cudagraph", "20"}).launch, LaunchForm::persistent);
  EXPECT_EQ(parsed({"gather", "--stepbytes", "1K"}).sizes.increment, 1024U);
}

TEST(PerfOptions, KnowWhatOtherLibrariesCallTheOperations) {
  const std::pair<const char*, const char*> names[] = {
      {"all_reduce", "all_reduce_add"},
      {"allreduce", "all_reduce_add"},
      {"all_reduce_perf", "all_reduce_add"},
      {"AllReduce", "all_reduce_add"},
      {"reduce", "reduce_add"},
      {"reduce_perf", "reduce_add"},
      {"bcast", "broadcast"},
      {"allgather", "all_gather"},
      {"all-gather", "all_gather"},
      {"alltoall_perf", "all_to_all"},
      {"reduce_scatter", "reduce_scatter_add"},
      {"ReduceScatter", "reduce_scatter_add"},
      {"all_reduce_coalesced", "all_reduce_add_coalesced"},
      {"reduce_scatter_add_coalesced", "reduce_scatter_coalesced"},
      {"scatter_perf", "scatter"},
      {"broadcast", "broadcast"},
  };
  for (const auto& [typed, name] : names) {
    for (const Mode mode : {Mode::single_process, Mode::ranks}) {
      EXPECT_EQ(parsed({typed}, mode).operations.at(0)->name(), name) << typed;
      EXPECT_EQ(parsed({"gather", typed}, mode).operations.at(1)->name(), name) << typed;
      EXPECT_EQ(parsed({"explain", typed, "1M"}, mode).operations.at(0)->name(), name) << typed;
    }
  }
  for (const auto& [typed, name] :
       {std::pair{"Alltoallv", "all_to_all_unequal"}, std::pair{"allgatherv", "all_gather_unequal"},
        std::pair{"reduce_scatterv", "reduce_scatter_add_unequal"}}) {
    EXPECT_EQ(parsed({typed}).operations.at(0)->name(), std::string_view(name)) << typed;
  }
  EXPECT_EQ(parsed({"sendrecv_perf"}).operations.at(0)->name(), "sendrecv");
  EXPECT_EQ(parsed({"reduce", "reduce_add"}).operations.size(), 1U);
}

TEST(PerfOptions, KnowWhatOtherLibrariesCallTheElementTypes) {
  const std::pair<const char*, DType> types[] = {
      {"fp16", DType::float16},  {"half", DType::float16},        {"FP32", DType::float32},
      {"float", DType::float32}, {"fp64", DType::float64},        {"double", DType::float64},
      {"bf16", DType::bfloat16}, {"Float32", DType::float32},     {"int", DType::int32},
      {"long", DType::int64},    {"fp8e4m3", DType::float8_e4m3}, {"f8e5m2", DType::float8_e5m2},
      {"uint32", DType::uint32}, {"u64", DType::uint64},          {"ushort", DType::uint16},
  };
  for (const auto& [typed, dtype] : types)
    EXPECT_EQ(parsed({"broadcast", "-d", typed}).dtypes, std::vector{dtype}) << typed;
}

TEST(PerfOptions, ThePeerNcclIsMeasuredInEachModeOrInOne) {
  EXPECT_EQ(parsed({"all", "--peer", "nccl"}).peer, PeerChoice::nccl);
  EXPECT_EQ(parsed({"all", "--peer", "nccl"}).peer_mode, std::nullopt);
  EXPECT_EQ(parsed({"all", "--peer", "nccl", "-R", "2"}).peer_mode, 2);
  EXPECT_EQ(parsed({"all", "--peer", "nccl", "--local_register", "0"}).peer_mode, 0);
}

TEST(PerfOptions, TheLastOfSeveralCounts) {
  const Options options = parsed({"broadcast", "-b", "1K", "--persistent", "-b", "2K", "--minbytes", "4K",
                                  "-J", "a", "--persistent", "-J", "b"});
  EXPECT_EQ(options.sizes.begin, 4096U);
  EXPECT_EQ(options.json_file, "b");
  EXPECT_EQ(options.launch, LaunchForm::persistent);
}

TEST(PerfOptions, AllMeansEverything) {
  const Options options = parsed({"all", "-d", "all", "-r", "all", "--dim", "all"});
  EXPECT_EQ(options.operations.size(), 19U);
  EXPECT_EQ(options.dtypes.size(), all_dtypes.size());
  EXPECT_EQ(options.root, std::nullopt);
  EXPECT_EQ(options.dims, (std::vector{0, 1}));
  EXPECT_EQ(parsed({"broadcast", "-r", "-1"}).root, std::nullopt);
}

TEST(PerfOptions, GraphLaunchesAreThePersistentForm) {
  const Options options = parsed({"gather", "-G", "20"});
  EXPECT_EQ(options.launch, LaunchForm::persistent);
  EXPECT_EQ(options.timing.iterations, 20);
  EXPECT_EQ(parsed({"gather", "-G", "0"}).launch, LaunchForm::eager);
  EXPECT_TRUE(options.replays);
  EXPECT_EQ(parsed({"gather", "--persistent"}).launch, LaunchForm::persistent);
  EXPECT_FALSE(parsed({"gather", "--persistent"}).replays);
}

TEST(PerfOptions, ResultsAreGivenOrReturned) {
  EXPECT_EQ(parsed({"gather"}).results, ResultForm::given);
  EXPECT_EQ(parsed({"gather", "--results", "out"}).results, ResultForm::given);
  EXPECT_EQ(parsed({"all", "--results", "new"}).results, ResultForm::returned);
}

TEST(PerfOptions, NoMultiprocessorsAreForWhatCopyEnginesCanDo) {
  EXPECT_EQ(parsed({"broadcast", "all_gather", "--multiprocessors", "0"}).collective.multiprocessors, 0);
  EXPECT_EQ(parsed({"topo", "--multiprocessors", "0"}).collective.multiprocessors, 0);
}

TEST(PerfOptions, VirtualDevicesImplyTheHostBackend) {
  EXPECT_EQ(parsed({"broadcast", "--devices", "4"}).backend, "host");
  EXPECT_EQ(parsed({"broadcast", "--topology", "two-islands"}).backend, "host");
  EXPECT_EQ(parsed({"broadcast"}).backend, "");
}

TEST(PerfOptions, ALargeSmallestSizeMovesTheLargest) {
  EXPECT_EQ(parsed({"broadcast", "-b", "256M"}).sizes.end, std::size_t{256} << 20U);
}

TEST(PerfOptions, OtherCommands) {
  EXPECT_EQ(parsed({"topo"}).command, Command::topo);
  EXPECT_EQ(parsed({"-h"}).command, Command::help);
  EXPECT_NE(parsed({"-h"}).help.find("Exit status"), std::string::npos);
  EXPECT_EQ(parsed({"--version"}).help, "tutti-perf " + std::string(version()) + "\n");
  const Options options = parsed({"explain", "scatter", "64M", "--dim", "1"});
  EXPECT_EQ(options.command, Command::explain);
  EXPECT_EQ(options.explain_bytes, std::size_t{64} << 20U);
  EXPECT_EQ(options.operations.at(0)->name(), "scatter");
  EXPECT_EQ(parsed({"explain", "all_gather", "1M"}).operations.at(0)->name(), "all_gather");
  EXPECT_EQ(parsed({"explain", "broadcast", "1M"}, Mode::ranks).command, Command::explain);
}

TEST(PerfOptions, OneProcessHasAllThatACommunicatorDoesToo) {
  for (const char* name :
       {"all_reduce_add", "all_reduce_add_coalesced", "all_gather", "reduce_scatter_add", "barrier"}) {
    EXPECT_TRUE(parsed({name}).operations.at(0)->needs_communicator()) << name;
  }
  for (const char* name : {"broadcast", "reduce_add_coalesced", "gather"}) {
    EXPECT_FALSE(parsed({name}).operations.at(0)->needs_communicator()) << name;
    EXPECT_TRUE(parsed({name}, Mode::ranks).operations.at(0)->needs_communicator()) << name;
  }
}

TEST(PerfOptions, RanksHaveTheCollectivesOfACommunicator) {
  EXPECT_EQ(parsed({"all"}, Mode::ranks).operations.size(), 19U);
  for (const char* name : {"all_reduce_add", "all_reduce_add_coalesced", "all_gather", "reduce_scatter_add",
                           "sendrecv", "barrier"}) {
    EXPECT_EQ(parsed({name}, Mode::ranks).operations.at(0)->name(), name);
  }
  EXPECT_EQ(parsed({"all", "--peer", "mpi"}, Mode::ranks).peer, PeerChoice::mpi);
  EXPECT_EQ(parsed({"topo"}, Mode::ranks).command, Command::topo);
  EXPECT_EQ(parsed({"gather", "-G", "20"}, Mode::ranks).launch, LaunchForm::persistent);
  EXPECT_EQ(parsed({"gather", "-r", "all", "--dim", "all", "-g", "2"}, Mode::ranks).devices_used, 2);
}

TEST(PerfOptions, SeveralOperationsAreMeasuredInTheirOrderAndOnce) {
  std::vector<std::string> names;
  for (const Operation* operation : parsed({"gather", "broadcast", "gather"}).operations)
    names.emplace_back(operation->name());
  EXPECT_EQ(names, (std::vector<std::string>{"gather", "broadcast"}));
  EXPECT_EQ(parsed({"scatter", "all"}).operations.size(), parsed({"all"}).operations.size());
  EXPECT_EQ(parsed({"all"}).operations.size(), 19U);
}

TEST(PerfOptions, TakeOrRefuseWhateverIsTyped) {
  const std::vector<std::vector<std::string>> originals{
      {"broadcast", "-b", "1K", "-e", "64M", "-f", "4", "-g", "2", "-c", "1", "-n", "20", "-w", "5"},
      {"scatter", "gather", "-b8", "--dim=all", "-d", "all", "-r", "-1", "--transport", "staged", "--devices",
       "4"},
      {"broadcast_coalesced", "--tensors", "1000x1K", "--persistent", "-J", "out.json", "-m", "7"},
      {"all", "-i", "4096", "-e", "64K", "-G", "20", "--topology", "two-islands", "--determinism", "bitwise"},
      {"explain", "reduce_add", "16M", "--root", "1", "-d", "half", "--transport", "p2p", "--backend",
       "host"}};
  const auto values =
      test::with_strange_numbers({"=", "-", "--", "x", "K", "G", "all", "-b", "--peer", "mpi", "resnet50"});
  test::Random random(1);
  int taken = 0;
  int refused = 0;
  const std::int64_t lines = test::scaled(6'000);
  for (std::int64_t i = 0; i < lines; ++i) {
    std::vector<std::string> typed = random.pick(originals);
    for (std::int64_t change = random.between(1, 3); change > 0; --change) {
      const auto word = static_cast<std::ptrdiff_t>(random.next() % typed.size());
      std::string replaced = test::mutated(typed[static_cast<std::size_t>(word)], random, values);
      std::ranges::replace(replaced, '\n', ' ');
      switch (random.between(0, 3)) {
        case 0:
          typed.erase(typed.begin() + word);
          break;
        case 1:
          typed.insert(typed.begin() + word, replaced);
          break;
        default:
          typed[static_cast<std::size_t>(word)] = replaced;
      }
      if (typed.empty()) typed.emplace_back();
    }
    std::vector<const char*> argv{"tutti-perf"};
    std::string trace;
    for (const std::string& word : typed) {
      argv.push_back(word.c_str());
      trace += word + ' ';
    }
    SCOPED_TRACE(trace);
    const Mode mode = random.one_in(2) ? Mode::single_process : Mode::ranks;
    try {
      const Options options = parse_options(static_cast<int>(argv.size()), argv.data(), mode);
      EXPECT_FALSE(options.command == Command::measure && options.operations.empty());
      EXPECT_LE(options.sizes.begin, options.sizes.end);
      ++taken;
    } catch (const UsageError& error) {
      const std::string message = error.what();
      EXPECT_FALSE(message.empty());
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      ++refused;
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(taken, lines / 40);
  EXPECT_GT(refused, lines / 40);
}

}  // namespace
}  // namespace tutti::perf
