// SPDX-License-Identifier: Apache-2.0
#include "ranks/memory/own_memory.hpp"
#include "support/descriptor_limit.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/memory/process_resources.hpp"
#include "support/ranks.hpp"
#include "support/standard_error.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/communicator.hpp"
#include "tutti/registered_memory.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"
#include "tutti/virtual_devices.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// Memory of the program's own that cannot be registered, or cannot be opened by other ranks.
namespace tutti::test {
namespace {

class RefusedMemory : public testing::TestWithParam<Origin> {};
INSTANTIATE_TEST_SUITE_P(Origins, RefusedMemory, each_origin(), name_of_origin);

TEST_P(RefusedMemory, IsWhatCannotBeRegistered) {
  expect_all_right(1, [origin = GetParam()](Exchange&) {
    const OwnMemory own(0, origin);
    const auto refused = [](void* pointer, std::size_t bytes, const char* what) {
      return refuses([&] { static_cast<void>(register_memory(pointer, bytes)); }, ErrorCode::invalid_argument,
                     {"register_memory", what});
    };
    EXPECT_TRUE(refused(nullptr, 16, "pointer is"));
    EXPECT_TRUE(refused(own.address(), 0, "bytes 0"));
    EXPECT_TRUE(refused(own.address(), std::size_t{1} << 40U, "the allocation ends"));
    std::vector<int> on_host(100);
    EXPECT_TRUE(refused(on_host.data(), 16, "expected an address in an allocation of a device"));
    const Tensor ours = zeros({own_count}, {.dtype = DType::int32, .device = 0});
    EXPECT_TRUE(refused(ours.data(), 16, "needs no registration"));

    MemoryRegistration registration = register_memory(own.address() + 512, 1024);
    for (const std::size_t offset : {0U, 512U, 1024U, 1535U})
      EXPECT_TRUE(refused(own.address() + offset, 1024, "overlap the registration"));
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

/// Lets this process's next attempt to offer memory to others fail.
void refuse_next_offer() {
  virtual_devices::inject({.operation = virtual_devices::Operation::share});
}

TEST(RefusedPieces, AreToldOfOnceAndNotTriedAgainUntilTheyChange) {
  expect_all_right(2, [](Exchange& exchange) {
    if (!on_virtual_devices()) GTEST_SKIP() << "needs injected faults";
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange), Origin::pieces);
    MemoryRegistration registration = own.registered();
    Communicator communicator = make(exchange);
    if (rank == 0) refuse_next_offer();
    for (int round = 0; round < 3; ++round) {
      StandardError log;
      expect_sum(communicator, own, rank, 1);
      const std::string text = log.end();
      EXPECT_EQ(is_in_place(communicator), rank == 1);
      EXPECT_EQ(text.find("injected") != std::string::npos, rank == 0 && round == 0) << text;
    }
    EXPECT_EQ(communicator.explain().find("injected") != std::string::npos, rank == 0);
    transport::team::synchronize(exchange);
    registration.release();
    registration = own.registered();
    expect_sum(communicator, own, rank, 1);
    EXPECT_TRUE(is_in_place(communicator));
    synchronize(device_of(exchange));
    transport::team::synchronize(exchange);
  });
}

TEST(RefusedPieces, OfForeignMemoryAreTriedAgainOnceTheyAreOthers) {
  expect_all_right(2, [](Exchange& exchange) {
    if (!on_virtual_devices()) GTEST_SKIP() << "needs injected faults";
    const int rank = exchange.rank();
    OwnMemory own(device_of(exchange), Origin::pieces);
    Communicator communicator = make_opening(exchange);
    if (rank == 0) refuse_next_offer();
    for (int round = 0; round < 3; ++round) {
      if (round == 2) own.map_anew();
      expect_sum(communicator, own, rank, 1);
      EXPECT_EQ(is_in_place(communicator), rank == 1 || round == 2);
      synchronize(device_of(exchange));
      transport::team::synchronize(exchange);
    }
  });
}

TEST(RefusedPieces, AreThoseOfMoreDescriptorsThanTheProcessMayHave) {
  expect_all_right(2, [](Exchange& exchange) {
    const int rank = exchange.rank();
    const int device = device_of(exchange);
    const OwnMemory own(device, Origin::pieces, 10 * own_count);  // more than 20 pieces
    MemoryRegistration registration;
    if (rank == 0) {
      const DescriptorLimit limit(open_descriptors() + 25);
      EXPECT_TRUE(refuses([&] { static_cast<void>(own.registered()); }, ErrorCode::unsupported,
                          {"register_memory", "RLIMIT_NOFILE"}));
    }
    if (rank == 0) registration = own.registered();
    Communicator communicator = make(exchange);
    const Tensor small = full({own_count}, 1, {.dtype = DType::int32, .device = Device(device)});
    communicator.broadcast({small}, 0);
    synchronize(device);
    const Tensor mine = rank == 0
                            ? own.full_of(7)
                            : zeros({10 * own_count}, {.dtype = DType::int32, .device = Device(device)});
    std::optional<DescriptorLimit> limit;
    if (rank == 1) limit.emplace(open_descriptors() + 25);
    transport::team::synchronize(exchange);
    const std::string failure = failure_of(device, [&] { communicator.broadcast({mine}, 0); });
    EXPECT_TRUE(mentions(failure, {"rank 1 cannot open memory of rank 0", "RLIMIT_NOFILE"}));
    transport::team::synchronize(exchange);
  });
}

}  // namespace
}  // namespace tutti::test
