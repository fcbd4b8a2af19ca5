// SPDX-License-Identifier: Apache-2.0
#include "perf/options/parsed_options.hpp"
#include "perf/options/usage_errors.hpp"

#include <initializer_list>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

struct Mistake {
  std::initializer_list<const char*> words;
  const char* mentions;
};

TEST(PerfOptions, WhatNcclTestsHasBesidesIsRefusedWithWhatToUse) {
  const Mistake mistakes[] = {
      {{"all_reduce", "-t", "4"}, "-t,--nthreads of nccl-tests is no option here: "},
      {{"all_reduce", "--nthreads=4"}, "their number is -g"},
      {{"all_reduce", "--parallel_init", "1"}, "leave it out"},
      {{"all_reduce", "-z1"}, "p50"},
      {{"all_reduce", "--blocking", "1"}, "p50"},
      {{"all_reduce", "--stream_null", "1"}, "stream"},
      {{"all_reduce", "--report_cputime", "1"}, "p50"},
      {{"all_reduce", "-D", "1"}, "--peer nccl"},
  };
  for (const auto& [words, mentions] : mistakes) {
    const std::string message = usage_error_of([&] { static_cast<void>(parsed(words)); });
    EXPECT_NE(message.find(mentions), std::string::npos) << mentions << " is not in: " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(PerfOptions, WhatRanksDoNotHaveIsRefused) {
  const Mistake mistakes[] = {
      {{"sendrecv", "--results", "new"}, "sendrecv returns no new tensors"},
      {{"explain", "sendrecv", "1M"}, "sendrecv"},
      {{"broadcast", "--results", "new", "--peer", "mpi"}, "--results new and --peer"},
      {{"broadcast", "--peer", "mpi", "--persistent"}, "--peer mpi makes plain calls"},
      {{"all_reduce_add", "--dim", "1"}, "--dim"},
      {{"all_reduce_add", "--tensors", "resnet50"}, "--tensors"},
      {{"hypercube"}, "'hypercube' is not an operation: expected broadcast, "},
  };
  for (const auto& [words, mentions] : mistakes) {
    const std::string message = usage_error_of([&] { static_cast<void>(parsed(words, Mode::ranks)); });
    EXPECT_NE(message.find(mentions), std::string::npos) << mentions << " is not in: " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(PerfOptions, MistakesAreOneLineThatNamesThem) {
  const Mistake mistakes[] = {
      {{}, "missing"},
      {{"explain", "all_to_all_unequal", "1M"},
       "parts of unequal lengths, expected equal parts, as in all_to_all"},
      {{"hypercube"}, "'hypercube' is not an operation: expected broadcast, "},
      {{"exlpain", "broadcast", "1M"}, "sendrecv, all, topo, explain or tensors"},
      {{"broadcast", "64M"}, "unexpected '64M' after 'broadcast' (sizes are given with -b and -e)"},
      {{"broadcast", "gather", "topo"}, "unexpected 'topo' after 'gather'"},
      {{"topo", "broadcast"}, "unexpected 'broadcast' after 'topo'"},
      {{"tensors", "resnet50", "1M"}, "unexpected '1M' after 'resnet50'"},
      {{"broadcast", "--frobnicate"}, "'--frobnicate' is not an option: expected one of those that -h lists"},
      {{"broadcast", "-b"}, "-b,--minbytes: 1 required SIZE missing"},
      {{"broadcast", "-b", ""}, "-b,--minbytes: expected a value, got an empty one"},
      {{"broadcast", "-b", "12Q"}, "-b: '12Q'"},
      {{"broadcast", "-b", "2M", "-e", "1M"}, "-e"},
      {{"broadcast", "-f", "1"}, "-f"},
      {{"broadcast", "-i", "0"}, "-i: '0' is not valid: expected 1 byte or more"},
      {{"broadcast", "-i", "8", "-f", "2"}, "-i 8 and -f 2 exclude each other: expected one of them"},
      {{"broadcast", "-G", "20", "-n", "5"}, "-G 20 and -n 5 exclude each other: "},
      {{"broadcast", "-n", "0"}, "-n: '0'"},
      {{"broadcast", "-n", "many"}, "-n: 'many'"},
      {{"broadcast", "-w", "-1"}, "-w"},
      {{"broadcast", "-c", "yes"}, "-c: 'yes'"},
      {{"broadcast", "-g", "0"}, "-g: '0'"},
      {{"broadcast", "-r", "x"}, "-r: 'x'"},
      {{"broadcast", "-r", "-2"}, "-r: '-2'"},
      {{"broadcast", "-d", "quaternion"}, "-d: 'quaternion' is not an element type: expected float16, "},
      {{"broadcast", "-o", "mean"},
       "-o: 'mean' is not valid: expected sum, avg, premul_sum (or mulsum), min, "},
      {{"all_reduce", "-d", "complex64", "-o", "absmax"},
       "-o absmax: expected a reduction that complex64 supports"},
      {{"all_reduce", "-o", "band"}, "-o band: expected a reduction that float32 supports"},
      {{"all_reduce", "-d", "bool", "-o", "avg"}, "-o avg: expected a reduction that bool supports"},
      {{"broadcast", "-G", "x"}, "-G: 'x'"},
      {{"broadcast", "--dim", "1"}, "--dim"},
      {{"scatter", "--dim", "2"}, "--dim: '2'"},
      {{"broadcast", "--tensors", "resnet50"}, "--tensors"},
      {{"broadcast_coalesced", "--tensors", "/no/such/list"}, "/no/such/list"},
      {{"broadcast", "--transport", "pigeon"},
       "--transport: 'pigeon' is not valid: expected auto, p2p, nccl or staged"},
      {{"broadcast", "--multiprocessors", "-1"}, "--multiprocessors: '-1'"},
      {{"all_reduce", "--multiprocessors", "0"},
       "--multiprocessors 0: operations of communicators need kernels"},
      {{"all_reduce", "all_gather", "--multiprocessors", "0"}, "expected at least 1"},
      {{"broadcast", "--backend", "rocm"}, "--backend: 'rocm'"},
      {{"broadcast", "--backend", "cuda", "--devices", "4"}, "--devices"},
      {{"broadcast", "--devices", "0"}, "--devices: '0'"},
      {{"broadcast", "--determinism", "maybe"}, "--determinism: 'maybe'"},
      {{"broadcast", "--peer", "mpi"}, "--peer mpi compares collectives between processes"},
      {{"broadcast", "--peer", "gloo"}, "--peer: 'gloo'"},
      {{"broadcast", "--peer", "nccl", "-R", "3"}, "-R: '3' is not valid: expected a whole number, 0 to 2"},
      {{"broadcast", "-R", "1"}, "expected --peer nccl"},
      {{"sendrecv", "--persistent"}, "sendrecv"},
      {{"sendrecv", "--results", "new"}, "sendrecv"},
      {{"broadcast", "--results", "old"}, "--results: 'old'"},
      {{"broadcast", "--results", "new", "--persistent"}, "--persistent"},
      {{"broadcast", "--results", "new", "--peer", "nccl"}, "--peer"},
      {{"broadcast_coalesced", "--tensors", "/"}, "--tensors: '/'"},
      {{"explain"}, "which operation"},
      {{"explain", "broadcast"}, "which size"},
      {{"explain", "barrier"}, "explain: 'barrier' moves no bytes, expected an"},
      {{"explain", "barrier", "1M"}, "explain: 'barrier' moves no bytes"},
      {{"explain", "all", "1M"}, "'all'"},
      {{"explain", "broadcast", "big"}, "'big'"},
  };
  for (const Mistake& mistake : mistakes) {
    const std::string message = usage_error_of([&] { static_cast<void>(parsed(mistake.words)); });
    EXPECT_NE(message.find(mistake.mentions), std::string::npos)
        << mistake.mentions << " is not in: " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(PerfOptions, WhatMeasuresNothingHasNoUseOfWhatMeasurementsHave) {
  for (const char* const option : {"-b",
                                   "-e",
                                   "-i",
                                   "-f",
                                   "-n",
                                   "-w",
                                   "-m",
                                   "-N",
                                   "-T",
                                   "-u",
                                   "-a",
                                   "-I",
                                   "-K",
                                   "-S",
                                   "-G",
                                   "--peer",
                                   "--repetitions",
                                   "--results",
                                   "-c",
                                   "-R"}) {
    for (const bool explains : {true, false}) {
      const std::string message = usage_error_of([&] {
        static_cast<void>(explains ? parsed({"explain", "broadcast", "1M", option, "1"})
                                   : parsed({"topo", option, "1"}));
      });
      EXPECT_EQ(message, (explains ? "explain: expected no " : "topo: expected no ") + std::string(option) +
                             ": nothing is measured");
    }
  }
  EXPECT_EQ(usage_error_of([] {
              static_cast<void>(parsed({"topo", "--persistent"}));
            }),
            "topo: expected no --persistent: nothing is measured");
  EXPECT_EQ(usage_error_of([] {
              static_cast<void>(parsed({"topo", "--iters=3"}));
            }),
            "topo: expected no -n: nothing is measured");
  EXPECT_EQ(usage_error_of([] {
              static_cast<void>(parsed({"topo", "-r", "1"}));
            }),
            "topo: expected no -r: nothing is measured");
  EXPECT_EQ(parsed({"topo", "-g", "2", "--groups", "2", "--transport", "p2p"}, Mode::ranks).groups, 2);
  EXPECT_EQ(parsed({"explain", "scatter", "1M", "-d", "half", "-r", "1", "--dim", "1"}).root, 1);
}

TEST(PerfOptions, AReductionOrARootThatNoneOfTheOperationsHasIsRefused) {
  const Mistake mistakes[] = {
      {{"broadcast", "-o", "max"}, "-o max: broadcast does not reduce, expected an operation that does"},
      {{"broadcast", "gather", "-o", "mulsum"}, "-o mulsum: broadcast does not reduce"},
      {{"explain", "gather", "1M", "-o", "max"}, "-o max: gather does not reduce"},
      {{"all_gather", "-r", "3"}, "-r 3: all_gather has no root, expected an operation that has one"},
      {{"all_reduce", "all_gather", "-r", "1"}, "-r 1: all_reduce_add has no root"},
      {{"sendrecv", "-r", "1"}, "-r 1: sendrecv has no root"},
  };
  for (const auto& [words, mentions] : mistakes) {
    const std::string message = usage_error_of([&] { static_cast<void>(parsed(words)); });
    EXPECT_NE(message.find(mentions), std::string::npos) << mentions << " is not in: " << message;
  }
  for (const std::initializer_list<const char*> words :
       {std::initializer_list<const char*>{"all", "-r", "3", "-o", "max"},
        {"all_gather", "broadcast", "-r", "3"},
        {"broadcast", "reduce", "-o", "max"},
        {"all_gather", "-r", "all", "-o", "all"},
        {"all_gather", "-r", "0", "-o", "sum"}})
    EXPECT_FALSE(parsed(words).operations.empty());
  // nccl-tests takes them of each operation.
  EXPECT_EQ(parsed({"all_reduce_perf", "-r", "3"}).root, 3);
  EXPECT_EQ(parsed({"all_gather_perf", "-o", "max", "-r", "3"}).reductions, std::vector{ReduceKind::max});
}

}  // namespace
}  // namespace tutti::perf
