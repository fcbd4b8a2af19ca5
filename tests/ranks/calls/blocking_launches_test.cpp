// SPDX-License-Identifier: Apache-2.0
#include "backend/host/host_backend.hpp"
#include "device/runtime.hpp"
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "stream/stream_access.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/machines/absent_backend.hpp"
#include "support/ranks.hpp"
#include "support/stream_gate.hpp"
#include "support/timing.hpp"
#include "transport/probes/launch_probe.hpp"
#include "tutti/communicator.hpp"
#include "tutti/tutti.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// Own members' kernels wait for one another. Where a launch returns only when its kernel has ended, the one
/// before would wait for ever for the next, were they launched one after another.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;
using transport::Launching;
using transport::LaunchProbe;

constexpr std::array devices{0, 1};

/// Kernels', by CUDA itself, and nothing else: not the mode of the library's own, which blocks all
/// operations. Before anything else of the process.
void block_launches() {
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  setenv("TUTTI_LAUNCH_BLOCKING", "0", 1);
  EXPECT_FALSE(Runtime::get().backend().launches_block());
  if (auto* const machine = Runtime::get().virtual_machine()) machine->set_blocking_launches(true);
}

CommunicatorOptions two_members(TransportKind transport) {
  return {.devices = {Device(0), Device(1)}, .timeout = patient(20s), .transport = transport};
}

