// SPDX-License-Identifier: Apache-2.0
// What graphs own, on a backend that pretends to capture.

#include "allocator/graph_pools/graph_resources.hpp"

#include "allocator/allocators.hpp"
#include "allocator/caching_allocator.hpp"
#include "allocator/graph_pools/graph_captures.hpp"
#include "device/open_captures.hpp"
#include "device/runtime.hpp"
#include "rng/random_draws.hpp"
#include "storage/storage.hpp"
#include "stream/late_releases.hpp"
#include "support/machines/absent_backend.hpp"
#include "support/memory/memory_books.hpp"
#include "tutti/error.hpp"
#include "tutti/rng.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using backend::EventHandle;
using backend::StreamHandle;
using backend::StreamRef;

/// Two devices whose memory is the heap's, and whose streams run work at once, and are captured as the test
/// says. Events are complete when the test says so.
class PretendingBackend final : public test::AbsentBackend {
 public:
  struct Order {
    StreamRef earlier;
    StreamRef later;
    bool operator==(const Order&) const = default;
  };

  std::map<StreamHandle, std::uint64_t> captures;
  std::map<std::uint64_t, std::vector<std::shared_ptr<void>>> retained;  ///< by capture
  std::vector<Order> orders;
  bool is_idle = true;

  /// Lets go of what was retained for the capture's graph.
  void destroy_graph_of(std::uint64_t capture) { retained.erase(capture); }

  void* allocate_device(int, std::size_t bytes) override { return ::operator new(bytes, alignment); }
  void free_device(int, void* address) noexcept override { ::operator delete(address, alignment); }
  void synchronize_device(int) override { is_idle = true; }
  EventHandle create_event(int, backend::EventTiming, backend::EventWait) override {
    return reinterpret_cast<EventHandle>(++last_handle_);
  }
  void record_event(EventHandle event, StreamRef stream) override {
    if (captures.contains(stream.handle)) throw std::logic_error("a mark in a capture");
    recorded_[event] = stream;
  }
  void wait_event(StreamRef stream, EventHandle event) override {
    orders.push_back({recorded_.at(event), stream});
  }
  bool has_passed(EventHandle) noexcept override { return is_idle; }
  void synchronize_event(EventHandle) override { is_idle = true; }
  std::uint64_t stream_id(StreamRef) override { return 0; }
  StreamRef create_stream(int device, int) override {
    return {reinterpret_cast<StreamHandle>(++last_handle_), device};
  }
  bool is_capturing(StreamRef stream) override { return captures.contains(stream.handle); }
  std::uint64_t capture_id(StreamRef stream) override {
    const auto capture = captures.find(stream.handle);
    return capture == captures.end() ? 0 : capture->second;
  }
  void retain_until_graph_destroyed(StreamRef stream, std::shared_ptr<void> resource) override {
    retained[captures.at(stream.handle)].push_back(std::move(resource));
  }
  void fill(StreamRef, const backend::Fill& task) override {
    for (std::size_t i = 0; i < task.count; ++i)
      std::memcpy(task.target + i * task.element_bytes, task.value.data(), task.element_bytes);
  }

 private:
  static constexpr std::align_val_t alignment{512};
  std::uintptr_t last_handle_ = 1000;
  std::map<EventHandle, StreamRef> recorded_;
};

StreamRef stream_of(std::uintptr_t number, int device = 0) {
  return {reinterpret_cast<StreamHandle>(number), device};
}

class GraphResourcesTest : public testing::Test {
 protected:
  using StoragePtr = detail::IntrusivePtr<Storage>;

  void TearDown() override {
    backend_.captures.clear();
    runtime_.part<LateReleases>().release();
    EXPECT_EQ(allocator().bytes_active(), 0U);
    EXPECT_TRUE(test::books_balance(allocator().stats(), allocator().snapshot()));
  }

  CachingAllocator& allocator() { return runtime_.part<Allocators>().of(0); }
  StoragePtr allocate(StreamRef stream, std::size_t bytes = 4096) {
    return DeviceStorage::allocate(runtime_, stream.device, bytes, stream);
  }
  const void* address_of_next(StreamRef stream) { return allocate(stream)->data(); }
  void capture(StreamRef stream, std::uint64_t capture = 1) { backend_.captures[stream.handle] = capture; }
  std::shared_ptr<GraphResources> begin(StreamRef stream, std::uint64_t id = 1) {
    auto graph = std::make_shared<GraphResources>(runtime_, GraphLaunches::of_library);
    capture(stream, id);
    runtime_.part<GraphCaptures>().add(stream, graph);
    return graph;
  }
  void end() { backend_.captures.clear(); }
  static PhiloxState at(const RandomDraws::Place& place) {
    return {.seed = place.state[0], .offset = place.state[1]};
  }

