// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/exercise.hpp"
#include "support/collectives/stream_order.hpp"
#include "support/environment.hpp"
#include "support/machines/machines.hpp"
#include "tutti/communicator.hpp"
#include "tutti/dlpack.hpp"
#include "tutti/event.hpp"
#include "tutti/persistent.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

/// However a process ends, it neither crashes nor hangs. Each test ends a child process of its own.
namespace tutti::test {
namespace {

constexpr unsigned hang_seconds = 60;

class ProcessExit : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

/// Runs `body` in a child, which must end by itself with exit status 0.
#define TUTTI_EXPECT_CLEAN_EXIT(body) \
  EXPECT_EXIT(                        \
      {                               \
        alarm(hang_seconds);          \
        (body)();                     \
      },                              \
      testing::ExitedWithCode(0), "")

std::vector<Tensor> broadcast_slowly() {
  const Tensor source = full({1 << 20}, 3, {.device = 0});
  for (const Device device : first_devices()) {
    for (int i = 0; i < 20; ++i) keep_busy(current_stream(device.index()));
  }
  return broadcast(source, first_devices());
}

TEST_F(ProcessExit, WithWorkInFlight) {
  TUTTI_EXPECT_CLEAN_EXIT([] {
    static_cast<void>(broadcast_slowly());
    std::exit(0);
  });
}

TEST_F(ProcessExit, WithWorkInFlightAndTensorsAlive) {
  TUTTI_EXPECT_CLEAN_EXIT([] {
    const std::vector<Tensor> results = broadcast_slowly();
    std::exit(0);
  });
}

TEST_F(ProcessExit, WithStaticTensorsStreamsAndEvents) {
  TUTTI_EXPECT_CLEAN_EXIT([] {
    static std::vector<Tensor> results;  // made before the library, destroyed after it
    static std::optional<Stream> stream;
    static Event event;
    results = broadcast_slowly();
    stream.emplace(0);
    event.record(*stream);
    std::exit(0);
  });
}

TEST_F(ProcessExit, WithAStaticPersistentCollective) {
  TUTTI_EXPECT_CLEAN_EXIT([] {
    static std::optional<PersistentCollective> persistent;
    const Tensor source = zeros({1000}, {.device = 0});
    std::vector<Tensor> out;
    for (const Device device : first_devices()) out.push_back(zeros({1000}, {.device = device}));
    for (const Device device : first_devices()) synchronize(device);
    persistent.emplace(persistent_broadcast(source, out));
    persistent->launch();
    std::exit(0);
  });
}

TEST_F(ProcessExit, WhileThreadsCallCollectives) {
  TUTTI_EXPECT_CLEAN_EXIT([] {
    for (int thread = 0; thread < 3; ++thread) {
      std::thread([] {
        for (;;) static_cast<void>(broadcast(ones({100}, {.device = 0}), first_devices()));
      }).detach();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::_Exit(0);
  });
}

TEST_F(ProcessExit, OnAThreadOfTheLibrarys) {
  if (!on_virtual_devices()) GTEST_SKIP() << "only virtual devices run a program's code on such a thread";
  TUTTI_EXPECT_CLEAN_EXIT([] {
    static std::optional<Communicator> communicator;
    communicator.emplace(CommunicatorOptions{.devices = first_devices(2)});
    communicator->barrier();
    synchronize(0);
    const Stream stream(0);
    virtual_devices::launch(stream, "exit", {}, [](auto) { std::exit(0); });
    stream.synchronize();
    for (;;) pause();
  });
}

TEST_F(ProcessExit, WithACommunicatorThatIsNeverDestroyed) {
  EXPECT_EXIT(
      {
        alarm(hang_seconds);
        // Runs after all handlers of the library and the driver, which are not in use yet; threads go on
        // meanwhile, and on GPUs find that the driver is gone.
        std::atexit([] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); });
        static auto& communicator = *new Communicator({.devices = first_devices(1)});
        static auto& tensor = *new Tensor(full({100}, 1, {.device = 0}));
        static auto& call = *new PersistentCollective(
            communicator.persistent([] { communicator.all_reduce({tensor}, {tensor}); }));
        call.launch(current_stream(0));
        std::exit(0);
      },
      testing::ExitedWithCode(0), "^$");
}

/// What is destroyed at exit frees memory, which no signal handler should; programs do it all the same.
bool may_exit_in_signal_handlers() {
#if defined(__SANITIZE_THREAD__)
  return false;
#else
  return true;
#endif
}

TEST_F(ProcessExit, InASignalHandler) {
  if (!may_exit_in_signal_handlers()) GTEST_SKIP() << "the thread sanitizer ends processes that do so";
  TUTTI_EXPECT_CLEAN_EXIT([] {
    static std::optional<Communicator> communicator;
    communicator.emplace(CommunicatorOptions{.devices = first_devices(2)});
    communicator->barrier();
    std::signal(SIGTERM, [](int) { std::exit(0); });
    kill(getpid(), SIGTERM);
    for (;;) pause();
  });
}

TEST_F(ProcessExit, WithAFailureNobodyAskedFor) {
  if (!on_virtual_devices()) GTEST_SKIP() << "faults are injected into virtual devices";
  TUTTI_EXPECT_CLEAN_EXIT([] {
    const Tensor source = zeros({1000}, {.device = 0});
    virtual_devices::inject({.operation = virtual_devices::Operation::kernel,
                             .kind = virtual_devices::FaultKind::fail_asynchronously,
                             .count = forever});
    static_cast<void>(broadcast(source, first_devices(), {.transport = TransportKind::staged}));
    source.fill_(1);
    std::exit(0);
  });
}

/// Waits for `child`; true if it ended with status 0.
bool ended_well(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(ProcessExit, OfForkedChildrenThatDoNotUseTheLibrary) {
  TUTTI_EXPECT_CLEAN_EXIT([] {
    static std::vector<Tensor> results = broadcast_slowly();
    const pid_t child = fork();
    if (child == 0) {
      alarm(hang_seconds);
      std::exit(0);  // runs static destructors over the parent's tensors, without the parent's threads
    }
    const bool child_ended_well = ended_well(child);
    // The parent goes on as if nothing had happened.
    const bool right = results.back().to_vector<float>() == std::vector<float>(1 << 20, 3.0F);
    std::exit(child_ended_well && right ? 0 : 1);
  });
}

/// The message of the error that `body` throws, else nothing.
template <class Body>
std::string message_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST_F(ProcessExit, OfForkedChildrenThatUseTheParentsDevices) {
  TUTTI_EXPECT_CLEAN_EXIT([] {
    const std::vector<Tensor> results = broadcast_slowly();
    synchronize_all();  // a sanitizer's own locks would be held for ever in the child
    const pid_t child = fork();
    if (child == 0) {
      alarm(hang_seconds);
      const std::string expected = "forked from one that was using devices";
      const bool are_refused =
          message_of([] { synchronize(0); }).find(expected) != std::string::npos &&
          message_of([&] { static_cast<void>(results[0].to_bytes()); }).find(expected) != std::string::npos &&
          message_of([&] { results[0].fill_(1); }).find(expected) != std::string::npos;
      std::exit(are_refused && !is_available() && device_count() == 0 && !is_initialized() ? 0 : 1);
    }
    std::exit(ended_well(child) ? 0 : 1);
  });
}

TEST_F(ProcessExit, OfForkedChildrenWithDevicesOfTheirOwn) {
  TUTTI_EXPECT_CLEAN_EXIT([] {
    std::vector<Tensor> results = broadcast_slowly();
    std::optional<PersistentCollective> persistent = persistent_broadcast(results.front(), results);
    persistent->launch(current_stream(results.front().device().index()));
    Tensor imported = from_dlpack(to_dlpack(results.back()));
    synchronize_all();
    const pid_t child = fork();
    if (child == 0) {
      alarm(hang_seconds);
      imported = {};
      persistent.reset();
      results.clear();
      virtual_devices::VirtualMachine machine;
      machine.device_count = 2;
      virtual_devices::start(machine);
      const Tensor own = full({1000}, 5, {.device = 1});
      std::exit(own.to_vector<float>() == std::vector<float>(1000, 5.0F) ? 0 : 1);
    }
    std::exit(ended_well(child) ? 0 : 1);
  });
}

/// Sanitizers' allocators have locks of their own, which forks do not look after.
bool are_forks_of_busy_processes_safe() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;
#else
  return true;
#endif
}

TEST_F(ProcessExit, OfForkedChildrenWhileThreadsAllocate) {
  if (!are_forks_of_busy_processes_safe()) GTEST_SKIP() << "sanitized";
  TUTTI_EXPECT_CLEAN_EXIT([] {
    static std::vector<Tensor> tensors = broadcast_slowly();
    std::jthread allocating([](const std::stop_token& stop) {
      while (!stop.stop_requested()) static_cast<void>(empty({1 << 20}, {.device = 0}));
    });
    bool are_right = true;
    for (int repetition = 0; repetition < 50; ++repetition) {
      const pid_t child = fork();
      if (child == 0) {
        alarm(hang_seconds / 4);
        tensors.clear();
        std::_Exit(0);
      }
      are_right &= ended_well(child);
    }
    allocating.request_stop();
    allocating.join();
    std::exit(are_right ? 0 : 1);
  });
}

TEST_F(ProcessExit, OfForkedChildrenWhileDevicesAreStarted) {
  if (!are_forks_of_busy_processes_safe()) GTEST_SKIP() << "sanitized";
  const char* const backend = std::getenv("TUTTI_BACKEND");
  if (backend != nullptr && backend == std::string_view("cuda"))
    GTEST_SKIP() << "children would start all GPUs, one after another";
  TUTTI_EXPECT_CLEAN_EXIT([] {
    bool are_right = true;
    std::jthread starting([] { init(); });
    for (int repetition = 0; repetition < 50; ++repetition) {
      const pid_t child = fork();
      if (child == 0) {
        alarm(hang_seconds / 4);
        static_cast<void>(message_of([] { synchronize(0); }));  // refused or not, but at once
        std::_Exit(0);
      }
      are_right &= ended_well(child);
    }
    starting.join();
    std::exit(are_right ? 0 : 1);
  });
}

TEST_F(ProcessExit, OfForkedChildrenByExec) {
  TUTTI_EXPECT_CLEAN_EXIT([] {
    const std::vector<Tensor> results = broadcast_slowly();
    const pid_t child = fork();
    if (child == 0) {
      execl("/bin/true", "true", nullptr);
      std::_Exit(1);
    }
    std::exit(ended_well(child) ? 0 : 1);
  });
}

TEST_F(ProcessExit, OfForkedChildrenThatStartTheLibraryThemselves) {
  TUTTI_EXPECT_CLEAN_EXIT([] {
    // The library starts with its first use; a fork before that leaves both sides free to use it.
    const pid_t child = fork();
    if (child == 0) alarm(hang_seconds);
    const std::vector<Tensor> results = broadcast_slowly();
    const bool right = results.back().to_vector<float>() == std::vector<float>(1 << 20, 3.0F);
    if (child == 0) std::exit(right ? 0 : 1);
    std::exit(ended_well(child) && right ? 0 : 1);
  });
}

}  // namespace
}  // namespace tutti::test
