// SPDX-License-Identifier: Apache-2.0
#include "tutti/virtual_devices.hpp"

#include "device/peer_access.hpp"
#include "device/runtime.hpp"
#include "storage/storage.hpp"
#include "stream/stream_access.hpp"
#include "support/errors.hpp"
#include "support/odd_files.hpp"
#include "support/stream_gate.hpp"
#include "tutti/error.hpp"
#include "tutti/event.hpp"
#include "tutti/graph.hpp"
#include "tutti/memory.hpp"
#include "tutti/tensor.hpp"

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::refuses;
using test::StreamGate;
using virtual_devices::VirtualMachine;

class VirtualDevices : public testing::Test {
 protected:
  void SetUp() override { boot("island", 4); }

  static void boot(const char* topology, int device_count) {
    virtual_devices::start(VirtualMachine::from_topology(topology, device_count));
  }
};

TEST_F(VirtualDevices, StartAsDescribed) {
  VirtualMachine machine = VirtualMachine::from_topology("two-islands", 6);
  machine.memory_bytes = std::size_t{16} << 20;
  virtual_devices::start(machine);
  EXPECT_EQ(backend_kind(), BackendKind::host);
  EXPECT_EQ(device_count(), 6);
  EXPECT_EQ(mem_get_info(5).total, std::size_t{16} << 20);
  EXPECT_TRUE(can_device_access_peer(0, 2));
  EXPECT_FALSE(can_device_access_peer(0, 3));
}

TEST_F(VirtualDevices, StartWithThreadsAtDeviceZeroAndDefaultStreams) {
  const Stream old(3);
  set_device(3);
  set_stream(old);
  boot("island", 2);
  EXPECT_EQ(current_device(), 0);
  EXPECT_EQ(current_stream(), default_stream(0));
  EXPECT_EQ(current_stream(1), default_stream(1));
  EXPECT_THROW(set_device(3), Error);
}

TEST_F(VirtualDevices, StartWithoutCachedMemoryAndStatistics) {
  Runtime& runtime = Runtime::get();
  static_cast<void>(DeviceStorage::allocate(runtime, 0, 1 << 20, StreamAccess::ref(Stream(0))));
  static_cast<void>(PinnedStorage::allocate(runtime, 1 << 20));
  EXPECT_GT(memory_reserved(0), 0U);
  boot("island", 4);
  EXPECT_EQ(memory_reserved(0), 0U);
  EXPECT_EQ(memory_stats(0).num_device_alloc, 0);
  EXPECT_EQ(mem_get_info(0).free, mem_get_info(0).total);
}

TEST_F(VirtualDevices, DoNotStartWhileDeviceMemoryIsInUse) {
  auto storage = DeviceStorage::allocate(Runtime::get(), 1, 1000, StreamAccess::ref(Stream(1)));
  const std::uint64_t generation = Runtime::get().generation();
  EXPECT_TRUE(refuses([] { boot("island", 2); }, ErrorCode::invalid_argument,
                      {"virtual_devices::start", "1024 bytes of device 1"}));
  EXPECT_EQ(Runtime::get().generation(), generation);
  EXPECT_EQ(device_count(), 4);
  storage = {};
  boot("island", 2);
  EXPECT_EQ(device_count(), 2);
}

TEST_F(VirtualDevices, DoNotStartWhilePinnedMemoryIsInUse) {
  auto storage = PinnedStorage::allocate(Runtime::get(), 1000);
  EXPECT_TRUE(refuses([] { boot("island", 2); }, ErrorCode::invalid_argument,
                      {"virtual_devices::start", "4096 bytes of pinned memory"}));
  storage = {};
  boot("island", 2);
}

TEST_F(VirtualDevices, WaitForFreedMemoryThatStreamsStillUse) {
  const Stream reader(1);
  StreamGate gate(reader);
  {
    const auto device = DeviceStorage::allocate(Runtime::get(), 0, 1000, StreamAccess::ref(Stream(0)));
    device->record_stream(reader);
    const auto pinned = PinnedStorage::allocate(Runtime::get(), 1000);
    pinned->record_stream(reader);
  }
  gate.open_soon();
  boot("island", 2);
  EXPECT_EQ(device_count(), 2);
}

