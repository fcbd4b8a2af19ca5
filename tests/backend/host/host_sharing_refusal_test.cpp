// SPDX-License-Identifier: Apache-2.0
#include "backend/host/host_sharing.hpp"
#include "support/memory/process_resources.hpp"
#include "support/ranks.hpp"
#include "transport/team/shared/agreement.hpp"

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

/// Which memory cannot be opened, and what links and faults do to it.
namespace tutti::backend {
namespace {

using test::expect_all_right;
using test::open_descriptors;
using test::shared_mappings;
using testing::AllOf;
using testing::HasSubstr;
using transport::team::gather;
using transport::team::synchronize;
using virtual_devices::FaultKind;
using virtual_devices::Operation;
using namespace std::chrono_literals;

constexpr std::uint64_t always = UINT64_MAX;

TEST_F(HostSharing, HandlesOfFreedBlocksOpenNothing) {
  expect_all_right(2, [this](Exchange& exchange) {
    MemoryHandle stale;
    void* block = nullptr;
    if (exchange.rank() == 0) {
      block = upload<int>(0, {1, 2, 3});
      stale = machine().share_device_memory(0, block, Audience::anyone);
      machine().free_device(0, block);
      block = upload<int>(0, {4, 5, 6});  // likely to have the descriptor of the one before
    }
    const MemoryHandle fresh = handle_of(exchange, 0, block);
    stale = gather(exchange, stale)[0];
    if (exchange.rank() == 1) {
      EXPECT_THAT(refusal_of(0, stale),
                  AllOf(HasSubstr("device 0"), HasSubstr("not the memory that was announced")));
      EXPECT_EQ(read(0, open(0, fresh), 3), (std::vector<int>{4, 5, 6}));
    }
    synchronize(exchange);
  });
}

TEST_F(HostSharing, BadHandlesAreRefused) {
  expect_all_right(2, [this](Exchange& exchange) {
    int* const block = exchange.rank() == 0 ? upload(0, numbers(0, 5000)) : nullptr;
    const MemoryHandle good = handle_of(exchange, 0, block);
    if (exchange.rank() == 0) {
      EXPECT_THAT(refusal_of(0, good), HasSubstr("own"));
      return synchronize(exchange);
    }
    EXPECT_THAT(refusal_of(0, {}), HasSubstr("the handle is not one of"));
    const std::size_t descriptors = open_descriptors();
    std::size_t refused = 0;
    for (std::size_t i = 0; i < good.bytes.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        MemoryHandle bad = good;
        bad.bytes[i] ^= static_cast<std::byte>(1U << static_cast<unsigned>(bit));
        try {
          machine().close_device_memory(0, open(0, bad));
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::peer_unavailable) << error.what();
          ++refused;
        }
      }
    }
    EXPECT_EQ(refused, good.bytes.size() * 8);
    EXPECT_EQ(open_descriptors(), descriptors);
    EXPECT_EQ(shared_mappings(), 0U);
    EXPECT_NO_THROW(machine().synchronize_device(0));
    synchronize(exchange);
  });
}

TEST_F(HostSharing, MemoryOfAProcessThatIsGoneCannotBeOpened) {
  expect_all_right(2, [this](Exchange& exchange) {
    const auto values = numbers(1, 1000);
    int* const block = exchange.rank() == 0 ? upload(0, values) : nullptr;
    const MemoryHandle handle = handle_of(exchange, 0, block);
    const int* const opened = exchange.rank() == 1 ? open(0, handle) : nullptr;
    synchronize(exchange);
    if (exchange.rank() == 0) return;  // its process ends
    const auto deadline = std::chrono::steady_clock::now() + 30s;
    std::string refusal;
    while (refusal.empty() && std::chrono::steady_clock::now() < deadline) {
      try {
        machine().close_device_memory(1, open(1, handle));
        std::this_thread::sleep_for(1ms);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::peer_unavailable);
        refusal = error.what();
      }
    }
    EXPECT_THAT(refusal, HasSubstr("process"));
    EXPECT_EQ(read(0, opened, values.size()), values) << "what is open stays";
  });
}

