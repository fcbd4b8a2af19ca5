// SPDX-License-Identifier: Apache-2.0
// Traces of programs that run in processes of their own, and what is in the files that these leave.

#include "support/environment.hpp"
#include "support/ranks.hpp"
#include "support/stream_gate.hpp"
#include "support/traces.hpp"
#include "tutti/tutti.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using test::one_on_each;
using test::Read;
using test::Traces;
using testing::HasSubstr;

double end_of(const json& slice) {
  return slice.at("ts").get<double>() + slice.at("dur").get<double>();
}

TEST_F(Traces, HaveATrackForEachStreamAndTellOfEveryCollective) {
  constexpr int broadcasts = 5;
  run(path("trace.json"), [] {
    const std::vector<Device> devices = test::first_devices(3);
    const std::vector<Tensor> tensors = one_on_each(devices);
    const nvtx::Range step("a step \"quoted\"");
    nvtx::mark("here");
    for (int i = 0; i < broadcasts; ++i) broadcast(tensors[0], tensors);
    const Stream side(devices[0]);
    side.wait_stream(current_stream(devices[0]));
    const StreamGuard guard(side);
    static_cast<void>(reduce_add(tensors, devices[0]));
    nvtx::range_push("never ended");
  });
  EXPECT_EQ(files(), (std::vector<std::string>{"errors", "trace.json"}));
  const Read trace(contents("trace.json"));
  trace.expect_nesting();
  EXPECT_THAT(trace.process(), HasSubstr("(process "));

  const std::vector<json> calls = trace.slices("collective", "host thread ");
  ASSERT_EQ(calls.size(), broadcasts + 1U);
  for (const json& call : calls) {
    const bool is_sum = &call == &calls.back();
    EXPECT_EQ(call.at("name"), is_sum ? "reduce_add" : "broadcast");
    EXPECT_EQ(call.at("args").at("bytes"), 256 * sizeof(float));
    EXPECT_FALSE(call.at("args").at("algorithm").get<std::string>().empty());
    EXPECT_THAT(call.at("args").at("plan").get<std::string>(),
                HasSubstr("transport: " + call.at("args").at("transport").get<std::string>()));
  }
  const std::vector<json> ranges = trace.phases("B");
  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[0].at("name"), "a step \"quoted\"");
  EXPECT_LE(ranges[0].at("ts").get<double>(), calls.front().at("ts").get<double>());
  ASSERT_EQ(trace.phases("i").size(), 1U);
  EXPECT_EQ(trace.phases("i")[0].at("name"), "here");

  // On the default stream of the first device only broadcasts, each after its call began, and one by one.
  const std::vector<json> on_device = trace.slices("device", "device 0, default stream");
  ASSERT_EQ(on_device.size(), static_cast<std::size_t>(broadcasts));
  for (std::size_t i = 0; i < on_device.size(); ++i) {
    EXPECT_EQ(on_device[i].at("name"), "broadcast");
    EXPECT_GE(on_device[i].at("ts").get<double>(), calls[i].at("ts").get<double>());
    const double before = i == 0 ? 0 : end_of(on_device[i - 1]) - 0.01;
    EXPECT_GE(on_device[i].at("ts").get<double>(), before);
  }
  ASSERT_EQ(trace.slices("device", "device 0, stream 1").size(), 1U);
  EXPECT_EQ(trace.slices("device", "device 0, stream 1")[0].at("name"), "reduce_add");
}

