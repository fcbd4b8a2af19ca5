// SPDX-License-Identifier: Apache-2.0
#include "parsed_options.hpp"
#include "usage_errors.hpp"

#include <initializer_list>
#include <string>

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
      {{"all_reduce", "-z1"}, "--latency"},
      {{"all_reduce", "--blocking", "1"}, "--latency"},
      {{"all_reduce", "--stream_null", "1"}, "stream"},
      {{"all_reduce", "--report_cputime", "1"}, "--latency"},
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
      {{"broadcst"}, "'broadcst' is not an operation: did you mean broadcast? Expected broadcast, "},
      {{"all_gahter"}, "did you mean all_gather?"},
      {{"explain", "all_to_all_unequal", "1M"},
       "parts of unequal lengths, expected equal ones, as all_to_all"},
      {{"exlpain", "broadcast", "1M"}, "did you mean explain?"},
      {{"hypercube"}, "'hypercube' is not an operation: expected broadcast, "},
      {{"broadcast", "64M"}, "unexpected '64M' after 'broadcast' (sizes are given with -b and -e)"},
      {{"broadcast", "gather", "topo"}, "unexpected 'topo' after 'gather'"},
      {{"topo", "broadcast"}, "unexpected 'broadcast' after 'topo'"},
      {{"tensors", "resnet50", "1M"}, "unexpected '1M' after 'resnet50'"},
      {{"broadcast", "--frobnicate"}, "'--frobnicate' is not an option: expected one of those that -h lists"},
      {{"broadcast", "--minbyte", "8"}, "'--minbyte' is not an option: did you mean --minbytes?"},
      {{"broadcast", "--warmup=3"}, "did you mean --warmup_iters?"},
      {{"broadcast", "-b"}, "-b,--minbytes: 1 required SIZE missing"},
      {{"broadcast", "-b", ""}, "-b,--minbytes: expected a value, got an empty one"},
      {{"broadcast", "-b", "12Q"}, "-b: '12Q'"},
      {{"broadcast", "-b", "2M", "-e", "1M"}, "-e"},
      {{"broadcast", "-f", "1"}, "-f"},
      {{"broadcast", "-i", "0"}, "-i"},
      {{"broadcast", "-i", "8", "-f", "2"}, "exclude"},
      {{"broadcast", "-n", "0"}, "-n: '0'"},
      {{"broadcast", "-n", "many"}, "-n: 'many'"},
      {{"broadcast", "-w", "-1"}, "-w"},
      {{"broadcast", "-c", "yes"}, "-c: 'yes'"},
      {{"broadcast", "-g", "0"}, "-g: '0'"},
      {{"broadcast", "-r", "x"}, "-r: 'x'"},
      {{"broadcast", "-r", "-2"}, "-r: '-2'"},
      {{"broadcast", "-d", "float33"},
       "-d: 'float33' is not an element type: did you mean float32? Expected float16"},
      {{"broadcast", "-d", "flot"}, "-d: 'flot' is not an element type: did you mean float32?"},
      {{"broadcast", "-d", "quaternion"}, "-d: 'quaternion' is not an element type: expected float16, "},
      {{"broadcast", "-d", "uint32"}, "-d: there is no element type uint32: take int32"},
      {{"broadcast", "-o", "mean"}, "-o: 'mean' is not valid: expected sum, avg, premul_sum, min, "},
      {{"all_reduce", "-d", "complex64", "-o", "absmax"}, "-o absmax: elements of complex64 do not have it"},
      {{"all_reduce", "-o", "band"}, "-o band: elements of float32 do not have it"},
      {{"all_reduce", "-d", "bool", "-o", "avg"}, "-o avg: elements of bool do not have it"},
      {{"broadcast", "-G", "x"}, "-G: 'x'"},
      {{"broadcast", "--dim", "1"}, "--dim"},
      {{"scatter", "--dim", "2"}, "--dim: '2'"},
      {{"broadcast", "--tensors", "resnet50"}, "--tensors"},
      {{"broadcast_coalesced", "--tensors", "/no/such/list"}, "/no/such/list"},
      {{"broadcast", "--transport", "pigeon"},
       "--transport: 'pigeon' is not valid: expected auto, p2p, nccl or staged"},
      {{"broadcast", "--multiprocessors", "-1"}, "--multiprocessors: '-1'"},
      {{"all_reduce", "--multiprocessors", "0"}, "--multiprocessors 0"},
      {{"broadcast", "--backend", "rocm"}, "--backend: 'rocm'"},
      {{"broadcast", "--backend", "cuda", "--devices", "4"}, "--devices"},
      {{"broadcast", "--devices", "0"}, "--devices: '0'"},
      {{"broadcast", "--determinism", "maybe"}, "--determinism: 'maybe'"},
      {{"broadcast", "--peer", "mpi"}, "--peer mpi compares collectives between processes"},
      {{"broadcast", "--peer", "gloo"}, "--peer: 'gloo'"},
      {{"broadcast", "--peer", "nccl", "-R", "3"}, "-R: '3' is not valid: expected a whole number, 0 to 2"},
      {{"broadcast", "-R", "1"}, "expected --peer nccl"},
      {{"broadcast", "--cpu", "0,"}, "--cpu: ''"},
      {{"broadcast", "--cpu", "-1"}, "--cpu: '-1'"},
      {{"broadcast", "--inject-corruption", "-c", "0"}, "--inject-corruption"},
      {{"sendrecv", "--persistent"}, "sendrecv"},
      {{"sendrecv", "--results", "new"}, "sendrecv"},
      {{"broadcast", "--results", "old"}, "--results: 'old'"},
      {{"broadcast", "--results", "new", "--persistent"}, "--persistent"},
      {{"broadcast", "--results", "new", "--peer", "nccl"}, "--peer"},
      {{"broadcast", "--seed", "-1"}, "--seed: '-1' is not valid: expected a whole number, 0"},
      {{"broadcast", "--seed", "many"}, "--seed: 'many'"},
      {{"broadcast_coalesced", "--tensors", "/"}, "--tensors: '/'"},
      {{"explain"}, "which operation"},
      {{"explain", "broadcast"}, "which size"},
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

}  // namespace
}  // namespace tutti::perf
