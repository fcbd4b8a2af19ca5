// SPDX-License-Identifier: Apache-2.0
#include "tutti/registered_memory.hpp"

#include "base/rounding.hpp"
#include "device/runtime.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/machines/machines.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "support/values/test_tensor.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/collectives.hpp"
#include "tutti/communicator.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

/// Memory that the program has allocated itself, by `register_memory` and without it.
namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::all_right;
using test::expect_all_right;
using test::holds;
using test::killed;
using test::mentions;
using test::Ranks;
using test::refuses;

/// Large enough to be read where they lie: of int32, more than 4 MiB.
constexpr std::int64_t count = 1'200'000;

/// The two ways in which a program gets memory of a device.
enum class Origin : std::uint8_t { block, pieces };

/// A device's memory as a program gets it without tutti.
class OwnMemory {
 public:
  explicit OwnMemory(int device, Origin origin = Origin::block, std::int64_t elements = count)
      : device_(device), elements_(elements), address_(allocate(origin)) {}
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;
  ~OwnMemory() { free(); }

  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(elements_) * sizeof(std::int32_t);
  }
  [[nodiscard]] std::byte* address() const { return static_cast<std::byte*>(address_); }
  [[nodiscard]] Tensor tensor() const { return tensor(0, elements_); }
  [[nodiscard]] Tensor tensor(std::size_t offset, std::int64_t elements) const {
    return from_blob(address() + offset, {elements}, {.dtype = DType::int32, .device = Device(device_)});
  }
  [[nodiscard]] Tensor full_of(int value) const {
    Tensor tensor = this->tensor();
    tensor.fill_(value);
    return tensor;
  }
  [[nodiscard]] MemoryRegistration registered() const { return register_memory(address_, bytes()); }
  void free() {
    void* const freed = std::exchange(address_, nullptr);
    if (freed == nullptr) return;
    synchronize(device_);
    if (range_ == nullptr) return backend().free_device(device_, freed);
    unmap();
    backend().release_addresses(device_, std::exchange(range_, nullptr), range_bytes_);
  }
  /// Exchanges the memory of pieces for other memory at the same addresses.
  void map_anew() {
    unmap();
    map();
  }

 private:
  static constexpr std::size_t before = 4096;  ///< bytes of the first piece that are not used

  [[nodiscard]] static backend::Backend& backend() { return Runtime::get().backend(); }
  void map() {
    for (std::size_t at = 0; at < range_bytes_; at += page_)
      EXPECT_TRUE(backend().map_pages(device_, range_ + at, page_));
  }
  void unmap() {
    for (std::size_t at = 0; at < range_bytes_; at += page_)
      backend().unmap_pages(device_, range_ + at, page_);
  }
  [[nodiscard]] void* allocate(Origin origin) {
    if (origin == Origin::block) return backend().allocate_device(device_, bytes());
    page_ = backend().page_bytes(device_);
    range_bytes_ = round_up(before + bytes(), page_);
    range_ = static_cast<std::byte*>(backend().reserve_addresses(device_, range_bytes_));
    map();
    return range_ + before;
  }

  int device_;
  std::int64_t elements_;
  std::size_t page_ = 0;
  std::size_t range_bytes_ = 0;
  std::byte* range_ = nullptr;  ///< of memory by pieces
  void* address_;
};

class RegisteredMemory : public testing::TestWithParam<Origin> {};
INSTANTIATE_TEST_SUITE_P(Origins, RegisteredMemory, testing::Values(Origin::block, Origin::pieces),
                         [](const auto& tested) {
                           return tested.param == Origin::block ? "Block" : "Pieces";
                         });

[[nodiscard]] int device_of(const Exchange& exchange) {
  return exchange.rank() % device_count();
}

[[nodiscard]] Communicator make(Exchange& exchange) {
  return Communicator(
      exchange, {.devices = {Device(device_of(exchange))}, .timeout = 30s, .transport = TransportKind::p2p});
}

[[nodiscard]] bool is_in_place(const Communicator& communicator) {
  const std::string algorithm = communicator.last_plan().algorithm;
  EXPECT_TRUE(mentions(algorithm, {"direct"}));
  return algorithm.find("through stand-ins") == std::string::npos;
}