TEST_F(Traces, TellHowLongStreamsTakeForACall) {
  constexpr milliseconds held_back{60};
  run(path("trace.json"), [=] {
    const std::vector<Device> devices = test::first_devices(2);
    const std::vector<Tensor> tensors = one_on_each(devices);
    broadcast(tensors[0], tensors);  // finds out what must be known, and waits for it
    for (const Device device : devices) synchronize(device);
    const Stream root(devices[0]);
    {
      test::StreamGate gate(root);
      const StreamGuard guard(root);
      broadcast(tensors[0], tensors);
      std::this_thread::sleep_for(held_back);
    }
    for (const Device device : devices) synchronize(device);
  });
  const Read trace(contents("trace.json"));
  trace.expect_nesting();
  const std::vector<json> calls = trace.slices("collective");
  ASSERT_EQ(calls.size(), 2U);
  const double held = std::chrono::duration<double, std::micro>(held_back).count();
  // The root's stream comes to the call when it is let go on, another's waits in the call.
  const std::vector<json> on_root = trace.slices("device", "device 0, stream 1");
  ASSERT_EQ(on_root.size(), 1U);
  EXPECT_GE(on_root[0].at("ts").get<double>(), calls[1].at("ts").get<double>() + held / 2);
  const std::vector<json> on_other = trace.slices("device", "device 1, default stream");
  if (on_other.empty()) GTEST_SKIP() << "one device";
  ASSERT_EQ(on_other.size(), 2U);
  EXPECT_GE(on_other[1].at("dur").get<double>(), held / 2);
}

TEST_F(Traces, OfCapturesTellWhatTheHostDid) {
  run(path("trace.json"), [] {
    const std::vector<Device> devices = test::first_devices(1);
    const std::vector<Tensor> tensors{zeros({64}, {.device = devices[0]}),
                                      zeros({64}, {.device = devices[0]})};
    synchronize(devices[0]);
    set_stream(Stream(devices[0]));
    CUDAGraph graph;
    graph.capture_begin();
    broadcast(tensors[0], {tensors[1]});
    graph.capture_end();
    graph.replay();
    synchronize(devices[0]);
  });
  const Read trace(contents("trace.json"));
  trace.expect_nesting();
  ASSERT_EQ(trace.slices("collective").size(), 1U);
  EXPECT_EQ(trace.slices("collective")[0].at("args").at("captured"), true);
  EXPECT_TRUE(trace.slices("device").empty());
}

TEST_F(Traces, TellOfTheWaitForADevicesClockWhereThatIsAsked) {
  run(path("trace.json"), [] {
    const std::vector<Device> devices = test::first_devices(1);
    const std::vector<Tensor> tensors{zeros({64}, {.device = devices[0]}),
                                      zeros({64}, {.device = devices[0]})};
    broadcast(tensors[0], {tensors[1]});
    synchronize(devices[0]);
  });
  EXPECT_EQ(contents("errors"), "") << "nobody has asked";
  run(path("trace.json"), [] {
    const std::vector<Device> devices = test::first_devices(1);
    const std::vector<Tensor> tensors{zeros({64}, {.device = devices[0]}),
                                      zeros({64}, {.device = devices[0]})};
    set_sync_debug_mode(SyncDebugMode::error);
    for (int times = 0; times < 2; ++times) broadcast(tensors[0], {tensors[1]});
    set_sync_debug_mode(SyncDebugMode::none);
    synchronize(devices[0]);
  });
  const std::string errors = contents("errors");
  const std::string line = "the first traced call on a device, which reads its clock: the call blocks";
  EXPECT_THAT(errors, HasSubstr(line));
  EXPECT_EQ(errors.find(line), errors.rfind(line)) << "its clock is known then";
}

TEST_F(Traces, TellOneVirtualMachineFromTheNext) {
  if (std::getenv("TUTTI_BACKEND") == std::string_view("cuda")) GTEST_SKIP() << "GPUs stay the same";
  run(path("trace.json"), [] {
    for (const int first : {0, 1}) {
      virtual_devices::start(virtual_devices::VirtualMachine::from_topology("island", 3));
      const std::vector<Tensor> tensors = one_on_each({Device(first), Device(2)});
      broadcast(tensors[0], tensors);
      synchronize(Device(2));
    }
  });
  const Read trace(contents("trace.json"));
  trace.expect_nesting();
  EXPECT_EQ(trace.slices("collective").size(), 2U);
  EXPECT_EQ(trace.slices("device", "device 0, default stream").size(), 1U);
  EXPECT_EQ(trace.slices("device", "device 1, default stream").size(), 1U);
  EXPECT_EQ(trace.slices("device", "device 2, default stream").size(), 2U);
}