TEST_F(VirtualDevices, WaitForGraphsThatAreGoneAndStillRun) {
  const Stream launched(0);
  StreamGate gate(launched);
  {
    const Graph graph =
        Graph::capture(Stream(0), [] { static_cast<void>(ones({1000}, {.device = Device(0)})); });
    graph.launch(launched);
  }
  gate.open_soon();
  boot("island", 2);
  EXPECT_EQ(device_count(), 2);
}

TEST_F(VirtualDevices, OutliveGraphsOfTheirPredecessors) {
  backend::Backend& backend = Runtime::get().backend();
  const backend::StreamRef own = backend.create_stream(0, 0);  // so that the graph has an event of the pool's
  std::optional<Graph> graph = Graph::capture(Stream(0), [] {});
  graph->launch(StreamAccess::make(own));
  backend.destroy_stream(own);
  boot("island", 4);
  EXPECT_TRUE(refuses([&] { graph->launch(Stream(0)); }, ErrorCode::invalid_argument,
                      {"Graph::launch: the graph belongs to devices that have been replaced"}));
  graph.reset();
}

TEST_F(VirtualDevices, DoNotStartWhileAStreamIsCaptured) {
  static_cast<void>(Graph::capture(Stream(1), [] {
    EXPECT_TRUE(refuses([] { boot("island", 2); }, ErrorCode::invalid_argument,
                        {"virtual_devices::start: a stream of device 1 is being captured"}));
  }));
  boot("island", 2);
}

TEST_F(VirtualDevices, StartEvenAfterFailuresNobodyAskedAbout) {
  virtual_devices::launch(Stream(2), "fails", {},
                          [](std::span<void* const>) { throw std::runtime_error("broken"); });
  boot("island", 4);
  synchronize(2);
}

TEST_F(VirtualDevices, StayAsTheyWereIfTheNewDescriptionIsWrong) {
  VirtualMachine wrong;
  wrong.device_count = 3;
  wrong.links.resize(2);
  const std::uint64_t generation = Runtime::get().generation();
  EXPECT_THROW(virtual_devices::start(wrong), Error);
  EXPECT_EQ(Runtime::get().generation(), generation);
  EXPECT_EQ(device_count(), 4);
}

TEST_F(VirtualDevices, OutliveEventsOfTheirPredecessors) {
  Event event(EventOptions{.enable_timing = true});
  event.record(Stream(0));
  boot("island", 4);
  EXPECT_TRUE(event.query()) << "nothing of theirs runs any more";
  event.synchronize();
  event.wait(Stream(1));
  EXPECT_TRUE(refuses([&] { static_cast<void>(event.elapsed_time(event)); }, ErrorCode::invalid_argument,
                      {"the start event belongs to devices that have been replaced"}));
  event.record(Stream(1));
  event.synchronize();
  EXPECT_EQ(event.device(), 1);
  event = Event();
  EXPECT_FALSE(event.is_created());
}

TEST_F(VirtualDevices, AreAskedOnceForPeerAccess) {
  virtual_devices::inject({.operation = virtual_devices::Operation::enable_peer, .device = 0, .peer = 1});
  Runtime& runtime = Runtime::get();
  EXPECT_TRUE(refuses([&] { runtime.part<PeerAccess>().enable(0, 1); }, ErrorCode::peer_unavailable, {}));
  runtime.part<PeerAccess>().enable(0, 1);
  virtual_devices::inject({.operation = virtual_devices::Operation::enable_peer, .device = 0, .peer = 1});
  EXPECT_NO_THROW(runtime.part<PeerAccess>().enable(0, 1)) << "enabled once, the device is not asked again";
}

std::vector<std::string> destroyed;