/// Sums the members' memory in place, which is filled with the ranks' numbers, and expects `sum`.
void expect_sum(Communicator& communicator, const OwnMemory& own, int rank, int sum) {
  const Tensor mine = own.full_of(rank);
  communicator.all_reduce({mine}, {mine});
  EXPECT_TRUE(holds(mine, sum));
}

TEST_P(RegisteredMemory, IsUsedInPlace) {
  expect_all_right(2, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange), origin);
    const OwnMemory sums(device_of(exchange), origin);
    const MemoryRegistration registration = own.registered();
    const MemoryRegistration registration_of_sums = sums.registered();
    EXPECT_EQ(registration.data(), own.address());
    EXPECT_EQ(registration.bytes(), own.bytes());
    {
      Communicator communicator = make(exchange);
      for (int round = 0; round < 3; ++round) {
        const Tensor mine = own.full_of(round + rank);
        communicator.all_reduce({mine}, {sums.tensor()});
        EXPECT_TRUE(is_in_place(communicator));
        EXPECT_TRUE(holds(sums.tensor(), 2 * round + 1));
        communicator.broadcast({mine}, round % 2);
        EXPECT_TRUE(is_in_place(communicator));
        EXPECT_TRUE(holds(mine, round + round % 2));
      }
    }
  });
}

TEST_P(RegisteredMemory, GoesWithMemoryThatIsNot) {
  expect_all_right(2, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange), origin);
    MemoryRegistration registration;
    EXPECT_FALSE(registration);
    if (rank == 0) registration = own.registered();
    {
      Communicator communicator = make(exchange);
      expect_sum(communicator, own, rank, 1);
      EXPECT_EQ(is_in_place(communicator), rank == 0);
      const std::string told = communicator.explain();
      EXPECT_EQ(told.find("register_memory") != std::string::npos, rank == 1) << told;
    }
  });
}

TEST_P(RegisteredMemory, SentAndReceived) {
  expect_all_right(2, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange), origin);
    const MemoryRegistration registration = own.registered();
    Communicator communicator = make(exchange);
    for (int round = 0; round < 4; ++round) {
      const Tensor mine = own.full_of(rank == 0 ? round : -1);
      if (rank == 0) communicator.send(mine, 1);
      if (rank == 1) communicator.recv(mine, 0);
      EXPECT_TRUE(holds(mine, round));
    }
    communicator.barrier();
    synchronize(device_of(exchange));
    transport::team::synchronize(exchange);
  });
}

TEST_P(RegisteredMemory, ServesPersistentCalls) {
  expect_all_right(2, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange), origin);
    const MemoryRegistration registration = own.registered();
    {
      Communicator communicator = make(exchange);
      const Tensor mine = own.tensor();
      PersistentCollective call = communicator.persistent([&] { communicator.all_reduce({mine}, {mine}); });
      for (int round = 0; round < 3; ++round) {
        static_cast<void>(own.full_of(round + rank));
        call.launch();
        EXPECT_TRUE(holds(mine, 2 * round + 1));
      }
    }
  });
}

TEST_P(RegisteredMemory, MayBeFreedOnceItIsReleased) {
  expect_all_right(2, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    Communicator communicator = make(exchange);
    for (int round = 0; round < 4; ++round) {
      // Rounds have sizes of their own, whose addresses may come again.
      OwnMemory own(device_of(exchange), origin, count + 4096 * (round % 2));
      MemoryRegistration registration = own.registered();
      const Tensor mine = own.full_of(rank + round);
      communicator.all_reduce({mine}, {mine});
      EXPECT_TRUE(is_in_place(communicator));
      EXPECT_TRUE(holds(mine, 2 * round + 1));
      transport::team::synchronize(exchange);
      registration.release();
      EXPECT_FALSE(registration);
      transport::team::synchronize(exchange);
      communicator.all_reduce({mine}, {mine});
      EXPECT_FALSE(is_in_place(communicator)) << "the registration is over";
      EXPECT_TRUE(holds(mine, 4 * round + 2));
    }
  });
}