TEST_F(Traces, OfRanksAreAFileForEachWithATrackOfItsOwn) {
  if (std::getenv("TUTTI_BACKEND") == std::string_view("cuda"))
    GTEST_SKIP() << "a rank on a GPU of its own each";
  setenv("TUTTI_TRACE", path("trace.json").c_str(), 1);
  std::fflush(nullptr);
  test::expect_all_right(2, [](Exchange& exchange) {
    {
      Communicator team(exchange, {.devices = {Device(exchange.rank())}});
      const Tensor tensor = zeros({128}, {.device = Device(exchange.rank())});
      team.all_reduce_add({tensor}, {tensor});
      team.barrier();
      if (exchange.rank() == 0) team.send(tensor, 1);
      if (exchange.rank() == 1) team.recv(tensor, 0);
      synchronize(Device(exchange.rank()));
    }
    std::exit(HasFailure() ? 1 : 0);
  });
  unsetenv("TUTTI_TRACE");
  ASSERT_EQ(files(), (std::vector<std::string>{"trace.0.json", "trace.1.json"}));
  for (int rank = 0; rank < 2; ++rank) {
    const Read trace(contents("trace." + std::to_string(rank) + ".json"));
    trace.expect_nesting();
    const std::string name = "rank " + std::to_string(rank) + " of 2";
    EXPECT_THAT(trace.process(), HasSubstr(name));
    const std::vector<json> calls = trace.slices("collective", name);
    ASSERT_EQ(calls.size(), 3U);
    EXPECT_EQ(calls[0].at("name"), "all_reduce");
    EXPECT_EQ(calls[0].at("args").at("rank"), rank);
    EXPECT_EQ(calls[1].at("name"), "barrier");
    EXPECT_EQ(calls[2].at("name"), rank == 0 ? "send" : "recv");
    EXPECT_EQ(calls[2].at("args").at("bytes"), 512);
    EXPECT_EQ(calls[2].at("args").at("messages"),
              rank == 0 ? "128 float32 to member 1" : "128 float32 from member 0");
    EXPECT_LT(calls[0].at("args").at("sequence"), calls[1].at("args").at("sequence"));
    EXPECT_EQ(trace.slices("device").size(), 3U);
  }
}

TEST_F(Traces, OfAChildAndOfItsParentAreTwoFiles) {
  run(path("trace.%p.json"), [] {
    const nvtx::Range range("of the parent");
    const pid_t child = fork();
    if (child == 0) {
      nvtx::range_pop();  // which the child's trace has no beginning of
      nvtx::mark("of the child");
      std::exit(0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
  const std::vector<std::string> names = files();
  ASSERT_EQ(names.size(), 3U);
  std::size_t marks = 0;
  std::size_t ranges = 0;
  for (std::size_t i = 1; i < names.size(); ++i) {
    const Read trace(contents(names[i]));
    trace.expect_nesting();
    marks += trace.phases("i").size();
    ranges += trace.phases("B").size();
    EXPECT_EQ(trace.phases("i").size() + trace.phases("B").size(), 1U);
  }
  EXPECT_EQ(marks, 1U);
  EXPECT_EQ(ranges, 1U);
}

TEST_F(Traces, ThatCannotBeWrittenAreOneWarning) {
  run(path("no such folder/trace.json"), [] {
    const std::vector<Tensor> tensors = one_on_each(test::first_devices(2));
    for (int i = 0; i < 3; ++i) broadcast(tensors[0], tensors);
    nvtx::mark("here");
  });
  const std::string errors = contents("errors");
  EXPECT_THAT(errors, HasSubstr("TUTTI_TRACE is \"" + path("no such folder/trace.json")));
  EXPECT_THAT(errors, HasSubstr("expected the path of a file that can be written"));
  EXPECT_EQ(errors.find("TUTTI_TRACE"), errors.rfind("TUTTI_TRACE"));
}

}  // namespace
}  // namespace tutti