  PretendingBackend& backend_ = *new PretendingBackend;
  Runtime runtime_{std::unique_ptr<backend::Backend>(&backend_), nullptr};
  const StreamRef stream_ = stream_of(1);
  const StreamRef other_ = stream_of(2);
};

TEST_F(GraphResourcesTest, KeepMemoryMadeAndDroppedInACaptureFromOthers) {
  auto graph = begin(stream_);
  const void* const address = address_of_next(stream_);
  EXPECT_EQ(address_of_next(stream_), address) << "the graph may use it again";
  end();
  EXPECT_NE(address_of_next(stream_), address);
  graph.reset();
  EXPECT_EQ(allocate(stream_)->data(), std::min(address_of_next(stream_), address_of_next(stream_)));
}

TEST_F(GraphResourcesTest, KeepMemoryOfAllStreamsThatJoinACapture) {
  auto graph = begin(stream_);
  capture(other_);
  const void* const address = address_of_next(other_);
  const StoragePtr outside = allocate(stream_of(3));
  EXPECT_EQ(allocator().find(outside->data())->segment->graph_pool, GraphPool::none);
  end();
  EXPECT_NE(address_of_next(other_), address);
}

TEST_F(GraphResourcesTest, LeaveTensorsThatOutliveTheGraphValid) {
  auto graph = begin(stream_);
  StoragePtr tensor = allocate(stream_, std::size_t{12} << 20);
  const void* const address = tensor->data();
  end();
  graph.reset();
  const StoragePtr other = allocate(stream_, std::size_t{12} << 20);
  EXPECT_NE(other->data(), address);
  tensor = {};
  EXPECT_EQ(allocate(stream_, std::size_t{12} << 20)->data(), address) << "ordinary memory by now";
}

TEST_F(GraphResourcesTest, GiveTheMemoryOfACaptureThatFailsToEverybody) {
  const void* address = nullptr;
  {
    const auto graph = begin(stream_);
    address = allocate(stream_, std::size_t{12} << 20)->data();
    end();
  }
  EXPECT_EQ(allocate(stream_, std::size_t{12} << 20)->data(), address);
}

TEST_F(GraphResourcesTest, AreMadeForCapturesThatOthersBegan) {
  capture(stream_, 7);
  const void* const address = allocate(stream_, std::size_t{12} << 20)->data();
  const auto graph_pool = runtime_.part<GraphCaptures>().pool_of(stream_);
  EXPECT_NE(graph_pool, GraphPool::none);
  capture(other_, 8);
  EXPECT_NE(runtime_.part<GraphCaptures>().pool_of(other_), graph_pool);
  end();
  EXPECT_NE(allocate(stream_, std::size_t{12} << 20)->data(), address);

  backend_.is_idle = false;
  backend_.destroy_graph_of(7);
  EXPECT_NE(allocate(stream_, std::size_t{12} << 20)->data(), address) << "its last launch may be running";
  allocator().empty_cache();
  backend_.destroy_graph_of(8);
  for (const MemorySegment& segment : allocator().snapshot()) EXPECT_NE(segment.address, address);
}

TEST_F(GraphResourcesTest, KeepWhatTheThreadThatCapturesLetsGoOf) {
  StoragePtr before = allocate(stream_, std::size_t{12} << 20);
  const void* const address = before->data();
  auto graph = begin(stream_);
  {
    const OpenCapture capturing(graph->pool());
    before = {};
  }
  end();
  EXPECT_NE(allocate(stream_, std::size_t{12} << 20)->data(), address);
  EXPECT_EQ(allocator().stats().active.all.current, 1) << "the graph's";
  graph.reset();
  EXPECT_EQ(allocator().stats().active.all.current, 0);
}

TEST_F(GraphResourcesTest, RetainWhatTheirWorkUsesUntilTheyAreGone) {
  const auto resource = std::make_shared<int>(1);
  auto graph = begin(stream_);
  runtime_.part<GraphCaptures>().retain(stream_, resource);
  EXPECT_EQ(resource.use_count(), 2);
  EXPECT_TRUE(backend_.retained.empty()) << "the library knows when its graphs are done";
  end();
  graph.reset();
  EXPECT_EQ(resource.use_count(), 1);

  capture(stream_, 7);
  runtime_.part<GraphCaptures>().retain(stream_, resource);
  EXPECT_EQ(resource.use_count(), 2);
  end();
  backend_.destroy_graph_of(7);
  EXPECT_EQ(resource.use_count(), 2) << "a graph may be destroyed on a thread of the driver's";
  runtime_.part<LateReleases>().release();
  EXPECT_EQ(resource.use_count(), 1);
}