TEST(RegisteredBlocks, IsReleasedAfterPersistentCallsAreGone) {
  expect_all_right(2, [](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange));
    MemoryRegistration registration = own.registered();
    {
      Communicator communicator = make(exchange);
      const Tensor mine = own.full_of(rank);
      {
        PersistentCollective call = communicator.persistent([&] { communicator.all_reduce({mine}, {mine}); });
        call.launch();
        EXPECT_TRUE(holds(mine, 1));
      }
      transport::team::synchronize(exchange);
      EXPECT_TRUE(refuses([&] { registration.release(); }, ErrorCode::timeout, {"it stays registered"}))
          << "others keep it open while a communicator with captured calls exists";
      transport::team::synchronize(exchange);
    }
    registration.release();
  });
}

TEST(RegisteredBlocks, IsNotReleasedWhileAnotherWaitsInACall) {
  expect_all_right(2, [](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange));
    MemoryRegistration registration = own.registered();
    Communicator communicator = make(exchange);
    expect_sum(communicator, own, rank, 1);
    const Tensor small = zeros({4}, {.dtype = DType::int32, .device = device_of(exchange)});
    if (rank == 1) communicator.all_reduce({small}, {small});
    transport::team::synchronize(exchange);
    if (rank == 0) {
      EXPECT_TRUE(refuses([&] { registration.release(); }, ErrorCode::timeout,
                          {"another process has the memory", "it stays registered"}));
      EXPECT_TRUE(registration);
      communicator.all_reduce({small}, {small});
    }
    EXPECT_TRUE(holds(small, 0));
    transport::team::synchronize(exchange);
    registration.release();
    transport::team::synchronize(exchange);
  });
}

TEST(RegisteredPieces, AreReleasedWhileAnotherWaitsInACall) {
  expect_all_right(2, [](Exchange& exchange) {
    const int rank = exchange.rank();
    OwnMemory own(device_of(exchange), Origin::pieces);
    MemoryRegistration registration = own.registered();
    Communicator communicator = make(exchange);
    expect_sum(communicator, own, rank, 1);
    const Tensor small = zeros({4}, {.dtype = DType::int32, .device = device_of(exchange)});
    if (rank == 1) communicator.all_reduce({small}, {small});
    transport::team::synchronize(exchange);
    if (rank == 0) {
      registration.release();
      own.free();
      communicator.all_reduce({small}, {small});
    }
    EXPECT_TRUE(holds(small, 0));
    // The same addresses may come again.
    const OwnMemory another(device_of(exchange), Origin::pieces);
    const MemoryRegistration of_another = another.registered();
    expect_sum(communicator, another, rank, 1);
    EXPECT_TRUE(is_in_place(communicator));
    synchronize(device_of(exchange));
    transport::team::synchronize(exchange);
  });
}

TEST_P(RegisteredMemory, IsReleasedAfterTheDeathOfARank) {
  Ranks ranks(3, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange), origin);
    MemoryRegistration registration = own.registered();
    {
      Communicator communicator = make(exchange);
      expect_sum(communicator, own, rank, 3);
      transport::team::synchronize(exchange);
      if (rank == 2) kill(getpid(), SIGKILL);
      EXPECT_TRUE(mentions(test::failure_of(device_of(exchange), [&] { communicator.barrier(); }),
                           {"rank 2", "is gone"}));
    }
    registration.release();
  });
  EXPECT_EQ(ranks.wait(), (std::vector{all_right, all_right, killed}));
}

TEST_P(RegisteredMemory, PartsAreUsedInPlaceByThemselves) {
  expect_all_right(2, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange), origin, 2 * count);
    const std::size_t half = own.bytes() / 2;
    MemoryRegistration first = register_memory(own.address(), half);
    const MemoryRegistration second = register_memory(own.address() + half, half);
    {
      Communicator communicator = make(exchange);
      for (const std::size_t offset : {std::size_t{0}, half}) {
        const Tensor mine = own.tensor(offset, count);
        mine.fill_(rank + static_cast<int>(offset / half));
        communicator.all_reduce({mine}, {mine});
        EXPECT_TRUE(is_in_place(communicator));
        EXPECT_TRUE(holds(mine, offset == 0 ? 1 : 3));
      }
      // Across both: of a block, others have all open; of pieces, only what is registered.
      const Tensor across = own.tensor(half / 2 / 512 * 512, count);
      across.fill_(rank);
      communicator.all_reduce({across}, {across});
      EXPECT_EQ(is_in_place(communicator), origin == Origin::block);
      EXPECT_TRUE(holds(across, 1));
      transport::team::synchronize(exchange);
      first.release();
      transport::team::synchronize(exchange);
      const Tensor kept = own.tensor(half, count);
      kept.fill_(rank);
      communicator.all_reduce({kept}, {kept});
      EXPECT_TRUE(is_in_place(communicator));
      EXPECT_TRUE(holds(kept, 1));
    }
  });
}

