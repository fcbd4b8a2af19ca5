// SPDX-License-Identifier: Apache-2.0
#include "device/runtime.hpp"

#include "allocator/allocators.hpp"
#include "device/external_streams.hpp"
#include "device/peer_access.hpp"
#include "settings/log.hpp"
#include "storage/storage.hpp"
#include "stream/event_pool.hpp"
#include "stream/late_releases.hpp"
#include "stream/stream_access.hpp"
#include "stream/streams.hpp"
#include "support/errors.hpp"
#include "support/machines/absent_backend.hpp"
#include "support/stream_gate.hpp"
#include "tutti/error.hpp"
#include "tutti/event.hpp"
#include "tutti/graph_pool.hpp"
#include "tutti/tensor.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti {
namespace {

using test::refuses;
using test::StreamFlag;
using test::StreamGate;

/// Each of these runs in a process of its own, in which nothing has used the library yet.
class FirstUse : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  /// Ends the process, successfully if `good`.
  [[noreturn]] static void finish(bool good) { std::_Exit(good ? 0 : 1); }
};

TEST_F(FirstUse, ChoosesABackendLazily) {
  EXPECT_EXIT(
      {
        const bool before = is_initialized();
        static_cast<void>(backend_kind());
        finish(!before && is_initialized() && device_count() > 0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(FirstUse, IsNotToCountTheDevices) {
  EXPECT_EXIT(
      {
        const int counted = device_count();
        const DeviceGuard nothing(Device::host());
        const bool is_unused = is_available() && !is_initialized() && nothing.original_device() == -1;
        const pid_t child = ::fork();
        if (child == 0) {
          const bool works = full({5}, 3, {.device = 0}).to_vector<float>()[4] == 3;
          std::_Exit(works && device_count() == counted ? 0 : 1);
        }
        int status = -1;
        const bool child_is_well = ::waitpid(child, &status, 0) == child && status == 0;
        finish(is_unused && child_is_well && Runtime::get().device_count() == counted);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(FirstUse, CountsTheDevicesOfAMachineThatIsYetToStart) {
  EXPECT_EXIT(
      {
        ::setenv("TUTTI_BACKEND", "host", 1);
        ::setenv("TUTTI_VIRTUAL_DEVICES", "5", 1);
        finish(device_count() == 5 && is_available() && !is_initialized());
      },
      testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        ::setenv("TUTTI_BACKEND", "host", 1);
        ::setenv("TUTTI_VIRTUAL_TOPOLOGY", "no such file", 1);
        finish(!is_available() && static_cast<bool>(refuses([] { static_cast<void>(device_count()); },
                                                            ErrorCode::invalid_argument, {"no such file"})));
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(FirstUse, CountsNoDevicesWhereNoGpuIsUsable) {
  EXPECT_EXIT(
      {
        ::setenv("TUTTI_BACKEND", "cuda", 1);
        ::setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
        finish(device_count() == 0 && !is_available() && !is_initialized());
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(FirstUse, SaysOnceThatVirtualDevicesStandInForGpus) {
  const auto use = [](const char* backend) {
    ::setenv("TUTTI_BACKEND", backend, 1);
    ::setenv("TUTTI_VIRTUAL_DEVICES", "3", 1);
    ::setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    static_cast<void>(device_count());
    synchronize();
    synchronize(2);
    finish(backend_kind() == BackendKind::host);
  };
  EXPECT_EXIT(
      use("auto"), testing::ExitedWithCode(0),
      "^tutti: warning: no GPU is usable, so the 3 devices are virtual .*CUDA.*TUTTI_BACKEND=host\n$");
  EXPECT_EXIT(use("host"), testing::ExitedWithCode(0), "^$");
}

TEST_F(FirstUse, HappensOnceWhenThreadsRaceToIt) {
  EXPECT_EXIT(
      {
        std::atomic<int> ready = 0;
        std::vector<Runtime*> seen(8);
        std::vector<std::thread> threads;
        for (Runtime*& runtime : seen) {
          threads.emplace_back([&ready, &runtime] {
            ++ready;
            while (ready < 8) std::this_thread::yield();
            init();
            runtime = &Runtime::get();
          });
        }
        for (std::thread& thread : threads) thread.join();
        bool same = true;
        for (const Runtime* runtime : seen) same = same && runtime == seen[0];
        finish(same && Runtime::get().generation() == 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(FirstUse, RefusesAnUnknownBackend) {
  EXPECT_EXIT(
      {
        ::setenv("TUTTI_BACKEND", "abacus", 1);
        const bool refused = static_cast<bool>(
            refuses([] { init(); }, ErrorCode::invalid_argument, {"TUTTI_BACKEND", "abacus"}));
        finish(refused && !is_initialized() && !is_available());
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(FirstUse, FindsGpusOrSaysWhyNot) {
  EXPECT_EXIT(
      {
        ::setenv("TUTTI_BACKEND", "cuda", 1);
        bool good = false;
        try {
          good = backend_kind() == BackendKind::cuda;
        } catch (const Error& error) {
          const std::string message = error.what();
          const std::string beginning = "TUTTI_BACKEND is cuda, but no GPU is usable: ";
          good = error.code() == ErrorCode::unsupported && message.starts_with(beginning) &&
                 message.size() > beginning.size() && !is_initialized();
        }
        finish(good);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(FirstUse, TakesVirtualDevicesWhenAskedTo) {
  EXPECT_EXIT(
      {
        ::setenv("TUTTI_BACKEND", "host", 1);
        ::setenv("TUTTI_VIRTUAL_DEVICES", "5", 1);
        finish(backend_kind() == BackendKind::host && device_count() == 5);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(FirstUse, MayBeLastUseToo) {
  EXPECT_EXIT(
      {
        // Work in flight and memory owned by static objects when the process ends.
        static const auto storage =
            DeviceStorage::allocate(Runtime::get(), 0, 1 << 20, StreamAccess::ref(current_stream(0)));
        static Event event;
        event.record(Stream(0));
        storage->record_stream(Stream(0));
        Runtime::get().backend().launch_host_function(
            StreamAccess::ref(Stream(0)),
            [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }, nullptr);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(FirstUse, LogsOneLineAtTheLevelAskedFor) {
  const auto log_both = [](const char* level) {
    ::setenv("TUTTI_LOG", level, 1);
    log_warning("something is slow");
    log_info("something was chosen");
    std::exit(0);
  };
  EXPECT_EXIT(log_both("warn"), testing::ExitedWithCode(0), "^tutti: warning: something is slow\n$");
  EXPECT_EXIT(log_both("info"), testing::ExitedWithCode(0),
              "^tutti: warning: something is slow\ntutti: something was chosen\n$");
  EXPECT_EXIT(log_both("off"), testing::ExitedWithCode(0), "^$");
}

TEST(Runtime, OrdersStreams) {
  Runtime& runtime = Runtime::get();
  const Stream earlier(0);
  const Stream later(device_count() > 1 ? 1 : 0);
  StreamGate gate(earlier);
  runtime.part<Streams>().order(StreamAccess::ref(earlier), StreamAccess::ref(later));
  const StreamFlag done(later);
  EXPECT_TRUE(done.stays_unset());
  gate.open();
  EXPECT_TRUE(done.becomes_set());
}

TEST(Runtime, OrdersStreamsFromManyThreadsWithFewEvents) {
  Runtime& runtime = Runtime::get();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      const Stream a(0);
      const Stream b(0);
      for (int i = 0; i < 200; ++i)
        runtime.part<Streams>().order(StreamAccess::ref(i % 2 == 0 ? a : b),
                                      StreamAccess::ref(i % 2 == 0 ? b : a));
      a.synchronize();
      b.synchronize();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(&runtime, &Runtime::get());
}

LateReleases::ReleaseList late(std::shared_ptr<void> resource) {
  LateReleases::ReleaseList ones(1);
  ones.front().resource = std::move(resource);
  return ones;
}

TEST(Runtime, LetsGoOfCollectedResourcesAtTheNextCall) {
  Runtime& runtime = Runtime::get();
  auto resource = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = resource;
  runtime.part<LateReleases>().add(late(std::move(resource)));
  EXPECT_FALSE(watched.expired());
  synchronize(0);
  EXPECT_TRUE(watched.expired());
}

TEST(Runtime, LetsResourcesCollectMoreWhileTheyGo) {
  Runtime& runtime = Runtime::get();
  auto inner = std::make_shared<int>(2);
  const std::weak_ptr<int> watched = inner;
  runtime.part<LateReleases>().add(
      late(std::shared_ptr<void>(nullptr, [&runtime, inner = std::move(inner)](void*) mutable {
        runtime.part<LateReleases>().add(late(std::move(inner)));
      })));
  runtime.part<LateReleases>().release();
  runtime.part<LateReleases>().release();
  EXPECT_TRUE(watched.expired());
}

TEST(Runtime, LetsGoOfResourcesWhenTheirStreamsHavePassed) {
  Runtime& runtime = Runtime::get();
  const Stream stream(0);
  const Stream other(0);
  auto resource = std::make_shared<int>(3);
  const std::weak_ptr<int> watched = resource;
  StreamGate gate(stream);
  StreamGate other_gate(other);
  LateReleases::ReleaseList ones = late(std::move(resource));
  ones.front().streams = {StreamAccess::ref(stream)};
  ones.front().marks.emplace_back(runtime.part<EventPool>(), 0);
  runtime.backend().record_event(ones.front().marks.front().handle(), StreamAccess::ref(other));
  runtime.part<LateReleases>().add(std::move(ones));
  runtime.part<LateReleases>().release();
  EXPECT_FALSE(watched.expired());
  gate.open();
  stream.synchronize();
  EXPECT_FALSE(watched.expired()) << "the work behind the mark is not done";
  other_gate.open();
  other.synchronize();
  runtime.part<LateReleases>().release();
  EXPECT_TRUE(watched.expired());
}

struct Counted {
  explicit Counted(Runtime&) { ++made; }
  static inline std::atomic<int> made = 0;
};

TEST(RuntimeParts, IsMadeOnceWhenThreadsRaceToIt) {
  std::vector<Counted*> seen(8);
  std::vector<std::thread> threads;
  for (Counted*& object : seen) threads.emplace_back([&object] { object = &Runtime::get().part<Counted>(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Counted::made, 1);
  for (const Counted* object : seen) EXPECT_EQ(object, seen[0]);
}

struct FailsAtFirst {
  explicit FailsAtFirst(Runtime&) {
    if (attempts++ == 0) throw Error(ErrorCode::unsupported, "not yet");
  }
  static inline int attempts = 0;
};

TEST(RuntimeParts, IsTriedAgainAfterAFailure) {
  EXPECT_THROW(static_cast<void>(Runtime::get().part<FailsAtFirst>()), Error);
  EXPECT_NO_THROW(static_cast<void>(Runtime::get().part<FailsAtFirst>()));
  EXPECT_EQ(FailsAtFirst::attempts, 2);
}

std::vector<PartSlot> destroyed_parts;

template <PartSlot place>
struct Fixed final : RuntimePart {
  static constexpr PartSlot slot = place;
  explicit Fixed(Runtime&) {}
  ~Fixed() override { destroyed_parts.push_back(place); }
};

/// Uses a part with a place until it is destroyed.
struct Loose {
  explicit Loose(Runtime& owner) : runtime(owner) {}
  ~Loose() {
    EXPECT_TRUE(destroyed_parts.empty());
    EXPECT_EQ(&runtime.part<Fixed<PartSlot::sharing>>(), sharing);
  }
  Runtime& runtime;
  const void* sharing = &runtime.part<Fixed<PartSlot::sharing>>();
};

TEST(RuntimeParts, AreDestroyedByTheirPlacesAfterThoseWithoutOne) {
  destroyed_parts.clear();
  {
    Runtime runtime(std::make_unique<test::AbsentBackend>(), nullptr);
    static_cast<void>(runtime.part<Fixed<PartSlot::events>>());
    static_cast<void>(runtime.part<Fixed<PartSlot::allocators>>());
    static_cast<void>(runtime.part<Loose>());
  }
  EXPECT_EQ(destroyed_parts, (std::vector{PartSlot::sharing, PartSlot::allocators, PartSlot::events}));
}

TEST(Runtime, EnablesPeerAccessWhereThereIsSome) {
  Runtime& runtime = Runtime::get();
  runtime.part<PeerAccess>().enable(0, 0);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int device = 0; device < device_count(); ++device) {
        for (int peer = 0; peer < device_count(); ++peer) {
          if (can_device_access_peer(device, peer)) {
            EXPECT_NO_THROW(runtime.part<PeerAccess>().enable(device, peer));
          } else if (device != peer) {
            EXPECT_TRUE(refuses([&] { runtime.part<PeerAccess>().enable(device, peer); },
                                ErrorCode::peer_unavailable, {}));
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// GPUs that take a while to tell what is captured.
class SlowToTell final : public test::AbsentBackend {
 public:
  BackendKind kind() const noexcept override { return BackendKind::cuda; }
  bool is_capturing(StreamRef) override {
    is_asked = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return true;
  }
  std::atomic<bool> is_asked = false;
};

TEST(ForkedChild, ChangesStreamsThoughAThreadOfItsParentAskedForCaptures) {
  int place = 0;
  const backend::StreamRef external{reinterpret_cast<backend::StreamHandle>(&place), 0};
  note_external_stream(external);
  note_current_stream({}, external);
  SlowToTell backend;
  bool is_captured = false;
  std::thread asking([&] { is_captured = has_capture_on(backend, 0); });
  while (!backend.is_asked) std::this_thread::yield();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);  // ends it, should it wait for that thread
    note_current_stream({}, external);
    std::_Exit(0);
  }
  asking.join();
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(is_captured);
  note_current_stream(external, {});
  EXPECT_FALSE(has_capture_on(backend, 0));
}

/// Holds the lock of the allocators for as long as it is not let go.
class SlowKeeper final : public GraphPoolKeeper {
 public:
  void add_graph_pool(GraphPool /*keeper*/) override {
    has_begun = true;
    while (!may_end) std::this_thread::yield();
  }
  void close_graph_pool(GraphPool /*keeper*/) noexcept override {}

  std::atomic<bool> has_begun{false};
  std::atomic<bool> may_end{false};
};

TEST(ForkedChild, LetsAPoolGoThoughAThreadOfItsParentHeldTheLockOfPools) {
  std::optional<GraphPoolHandle> pool = graph_pool_handle();
  auto& allocators = Runtime::get().part<Allocators>();
  SlowKeeper keeper;
  std::thread adding([&] { allocators.add_keeper(keeper); });
  while (!keeper.has_begun) std::this_thread::yield();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);  // ends it, should it wait for that thread
    pool.reset();
    std::_Exit(0);
  }
  keeper.may_end = true;
  adding.join();
  allocators.remove_keeper(keeper);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tutti