struct Older {
  explicit Older(Runtime&) {}
  ~Older() { destroyed.emplace_back("older"); }
};
struct Newer {
  explicit Newer(Runtime& runtime)
      : older(runtime.part<Older>()),
        memory(DeviceStorage::allocate(runtime, 0, 4096, runtime.backend().default_stream(0))) {}
  ~Newer() { destroyed.emplace_back("newer"); }
  Older& older;
  detail::IntrusivePtr<Storage> memory;
};

TEST_F(VirtualDevices, DestroyExtensionsNewestFirstAndWithThemTheirMemory) {
  Newer& newer = Runtime::get().part<Newer>();
  EXPECT_EQ(&newer.older, &Runtime::get().part<Older>());
  EXPECT_GT(memory_allocated(0), 0U);
  destroyed.clear();
  boot("island", 4);
  EXPECT_EQ(destroyed, (std::vector<std::string>{"newer", "older"}));
  EXPECT_EQ(memory_allocated(0), 0U);
}

TEST_F(VirtualDevices, CountOperationsAndKeepTheSeed) {
  const std::uint64_t before = virtual_devices::operations_enqueued();
  virtual_devices::launch(Stream(0), "nothing", {}, [](std::span<void* const>) {});
  EXPECT_EQ(virtual_devices::operations_enqueued(), before + 1);
  virtual_devices::set_interleaving_seed(7);
  EXPECT_EQ(virtual_devices::interleaving_seed(), 7U);
  virtual_devices::set_interleaving_seed(std::nullopt);
  EXPECT_EQ(virtual_devices::interleaving_seed(), std::nullopt);
}

TEST_F(VirtualDevices, RefuseADirectoryAsTheirTopology) {
  EXPECT_TRUE(refuses([] { static_cast<void>(VirtualMachine::from_topology(testing::TempDir())); },
                      ErrorCode::invalid_argument,
                      {"topology '" + testing::TempDir() + "'", "nor a readable file"}));
}

TEST_F(VirtualDevices, RefuseATopologyWithoutAnEnd) {
  const test::OddFiles files;
  EXPECT_TRUE(refuses([&] { static_cast<void>(VirtualMachine::from_topology(files.pipe)); },
                      ErrorCode::invalid_argument, {files.pipe, "it is no regular file"}));
  EXPECT_TRUE(refuses([&] { static_cast<void>(VirtualMachine::from_topology(files.large)); },
                      ErrorCode::invalid_argument, {files.large, "it has more than 67108864 bytes"}));
}

TEST_F(VirtualDevices, DoNotStartInNumbersAndWithLinksThatAreNone) {
  VirtualMachine machine;
  for (const int count : {-1, 1025, 5000, 2147483647}) {
    machine.device_count = count;
    EXPECT_TRUE(refuses([&] { virtual_devices::start(machine); }, ErrorCode::invalid_argument,
                        {std::to_string(count) + " devices; expected 0 to 1024"}));
  }
  using virtual_devices::VirtualLink;
  machine.device_count = 2;
  machine.links = {{VirtualLink::none, VirtualLink::pcie},
                   {static_cast<VirtualLink>(200), VirtualLink::none}};
  EXPECT_TRUE(refuses([&] { virtual_devices::start(machine); }, ErrorCode::invalid_argument,
                      {"links[1][0] is 200; expected none, pcie or nvlink, 0 to 2"}));
  EXPECT_EQ(device_count(), 4) << "those before are there still";
}

TEST_F(VirtualDevices, ReplaceOneAnotherManyTimes) {
  for (int i = 0; i < 20; ++i) {
    boot("island", 1 + i % 4);
    const Stream stream(0);
    static_cast<void>(DeviceStorage::allocate(Runtime::get(), 0, 1 << 20, StreamAccess::ref(stream)));
    stream.record_event().synchronize();
    EXPECT_EQ(device_count(), 1 + i % 4);
  }
}

}  // namespace
}  // namespace tutti