/// Registrations come and go at random on each rank, and calls use what is there.
TEST_P(RegisteredMemory, ComesAndGoesAtRandom) {
  expect_all_right(2, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    std::mt19937 random(17 + static_cast<unsigned>(rank));
    std::mt19937 choices(5);  // the same on all ranks
    Communicator communicator = make(exchange);
    constexpr std::size_t memories = 3;
    std::array<std::unique_ptr<OwnMemory>, memories> own;
    std::array<MemoryRegistration, memories> registrations;
    for (int round = 0; round < 25; ++round) {
      for (std::size_t i = 0; i < memories; ++i) {
        if (random() % 3 != 0) continue;
        registrations[i].release();
        if (random() % 2 == 0) own[i].reset();
        if (own[i] == nullptr) own[i] = std::make_unique<OwnMemory>(device_of(exchange), origin);
        if (random() % 2 == 0) registrations[i] = own[i]->registered();
      }
      transport::team::synchronize(exchange);
      for (int call = 0; call < 3; ++call) {
        const std::size_t used = choices() % memories;
        if (own[used] == nullptr) own[used] = std::make_unique<OwnMemory>(device_of(exchange), origin);
        expect_sum(communicator, *own[used], rank, 1);
        EXPECT_EQ(is_in_place(communicator), static_cast<bool>(registrations[used]));
      }
      synchronize(device_of(exchange));
      transport::team::synchronize(exchange);
    }
    for (MemoryRegistration& registration : registrations) registration.release();
    transport::team::synchronize(exchange);
  });
}

class ForeignPieces : public testing::Test {
 protected:
  /// Both ranks open one another's memory by themselves; on GPUs, blocks must then outlive the communicator.
  static Communicator make(Exchange& exchange) {
    return Communicator(exchange, {.devices = {Device(device_of(exchange))},
                                   .timeout = 30s,
                                   .transport = TransportKind::p2p,
                                   .opens_foreign_memory = true});
  }
};
class ForeignMemory : public ForeignPieces, public testing::WithParamInterface<Origin> {};
INSTANTIATE_TEST_SUITE_P(Origins, ForeignMemory, testing::Values(Origin::block, Origin::pieces),
                         [](const auto& tested) {
                           return tested.param == Origin::block ? "Block" : "Pieces";
                         });

TEST_P(ForeignMemory, IsOpenedByItself) {
  expect_all_right(2, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange), origin, 3 * count);
    const OwnMemory received(device_of(exchange), origin);
    Communicator communicator = make(exchange);
    // Parts that share bytes with earlier ones, within them and around them, in a call and in the next.
    const std::size_t unit = count * sizeof(std::int32_t) / 4 / 512 * 512;
    constexpr std::pair<std::size_t, std::int64_t> parts[] = {{4, 4}, {5, 4},  {2, 5},
                                                              {6, 4}, {0, 12}, {3, 4}};
    for (int round = 0; round < 12; ++round) {
      SCOPED_TRACE(round);
      const auto [begin, units] = parts[static_cast<std::size_t>(round) % std::size(parts)];
      const Tensor mine = own.tensor(begin * unit, count * units / 4);
      mine.fill_(rank + round);
      communicator.all_reduce({mine}, {mine});
      EXPECT_TRUE(is_in_place(communicator));
      EXPECT_TRUE(holds(mine, 2 * round + 1));
    }
    if (rank == 0) {
      own.tensor().fill_(7);
      communicator.send(own.tensor(0, count), 1);
    } else {
      communicator.recv(received.tensor(), 0);
      EXPECT_TRUE(holds(received.tensor(), 7));
    }
    synchronize(device_of(exchange));
    transport::team::synchronize(exchange);
  });
}

