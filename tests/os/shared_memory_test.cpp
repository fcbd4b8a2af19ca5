// SPDX-License-Identifier: Apache-2.0
#include "os/shared_memory.hpp"

#include "os/descriptor.hpp"
#include "os/shared_file.hpp"
#include "support/errors.hpp"
#include "support/memory/process_resources.hpp"
#include "support/ranks.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

/// What stands between the library and the system: as before Linux 6.11, where a signal undoes what one call
/// has reserved. It comes whenever so many bytes have been.
struct Interruptions {
  std::optional<std::size_t> every;
  bool is_beyond_limit = false;  ///< of the length of files
  int calls = 0;
  bool has_seen_signals_open = false;
};
Interruptions interruptions;

}  // namespace

extern "C" int posix_fallocate(int descriptor, off_t offset, off_t bytes) {
  ++interruptions.calls;
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  for (const int signal : {SIGPROF, SIGALRM, SIGTERM, SIGUSR1, SIGXFSZ})
    interruptions.has_seen_signals_open |= sigismember(&blocked, signal) != 1;
  if (interruptions.every && static_cast<std::size_t>(bytes) > *interruptions.every) return EINTR;
  if (interruptions.is_beyond_limit) {
    raise(SIGXFSZ);
    return EFBIG;
  }
  return fallocate(descriptor, 0, offset, bytes) == 0 ? 0 : errno;
}

namespace tutti {
namespace {

using test::expect_all_right;
using test::refuses;

class SharedMemoryTest : public testing::Test {
 protected:
  SharedMemoryTest() { interruptions = {}; }
};

std::size_t resident_bytes(int descriptor) {
  struct stat status {};
  EXPECT_EQ(fstat(descriptor, &status), 0);
  return static_cast<std::size_t>(status.st_blocks) * 512;
}

TEST_F(SharedMemoryTest, IsReservedInFullHoweverOftenSignalsCome) {
  for (const std::size_t every : {std::size_t{1} << 20, std::size_t{64} << 10, std::size_t{4096}}) {
    SCOPED_TRACE(testing::Message() << "a signal every " << every << " bytes");
    interruptions = {.every = every};
    const std::size_t bytes = (std::size_t{20} << 20) + 4096 * 3 + 1;
    SharedMemory memory(bytes);
    EXPECT_EQ(memory.size(), bytes);
    EXPECT_GE(resident_bytes(memory.share(Audience::anyone).descriptor), bytes);
    EXPECT_LE(interruptions.calls, static_cast<int>(2 * (bytes / every) + 64));
    EXPECT_TRUE(
        std::all_of(memory.data(), memory.data() + bytes, [](std::byte b) { return b == std::byte{}; }));
  }
}

TEST_F(SharedMemoryTest, TakesNoSignalsWhileItIsReserved) {
  const SharedMemory memory(1 << 20);
  EXPECT_GT(interruptions.calls, 0);
  EXPECT_FALSE(interruptions.has_seen_signals_open);
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGPROF), 0) << "afterwards they are taken as before";
}

