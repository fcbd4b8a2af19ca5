// SPDX-License-Identifier: Apache-2.0
#include "ranks/memory/own_memory.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "tutti/registered_memory.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// Memory of the program's own that cannot be registered, or cannot be opened
/// by other ranks.
namespace tutti {
namespace {

using test::expect_all_right;
using test::Origin;
using test::own_count;
using test::OwnMemory;
using test::refuses;

class RefusedMemory : public testing::TestWithParam<Origin> {};
INSTANTIATE_TEST_SUITE_P(Origins, RefusedMemory, test::each_origin(),
                         test::name_of_origin);

TEST_P(RefusedMemory, IsWhatCannotBeRegistered) {
  expect_all_right(1, [origin = GetParam()](Exchange &) {
    const OwnMemory own(0, origin);
    const auto refused = [](void *pointer, std::size_t bytes,
                            const char *what) {
      return refuses(
          [&] { static_cast<void>(register_memory(pointer, bytes)); },
          ErrorCode::invalid_argument, {"register_memory", what});
    };
    EXPECT_TRUE(refused(nullptr, 16, "pointer is"));
    EXPECT_TRUE(refused(own.address(), 0, "bytes 0"));
    EXPECT_TRUE(
        refused(own.address(), std::size_t{1} << 40U, "the allocation ends"));
    std::vector<int> on_host(100);
    EXPECT_TRUE(refused(on_host.data(), 16,
                        "expected an address in an allocation of a device"));
    const Tensor ours =
        zeros({own_count}, {.dtype = DType::int32, .device = 0});
    EXPECT_TRUE(refused(ours.data(), 16, "needs no registration"));

    MemoryRegistration registration =
        register_memory(own.address() + 512, 1024);
    for (const std::size_t offset : {0U, 512U, 1024U, 1535U})
      EXPECT_TRUE(
          refused(own.address() + offset, 1024, "overlap the registration"));
    const MemoryRegistration before = register_memory(own.address(), 512);
    const MemoryRegistration after = register_memory(own.address() + 1536, 16);
    MemoryRegistration moved = std::move(registration);
    EXPECT_TRUE(moved);
    registration = std::move(moved);
    registration.release();
    registration.release();
    EXPECT_TRUE(register_memory(own.address() + 512, 1024));
  });
}

} // namespace
} // namespace tutti