TEST_F(ForeignPieces, MayBeMappedAnewAtItsAddress) {
  expect_all_right(2, [](Exchange& exchange) {
    const int rank = exchange.rank();
    OwnMemory own(device_of(exchange), Origin::pieces);
    const Tensor mine = own.tensor();
    Communicator communicator = make(exchange);
    for (int round = 0; round < 6; ++round) {
      mine.fill_(rank + round);
      communicator.all_reduce({mine}, {mine});
      EXPECT_TRUE(is_in_place(communicator));
      EXPECT_TRUE(holds(mine, 2 * round + 1));
      synchronize(device_of(exchange));
      transport::team::synchronize(exchange);
      if (round % 2 == rank) own.map_anew();
    }
  });
}

TEST_P(ForeignMemory, ServesReplaysAfterLargerPartsWereUsed) {
  expect_all_right(2, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange), origin, 2 * count);
    Communicator communicator = make(exchange);
    const Tensor part = own.tensor(4096, count);
    PersistentCollective call = communicator.persistent([&] { communicator.all_reduce({part}, {part}); });
    for (int round = 0; round < 3; ++round) {
      const Tensor all = own.full_of(rank);
      communicator.all_reduce({all}, {all});
      EXPECT_TRUE(holds(all, 1));
      part.fill_(rank + round);
      call.launch();
      EXPECT_TRUE(holds(part, 2 * round + 1));
    }
    synchronize(device_of(exchange));
    transport::team::synchronize(exchange);
  });
}

TEST_P(RegisteredMemory, ServesOneProcess) {
  expect_all_right(1, [origin = GetParam()](Exchange&) {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices";
    const OwnMemory first(0, origin);
    const OwnMemory second(1, origin);
    const Tensor theirs = zeros({count}, {.dtype = DType::int32, .device = 1});
    broadcast(full({count}, 1, {.dtype = DType::int32, .device = 0}), {theirs});
    const std::string wanted = last_plan().algorithm;
    const MemoryRegistration registration = first.registered();
    const MemoryRegistration another = second.registered();
    broadcast(first.full_of(3), {second.tensor()});
    EXPECT_EQ(last_plan().algorithm, wanted);
    EXPECT_TRUE(holds(second.tensor(), 3));
    synchronize(0);
  });
}

TEST_P(RegisteredMemory, RefusesWhatCannotBeRegistered) {
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
    const Tensor ours = zeros({count}, {.dtype = DType::int32, .device = 0});
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

TEST_P(RegisteredMemory, RangesOfAnAllocationEndInAnyOrderAndAtOnce) {
  expect_all_right(1, [origin = GetParam()](Exchange&) {
    constexpr std::size_t length = 4096;
    const OwnMemory own(0, origin);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::thread> threads;
      for (std::size_t i = 0; i < 4; ++i) {
        threads.emplace_back([&own, i] {
          MemoryRegistration range = register_memory(own.address() + i * length, length);
          range.release();
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
    EXPECT_EQ(own.registered().bytes(), own.bytes()) << "nothing is left registered";
  });
}

TEST_P(RegisteredMemory, TellsThatItWasFreedTooEarly) {
  expect_all_right(1, [origin = GetParam()](Exchange&) {
    if (!test::on_virtual_devices()) GTEST_SKIP() << "CUDA says nothing sure of freed memory";
    OwnMemory own(0, origin);
    MemoryRegistration registration = own.registered();
    own.free();
    EXPECT_TRUE(refuses([&] { registration.release(); }, ErrorCode::invalid_argument,
                        {"was freed while it was registered"}));
    EXPECT_FALSE(registration);
  });
}

TEST(RegisteredMemory, StaysRegisteredForTheRanksThatAreLeft) {
  Ranks ranks(3, [](Exchange& exchange) {
    const int rank = exchange.rank();
    Communicator communicator = make(exchange);
    const OwnMemory own(device_of(exchange));
    const MemoryRegistration registration = own.registered();
    expect_sum(communicator, own, rank, 3);
    transport::team::synchronize(exchange);
    if (rank == 1) std::raise(SIGKILL);
    EXPECT_TRUE(test::becomes_true([&] { return !communicator.is_running(); }));
    communicator = communicator.shrink();
    expect_sum(communicator, own, rank, 2);
    EXPECT_TRUE(is_in_place(communicator));
    communicator.check();
  });
  EXPECT_EQ(ranks.wait(), (std::vector{all_right, killed, all_right}));
}

}  // namespace
}  // namespace tutti