TEST_F(HostSharing, TheTopologyDecidesWhoReachesIt) {
  expect_all_right(2, [this](Exchange& exchange) {
    boot("two-islands");
    int* const block = exchange.rank() == 0 ? upload<int>(2, {1, 2, 3}) : nullptr;
    const MemoryHandle handle = handle_of(exchange, 2, block);
    if (exchange.rank() == 0) return synchronize(exchange);
    EXPECT_THAT(refusal_of(0, handle),
                AllOf(HasSubstr("device 0"), HasSubstr("device 2"), HasSubstr("two-islands")));
    EXPECT_EQ(read(2, open(2, handle), 3), (std::vector<int>{1, 2, 3})) << "devices of one number are one";
    EXPECT_EQ(read(3, open(3, handle), 3), (std::vector<int>{1, 2, 3}));
    boot("island", 2);
    EXPECT_THAT(refusal_of(0, handle), AllOf(HasSubstr("device 2"), HasSubstr("there are 2 devices")));
    synchronize(exchange);
  });
}

TEST_F(HostSharing, CanBeMadeToFail) {
  expect_all_right(2, [this](Exchange& exchange) {
    int* const block = exchange.rank() == 0 ? upload<int>(1, {1, 2, 3}) : nullptr;
    if (exchange.rank() == 0) {
      control().inject({.operation = Operation::share, .device = 1});
      EXPECT_THAT(error_message(
                      ErrorCode::unsupported,
                      [&] { static_cast<void>(machine().share_device_memory(1, block, Audience::anyone)); }),
                  AllOf(HasSubstr("device 1"), HasSubstr("injected")));
    }
    const MemoryHandle handle = handle_of(exchange, 1, block);
    if (exchange.rank() == 1) {
      control().inject({.operation = Operation::open, .device = 0, .peer = 2});
      machine().close_device_memory(0, open(0, handle));
      control().inject({.operation = Operation::open, .device = 0, .peer = 1});
      EXPECT_THAT(refusal_of(0, handle), AllOf(HasSubstr("device 0"), HasSubstr("injected")));
      EXPECT_EQ(read(0, open(0, handle), 3), (std::vector<int>{1, 2, 3}));
      EXPECT_EQ(error_message(ErrorCode::invalid_argument,
                              [&] {
                                control().inject({Operation::open, FaultKind::delay});
                              })
                    .empty(),
                false);
    }
    synchronize(exchange);
  });
}

TEST_F(HostSharing, CorruptingLinksDamageWhatCrossesThem) {
  expect_all_right(2, [this](Exchange& exchange) {
    const auto values = numbers(0, 1000);
    int* const block = exchange.rank() == 0 ? upload(1, values) : nullptr;
    const MemoryHandle handle = handle_of(exchange, 1, block);
    if (exchange.rank() == 1) {
      int* const by_link = open(0, handle);
      int* const on_the_spot = open(1, handle);
      control().inject(
          {.operation = Operation::kernel, .kind = FaultKind::corrupt, .device = 0, .count = always});
      EXPECT_NE(read(0, by_link, values.size()), values);
      control().clear_faults();
      control().inject(
          {.operation = Operation::kernel, .kind = FaultKind::corrupt, .device = 1, .count = always});
      EXPECT_EQ(read(1, on_the_spot, values.size()), values) << "no link to cross";
      control().inject({.operation = Operation::kernel,
                        .kind = FaultKind::corrupt,
                        .device = 0,
                        .peer = 1,
                        .count = always});
      int* const source = upload(0, values);
      move(0, by_link, source, values.size());
    }
    synchronize(exchange);
    if (exchange.rank() == 0) {
      EXPECT_NE(download(1, block, values.size()), values);
    }
    synchronize(exchange);
  });
}

}  // namespace
}  // namespace tutti::backend