/// What each member has ones of is added, by rounds of every kind.
void expect_right_sums(Communicator& communicator) {
  const auto members = static_cast<float>(communicator.member_count());
  for (const std::int64_t size : {std::int64_t{7}, std::int64_t{100'000}, std::int64_t{2'000'000}}) {
    std::vector<Tensor> inputs;
    std::vector<Tensor> sums;
    for (const int device : devices) {
      inputs.push_back(ones({size}, {.device = Device(device)}));
      sums.push_back(zeros({size}, {.device = Device(device)}));
    }
    for (int times = 0; times < 3; ++times) communicator.all_reduce_add(inputs, sums);
    communicator.broadcast(sums, 1);
    communicator.barrier();
    for (const Tensor& sum : sums)
      EXPECT_EQ(sum.to_vector<float>(), std::vector<float>(static_cast<std::size_t>(size), members));
  }
  EXPECT_NO_THROW(communicator.check());
}

void expect_right_sums_of(int ranks) {
  for (const TransportKind transport : {TransportKind::automatic, TransportKind::staged}) {
    SCOPED_TRACE(name_of(transport));
    expect_all_right(ranks, [transport](Exchange& exchange) {
      block_launches();
      if (device_count() < 2) return;
      Communicator communicator(exchange, two_members(transport));
      EXPECT_EQ(Runtime::get().part<LaunchProbe>().find(devices), Launching::from_own_threads);
      expect_right_sums(communicator);
    });
  }
}

TEST(BlockingLaunches, ComeFromAThreadForEachMemberOfAProcess) {
  expect_right_sums_of(1);
}

TEST(BlockingLaunches, MayWaitForThoseOfOtherProcesses) {
  expect_right_sums_of(2);
}

/// The first member of each rank waits for the last one of the other: no rank may launch one after the other.
TEST(BlockingLaunches, OfMessagesMayWaitForThoseOfOtherProcessesToo) {
  expect_all_right(2, [](Exchange& exchange) {
    block_launches();
    if (device_count() < 2) return;
    Communicator communicator(exchange, two_members(TransportKind::automatic));
    constexpr std::int64_t size = 300'000;
    std::vector<Message> messages;
    for (const int device : devices) {
      const int member = communicator.first_member() + device;
      const int peer = communicator.member_count() - 1 - member;
      messages.push_back(Message::send(full({size}, member, {.device = Device(device)}), peer));
      messages.push_back(Message::recv(zeros({size}, {.device = Device(device)}), peer));
    }
    communicator.batch_send_recv(messages);
    for (const Message& message : messages) {
      if (message.kind() == Message::Kind::send) continue;
      EXPECT_EQ(message.tensor().to_vector<float>(),
                std::vector<float>(static_cast<std::size_t>(size), static_cast<float>(message.peer())));
    }
    EXPECT_NO_THROW(communicator.check());
  });
}

TEST(BlockingLaunches, DoNotKeepOneProcessesCollectivesFromTheirEnd) {
  expect_all_right(1, [](Exchange&) {
    block_launches();
    if (device_count() < 2) return;
    const Tensor tensor = ones({1'000'000}, {.device = 0});
    const std::vector<Tensor> copies = broadcast(tensor, {Device(0), Device(1)});
    EXPECT_EQ(reduce_add(copies, Device(0)).to_vector<float>(), std::vector<float>(1'000'000, 2.0F));
  });
}

TEST(BlockingLaunches, AreNotThereUnlessAskedFor) {
  expect_all_right(1, [](Exchange&) {
    if (device_count() < 2) return;
    EXPECT_EQ(Runtime::get().part<LaunchProbe>().find(devices), Launching::from_one_thread);
  });
}

/// Before anything else of the process.
void block_all_operations() {
  setenv("TUTTI_LAUNCH_BLOCKING", "1", 1);
}

TEST(BlockingOperations, AreOverWhenTheirCallReturns) {
  expect_all_right(1, [](Exchange&) {
    block_all_operations();
    const Stream stream(0);
    const StreamGuard guard(stream);
    const Tensor pinned = zeros({3'000'000}, {.host_memory = HostMemory::pinned});
    const auto expect_over = [&stream](const char* operation) {
      EXPECT_TRUE(stream.record_event().query()) << operation;
      EXPECT_TRUE(stream.query()) << operation;
    };
    const Tensor tensor = empty({3'000'000}, {.device = 0});
    tensor.fill_(2);
    expect_over("a fill");
    pinned.copy_(tensor, Blocking::no);
    expect_over("a copy");
    EXPECT_EQ(static_cast<const float*>(pinned.data())[2'999'999], 2);
    static_cast<void>(tensor.to(DType::float16));
    expect_over("a conversion");
    const Tensor drawn = empty({3'000'000}, {.device = 0});
    uniform_(drawn);
    expect_over("a random fill");
    static_cast<void>(reduce_add({tensor, tensor}, Device(0)));
    expect_over("a sum");
    static bool has_run = false;
    Runtime::get().backend().launch_host_function(
        StreamAccess::ref(stream),
        [](void*) {
          std::this_thread::sleep_for(20ms);
          has_run = true;
        },
        nullptr);
    EXPECT_TRUE(has_run);
  });
}

TEST(BlockingOperations, ReportTheirOwnFailures) {
  expect_all_right(1, [](Exchange&) {
    block_all_operations();
    if (backend_kind() == BackendKind::cuda) return;  // GPUs cannot be made to fail
    const Tensor tensor = zeros({1000}, {.device = 0});
    for (const auto operation : {virtual_devices::Operation::kernel, virtual_devices::Operation::copy}) {
      virtual_devices::inject(
          {.operation = operation, .kind = virtual_devices::FaultKind::fail_asynchronously});
      const auto call = [&] {
        if (operation == virtual_devices::Operation::kernel) return void(tensor.fill_(1));
        tensor.copy_(zeros({1000}, {.host_memory = HostMemory::pinned}), Blocking::no);
      };
      EXPECT_TRUE(refuses(call, ErrorCode::device_failure, {"an injected fault"}));
      EXPECT_NO_THROW(call());
      EXPECT_NO_THROW(synchronize(0));
    }
  });
}

TEST(BlockingOperations, OfGraphsAreOverWhenTheLaunchReturns) {
  expect_all_right(1, [](Exchange&) {
    block_all_operations();
    const Stream stream(0);
    const Tensor tensor = zeros({1'000'000}, {.device = 0});
    const Graph graph = Graph::capture(stream, [&] {
      const StreamGuard guard(stream);
      tensor.fill_(5);
    });
    graph.launch(stream);
    EXPECT_TRUE(stream.query());
    EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(1'000'000, 5.0F));
  });
}

TEST(BlockingOperations, OfGraphsReportWhatFailsOnAnyOfTheirDevices) {
  expect_all_right(1, [](Exchange&) {
    block_all_operations();
    if (backend_kind() == BackendKind::cuda) return;  // GPUs cannot be made to fail
    const std::array streams{Stream(0), Stream(1)};
    const Tensor tensor = zeros({1000}, {.device = 1});
    const Graph graph = Graph::capture(streams, [&] {
      const StreamGuard guard(streams[1]);
      tensor.fill_(5);
    });
    virtual_devices::inject({.operation = virtual_devices::Operation::kernel,
                             .kind = virtual_devices::FaultKind::fail_asynchronously,
                             .device = Device(1)});
    EXPECT_TRUE(refuses([&] { graph.launch(streams[0]); }, ErrorCode::device_failure, {"an injected fault"}));
    EXPECT_NO_THROW(graph.launch(streams[0]));
    EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(1000, 5.0F));
  });
}

