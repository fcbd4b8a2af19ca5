// SPDX-License-Identifier: Apache-2.0
#include "backend/host/host_sharing.hpp"
#include "support/ranks.hpp"
#include "transport/team/shared/agreement.hpp"

#include <cstddef>
#include <fstream>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

/// Device memory where the process has few addresses (`ulimit -v`).
namespace tutti::backend {
namespace {

using test::expect_all_right;
using transport::team::synchronize;

/// Half of a device's.
constexpr std::size_t block_bytes = std::size_t{32} << 20U;

/// So many beyond those that are in use.
void limit_addresses(std::size_t bytes) {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
  limit.rlim_cur = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + bytes;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

/// The thread sanitizer maps memory as it goes, and ends a process that has no addresses left for it.
bool can_addresses_be_limited() {
#if defined(__SANITIZE_THREAD__)
  return false;
#else
  return true;
#endif
}

TEST_F(HostSharing, AddressesOfFreedMemoryAreUsedAgainWhereThereAreNoOthers) {
  if (!can_addresses_be_limited()) GTEST_SKIP() << "the thread sanitizer needs addresses of its own";
  expect_all_right(1, [this](Exchange& /*exchange*/) {
    boot("island", 2);
    limit_addresses(8 * block_bytes);
    for (int time = 0; time < 40; ++time) {
      void* const block = machine().allocate_device(0, block_bytes);
      ASSERT_NE(block, nullptr) << "block " << time;
      machine().free_device(0, block);
    }
    EXPECT_EQ(machine().memory_info(0).free, memory_bytes);
    void* const pinned = machine().allocate_pinned(6 * block_bytes);
    EXPECT_NE(pinned, nullptr);
    machine().free_pinned(pinned);
    EXPECT_EQ(machine().allocate_pinned(9 * block_bytes), nullptr) << "nothing helps there";
  });
}

TEST_F(HostSharing, AddressesOfFreedMemoryServeSharedMemoryToo) {
  if (!can_addresses_be_limited()) GTEST_SKIP() << "the thread sanitizer needs addresses of its own";
  expect_all_right(2, [this](Exchange& exchange) {
    boot("island", 2);
    void* const block = exchange.rank() == 0 ? machine().allocate_device(0, block_bytes) : nullptr;
    limit_addresses(4 * block_bytes + block_bytes / 2);
    const auto use_up = [&] {
      for (int time = 0; time < 10; ++time) {
        void* const other = machine().allocate_device(1, block_bytes);
        ASSERT_NE(other, nullptr) << "block " << time;
        machine().free_device(1, other);
      }
    };
    use_up();
    const MemoryHandle handle = handle_of(exchange, 0, block);
    if (exchange.rank() == 1) {
      use_up();
      EXPECT_NE(open(0, handle), nullptr);
    }
    synchronize(exchange);
  });
}

}  // namespace
}  // namespace tutti::backend