TEST_F(GraphResourcesTest, OwnStoragesOnce) {
  auto graph = begin(stream_);
  StoragePtr storage = allocate(other_, std::size_t{12} << 20);
  const void* const address = storage->data();
  graph->keep(*storage);
  graph->keep(*storage);
  storage = {};
  end();
  EXPECT_NE(allocate(other_, std::size_t{12} << 20)->data(), address);
  graph.reset();
  EXPECT_EQ(allocator().bytes_active(), 0U);
}

TEST_F(GraphResourcesTest, DrawNumbersFromWhereTheGeneratorIsAtEachLaunch) {
  auto graph = begin(stream_);
  RandomDraws& draws = graph->attached<RandomDraws>();
  EXPECT_TRUE(draws.empty());
  const RandomDraws::Place first = draws.add(stream_, 8);
  const RandomDraws::Place second = draws.add(stream_, 100);
  EXPECT_FALSE(draws.empty());
  EXPECT_EQ(first.state, second.state);
  EXPECT_EQ(first.offset, 0U);
  EXPECT_EQ(second.offset, 8U);
  EXPECT_NE(address_of_next(stream_), static_cast<const void*>(first.state)) << "that is in use";
  end();
  EXPECT_EQ(take_random_words(runtime_, 0, 4).offset, 0U) << "the capture draws nothing";

  draws.begin_launch(other_);
  EXPECT_EQ(at(first).seed, default_rng_seed);
  EXPECT_EQ(at(first).offset, 4U);
  draws.begin_launch(stream_);
  EXPECT_EQ(at(first).offset, 4U + 108U);
  EXPECT_EQ(take_random_words(runtime_, 0, 4).offset, 4U + 2 * 108U);
  EXPECT_EQ(take_random_words(runtime_, 1, 4).offset, 0U);
  EXPECT_TRUE(backend_.orders.empty()) << "the stream's own order is enough";
}

TEST_F(GraphResourcesTest, DrawNumbersOfSeveralDevicesAndGraphs) {
  const StreamRef elsewhere = stream_of(3, 1);
  auto graph = begin(stream_);
  capture(elsewhere);
  const RandomDraws::Place here = graph->attached<RandomDraws>().add(stream_, 8);
  const RandomDraws::Place there = graph->attached<RandomDraws>().add(elsewhere, 12);
  end();
  auto other_graph = begin(stream_, 2);
  const RandomDraws::Place in_other = other_graph->attached<RandomDraws>().add(stream_, 20);
  end();
  graph->attached<RandomDraws>().begin_launch(stream_);
  other_graph->attached<RandomDraws>().begin_launch(stream_);
  EXPECT_EQ(at(here).offset, 0U);
  EXPECT_EQ(at(there).offset, 0U);
  EXPECT_EQ(at(in_other).offset, 8U);
  graph->attached<RandomDraws>().begin_launch(stream_);
  EXPECT_EQ(at(here).offset, 28U);
  EXPECT_EQ(at(there).offset, 12U);
  ASSERT_EQ(backend_.orders.size(), 4U) << "to the other device and back, at each launch";
  EXPECT_EQ(backend_.orders[0].earlier, stream_);
  EXPECT_EQ(backend_.orders[0].later.device, 1);
  EXPECT_EQ(backend_.orders[1], (PretendingBackend::Order{backend_.orders[0].later, stream_}));
}

TEST(GraphCapturesOfAThread, MayEndInAnyOrder) {
  const auto here = [] { return OpenCapture::pool_of_calling_thread(); };
  std::optional<OpenCapture> first(GraphPool{901});
  std::optional<OpenCapture> second(GraphPool{902});
  EXPECT_EQ(here(), GraphPool{902}) << "the one that began last";
  first.reset();
  EXPECT_EQ(here(), GraphPool{902});
  second.reset();
  EXPECT_EQ(here(), GraphPool::none);
  std::vector<std::unique_ptr<OpenCapture>> many;
  for (std::uint64_t i = 0; i < 2 * OpenCapture::most_open; ++i)
    many.push_back(std::make_unique<OpenCapture>(GraphPool{i + 1}));
  EXPECT_EQ(here(), GraphPool{OpenCapture::most_open}) << "no more are told apart";
  many.clear();
  EXPECT_EQ(here(), GraphPool::none);
}

}  // namespace
}  // namespace tutti