TEST(BlockingOperations, GoThroughCollectivesOfBothFaces) {
  for (const int ranks : {1, 2}) {
    expect_all_right(ranks, [](Exchange& exchange) {
      block_all_operations();
      if (device_count() < 2) return;
      const Tensor tensor = ones({1'000'000}, {.device = 0});
      const std::vector<Tensor> copies = broadcast(tensor, {Device(0), Device(1)});
      EXPECT_EQ(reduce_add(copies, Device(0)).to_vector<float>(), std::vector<float>(1'000'000, 2.0F));
      Communicator communicator(exchange, two_members(TransportKind::automatic));
      EXPECT_EQ(Runtime::get().part<LaunchProbe>().find(devices), Launching::from_own_threads);
      expect_right_sums(communicator);
    });
  }
}

/// A call that a member's stream does not come to is ended, whoever else takes part.
TEST(BlockingLaunches, OrWhateverElseHoldsUpAMemberOfTheSameProcessEndsAtTheTimeout) {
  expect_all_right(1, [](Exchange& exchange) {
    if (device_count() < 2) return;
    CommunicatorOptions options = two_members(TransportKind::p2p);
    options.timeout = timeout;
    options.patience = timeout;
    Communicator communicator(exchange, options);
    const Tensor first = some_tensor();
    const Tensor second = zeros({10'000}, {.device = 1});
    communicator.all_reduce_add({first, second}, {first, second});
    synchronize(0);
    const Stopwatch watch;
    StreamGate gate(current_stream(1));
    communicator.all_reduce_add({first, second}, {first, second});
    EXPECT_TRUE(refuses([] { synchronize(0); }, ErrorCode::timeout, {within_timeout, "all_reduce", "(#2)"}));
    EXPECT_LT(watch.elapsed(), timeout + slack);
    gate.open();
    EXPECT_TRUE(refuses([] { synchronize(1); }, ErrorCode::timeout, {within_timeout}));
  });
}

/// Launches block, and keep those of other threads waiting, too: what a kernel waits for never comes.
class HopelessBackend final : public AbsentBackend {
 public:
  void* allocate_pinned(std::size_t bytes) override {
    return std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  }
  void free_pinned(void* address) noexcept override { std::free(address); }
  StreamRef create_stream(int device, int) override { return {nullptr, device}; }
  void synchronize_stream(StreamRef) override {}
  void wait_in_kernel(StreamRef, backend::SharedFlag&, std::chrono::milliseconds,
                      backend::SharedFlag& outcome) override {
    backend::set_flag(outcome, 2);
    ++launches;
  }

  std::atomic<int> launches = 0;
};

TEST(LaunchProbe, TellsWhereKernelsCannotWaitForOneAnother) {
  auto made = std::make_unique<HopelessBackend>();
  const HopelessBackend& backend = *made;
  Runtime runtime(std::move(made), nullptr);
  LaunchProbe probe(runtime);
  EXPECT_EQ(probe.find(devices), Launching::impossible);
  const int launches = backend.launches;
  EXPECT_EQ(probe.find(devices), Launching::impossible);
  EXPECT_EQ(backend.launches, launches) << "it is found out once";
}

}  // namespace
}  // namespace tutti::test::ranks