TEST_F(SharedMemoryTest, WhatIsNeverLetAloneFails) {
  interruptions.every = 0;
  EXPECT_TRUE(refuses([] { SharedMemory(1 << 20); }, ErrorCode::out_of_memory,
                      {"1048576 bytes cannot be allocated"}));
  EXPECT_LT(interruptions.calls, 10'000);
}

/// For files; `ulimit -f` of the process, which nothing but its end raises again where that is not allowed.
void limit_files_to(std::size_t bytes) {
  rlimit limit{};
  EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = bytes;
  EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

TEST_F(SharedMemoryTest, TheLimitOnFilesIsAnError) {
  expect_all_right(1, [](Exchange& /*exchange*/) {
    limit_files_to(1024 * 1000);
    const std::size_t descriptors = test::open_descriptors();
    EXPECT_TRUE(refuses([] { SharedMemory(1024 * 1001); }, ErrorCode::out_of_memory,
                        {"1025024 bytes cannot be allocated", "1024000 bytes", "ulimit -f"}));
    EXPECT_EQ(test::open_descriptors(), descriptors);
    EXPECT_EQ(SharedMemory(1024 * 1000).size(), 1024U * 1000);
    sigset_t pending;
    sigpending(&pending);
    EXPECT_EQ(sigismember(&pending, SIGXFSZ), 0);
  });
}

/// As if the limit had been set after the library looked at it.
TEST_F(SharedMemoryTest, TheSignalOfTheLimitDoesNotEndTheProcess) {
  expect_all_right(1, [](Exchange& /*exchange*/) {
    interruptions.is_beyond_limit = true;
    const auto is_pending = [] {
      sigset_t pending;
      sigpending(&pending);
      return sigismember(&pending, SIGXFSZ) == 1;
    };
    EXPECT_TRUE(refuses([] { SharedMemory(4096); }, ErrorCode::out_of_memory, {"ulimit -f"}));
    EXPECT_FALSE(is_pending());
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &own, nullptr);
    raise(SIGXFSZ);
    EXPECT_TRUE(refuses([] { SharedMemory(4096); }, ErrorCode::out_of_memory, {"ulimit -f"}));
    EXPECT_TRUE(is_pending()) << "the program's own is left to it";
  });
}

TEST(DescriptorTest, IsNoneOfTheStandardStreams) {
  expect_all_right(1, [](Exchange& /*exchange*/) {
    std::vector<int> kept;
    for (int stream = 0; stream < 3; ++stream) kept.push_back(fcntl(stream, F_DUPFD_CLOEXEC, 50));
    for (int stream = 0; stream < 3; ++stream) close(stream);
    std::vector<int> numbers;
    bool is_private = true;
    {
      std::vector<Descriptor> files;
      for (int i = 0; i < 5; ++i) {
        const Descriptor& file = files.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
        numbers.push_back(file.number());
        is_private &= (fcntl(file.number(), F_GETFD) & FD_CLOEXEC) != 0;
      }
    }
    const bool are_closed =
        std::ranges::all_of(numbers, [](int number) { return fcntl(number, F_GETFD) < 0; });
    const std::optional<std::string> version = contents_of("/proc/version");
    SharedMemory memory(4096);
    const bool are_free = fcntl(0, F_GETFD) < 0 && fcntl(1, F_GETFD) < 0 && fcntl(2, F_GETFD) < 0;
    for (int stream = 0; stream < 3; ++stream) dup2(kept[static_cast<std::size_t>(stream)], stream);
    EXPECT_TRUE(std::ranges::all_of(numbers, [](int number) { return number > 2; }));
    EXPECT_TRUE(is_private);
    EXPECT_TRUE(are_closed);
    EXPECT_TRUE(version.has_value());
    EXPECT_TRUE(are_free);
    EXPECT_GT(memory.share(Audience::anyone).descriptor, 2);
  });
}

TEST(DescriptorTest, NoneIsNotOpen) {
  EXPECT_FALSE(Descriptor().is_open());
  const Descriptor none(open("/no/such/file", O_RDONLY));
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(none.is_open());
  EXPECT_FALSE(contents_of("/no/such/file").has_value());
  EXPECT_FALSE(contents_of("/").has_value()) << "a directory";
  EXPECT_EQ(first_line_of("/no/such/file"), "");
}

TEST(DescriptorTest, ReadsFilesToTheirEnd) {
  const Descriptor file(memfd_create("text", MFD_CLOEXEC));
  const std::string text = "first line\n" + std::string(10'000, 'x') + "\nlast";
  ASSERT_EQ(write(file.number(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  const std::string path = "/proc/self/fd/" + std::to_string(file.number());
  EXPECT_EQ(contents_of(path), text);
  EXPECT_EQ(first_line_of(path), "first line");
}

TEST_F(SharedMemoryTest, IsOpenedThroughWhoeverKeepsItOpen) {
  const std::size_t descriptors = test::open_descriptors();
  {
    std::optional<SharedMemory> made(std::in_place, 4096);
    made->data()[7] = std::byte{42};
    SharedMemory kept = SharedMemory::kept_open(made->share(Audience::anyone));
    const SharedMemory::Handle first = made->share(Audience::anyone);
    made.reset();
    EXPECT_TRUE(refuses([&] { const SharedMemory gone(first); }, ErrorCode::peer_unavailable, {}));
    const SharedMemory opened(kept.share(Audience::anyone));
    EXPECT_EQ(opened.data()[7], std::byte{42});
    SharedMemory::Handle by_socket = kept.share(Audience::anyone);
    by_socket.descriptor = -1;  // as if /proc were closed
    EXPECT_EQ(SharedMemory(by_socket).data()[7], std::byte{42});
    kept.withdraw();
    EXPECT_TRUE(refuses([&] { const SharedMemory gone(by_socket); }, ErrorCode::peer_unavailable, {}));
    const SharedMemory again(kept.share(Audience::anyone));
    EXPECT_EQ(again.data()[7], std::byte{42});
  }
  EXPECT_EQ(test::open_descriptors(), descriptors);
}

}  // namespace
}  // namespace tutti
