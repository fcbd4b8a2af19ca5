#include "backend/host_machine.hpp"
#include "support/process_resources.hpp"
#include "support/ranks.hpp"
#include "transport/ranks/agreement.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <unistd.h>

/// Device memory that processes share: each process is a rank with a machine of its own.
namespace tutti::backend {
namespace {

using test::expect_all_right;
using test::open_descriptors;
using test::shared_mappings;
using testing::AllOf;
using testing::HasSubstr;
using transport::ranks::gather;
using transport::ranks::synchronize;
using virtual_devices::FaultKind;
using virtual_devices::Operation;
using namespace std::chrono_literals;

constexpr std::uint64_t always = UINT64_MAX;

std::vector<int> numbers(int first, std::size_t count) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

class HostSharing : public HostMachine {
 protected:
  /// Rank 0 shares `bytes` at `address` of its device; all get the handle.
  MemoryHandle handle_of(Exchange& exchange, int device, void* address) {
    return gather(exchange,
                  exchange.rank() == 0 ? machine().share_device_memory(device, address) : MemoryHandle{})[0];
  }
  int* open(int device, const MemoryHandle& handle) {
    return static_cast<int*>(machine().open_device_memory(device, handle));
  }
  std::string refusal_of(int device, const MemoryHandle& handle) {
    return error_message(ErrorCode::peer_unavailable, [&] { open(device, handle); });
  }
  /// By a kernel of `device`, which needs access.
  void move(int device, int* target, const int* source, std::size_t count) {
    std::byte* pointers[] = {bytes_of(const_cast<int*>(source)), bytes_of(target)};
    const FanOutSegment segment{
        .row_bytes = count * sizeof(int), .source = 0, .first_target = 1, .target_count = 1};
    machine().fan_out(machine().default_stream(device), {.segments = {&segment, 1}, .pointers = pointers});
    machine().synchronize_device(device);
  }
  std::vector<int> read(int device, const int* source, std::size_t count) {
    int* const target = allocate<int>(device, count);
    move(device, target, source, count);
    std::vector<int> values = download(device, target, count);
    machine().free_device(device, target);
    return values;
  }
};

TEST_F(HostSharing, BytesAreSeenBothWays) {
  expect_all_right(2, [this](Exchange& exchange) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{5} << 20U}) {
      const auto given = numbers(5, count);
      const auto returned = numbers(-7, count);
      int* const block = exchange.rank() == 0 ? upload(1, given) : nullptr;
      const MemoryHandle handle = handle_of(exchange, 1, block);
      if (exchange.rank() == 1) {
        int* const opened = open(0, handle);
        const PointerInfo info = machine().pointer_info(opened + count - 1);
        EXPECT_EQ(info.kind, MemoryKind::device);
        EXPECT_EQ(info.device, 1);
        EXPECT_EQ(static_cast<const void*>(info.base), opened);
        EXPECT_EQ(info.bytes, count * sizeof(int));
        EXPECT_EQ(machine().memory_info(1).free, memory_bytes) << "it is somebody else's memory";
        EXPECT_EQ(read(0, opened, count), given);
        int* const source = upload(0, returned);
        move(0, opened, source, count);
        machine().close_device_memory(0, opened);
        machine().free_device(0, source);
      }
      synchronize(exchange);
      if (exchange.rank() == 0) {
        EXPECT_EQ(download(1, block, count), returned);
        machine().free_device(1, block);
        EXPECT_EQ(machine().memory_info(1).free, memory_bytes);
      }
    }
  });
}

TEST_F(HostSharing, OpenedMemoryCannotBeTouchedByTheHost) {
  expect_all_right(2, [this](Exchange& exchange) {
    int* const block = exchange.rank() == 0 ? upload<int>(0, {1}) : nullptr;
    const MemoryHandle handle = handle_of(exchange, 0, block);
    if (exchange.rank() == 0) return synchronize(exchange);
    const int* const opened = open(0, handle);
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    EXPECT_LT(write(pipe_ends[1], opened, sizeof(int)), 0) << "the system can read it";
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    synchronize(exchange);
  });
}

TEST_F(HostSharing, SharingAgainGivesTheSameHandle) {
  expect_all_right(1, [this](Exchange&) {
    int* const block = upload<int>(0, {1, 2, 3});
    int* const other = upload<int>(0, {1, 2, 3});
    const std::size_t before = open_descriptors();
    void* const empty = machine().allocate_device(0, 0);
    static_cast<void>(machine().share_device_memory(0, empty));
    machine().free_device(0, empty);
    const MemoryHandle handle = machine().share_device_memory(0, block);
    EXPECT_EQ(machine().share_device_memory(0, block).bytes, handle.bytes);
    EXPECT_NE(machine().share_device_memory(0, other).bytes, handle.bytes);
    EXPECT_EQ(open_descriptors(), before + 2) << "one for each block";
    EXPECT_EQ(download(0, block, 3), (std::vector<int>{1, 2, 3}));
    machine().free_device(0, block);
    machine().free_device(0, other);
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_EQ(shared_mappings(), 0U);
  });
}

TEST_F(HostSharing, OnlyWholeBlocksOfTheDeviceAreShared) {
  expect_all_right(1, [this](Exchange&) {
    int* const block = upload<int>(1, {1, 2, 3});
    void* const pinned = machine().allocate_pinned(100);
    const auto refused = [this](int device, void* address) {
      return error_message(ErrorCode::unsupported,
                           [&] { static_cast<void>(machine().share_device_memory(device, address)); });
    };
    EXPECT_THAT(refused(1, block + 1), AllOf(HasSubstr("device 1"), HasSubstr("start of a block")));
    refused(0, block);
    refused(0, pinned);
    machine().free_device(1, block);
    refused(1, block);
    machine().free_pinned(pinned);
    EXPECT_EQ(shared_mappings(), 0U);
  });
}

TEST_F(HostSharing, WaitsForTheTaskThatUsesTheBlock) {
  expect_all_right(1, [this](Exchange&) {
    int* const block = upload<int>(0, {41});
    std::atomic<bool> started = false;
    std::atomic<bool> ended = false;
    launch(machine().default_stream(0), "slow increment", {{block, sizeof(int)}},
           [&](std::span<void* const> addresses) {
             auto* const value = static_cast<volatile int*>(addresses[0]);
             const int before = *value;
             started = true;
             std::this_thread::sleep_for(50ms);
             *value = before + 1;
             ended = true;
           });
    while (!started) std::this_thread::yield();
    static_cast<void>(machine().share_device_memory(0, block));
    EXPECT_TRUE(ended);
    EXPECT_EQ(download(0, block, 1), std::vector<int>{42});
  });
}

TEST_F(HostSharing, LosesNothingThatTasksWriteMeanwhile) {
  expect_all_right(1, [this](Exchange&) {
    constexpr std::size_t streams = 4;
    constexpr std::size_t count = 3000;  // of each stream
    constexpr int additions = 200;
    std::vector<StreamRef> used(streams);
    for (StreamRef& stream : used) stream = machine().create_stream(0, 0);
    for (int repetition = 0; repetition < 5; ++repetition) {
      int* const block = upload(0, std::vector<int>(streams * count));
      for (std::size_t i = 0; i < streams; ++i) {
        for (int addition = 0; addition < additions; ++addition) {
          launch(used[i], "increment", {{block + i * count, count * sizeof(int)}},
                 [](std::span<void* const> addresses) {
                   int* const values = static_cast<int*>(addresses[0]);
                   for (std::size_t k = 0; k < count; ++k) ++values[k];
                 });
        }
      }
      static_cast<void>(machine().share_device_memory(0, block));
      for (const StreamRef stream : used) machine().synchronize_stream(stream);
      EXPECT_EQ(download(0, block, streams * count), std::vector<int>(streams * count, additions));
      machine().free_device(0, block);
    }
  });
}

TEST_F(HostSharing, TasksOfTwoProcessesWriteMeanwhile) {
  expect_all_right(2, [this](Exchange& exchange) {
    constexpr std::size_t count = 1000;
    int* const block = exchange.rank() == 0 ? upload(0, std::vector<int>(2 * count)) : nullptr;
    int* const mine = exchange.rank() == 0 ? block : open(0, handle_of(exchange, 0, nullptr)) + count;
    for (int addition = 0; addition < 500; ++addition) {
      launch(machine().default_stream(0), "increment", {{mine, count * sizeof(int)}},
             [](std::span<void* const> addresses) {
               int* const values = static_cast<int*>(addresses[0]);
               for (std::size_t k = 0; k < count; ++k) ++values[k];
             });
    }
    if (exchange.rank() == 0) handle_of(exchange, 0, block);
    machine().synchronize_device(0);
    synchronize(exchange);
    if (exchange.rank() == 0) {
      EXPECT_EQ(download(0, block, 2 * count), std::vector<int>(2 * count, 500));
    }
  });
}

TEST_F(HostSharing, WhoHasABlockOpenKeepsItsBytes) {
  expect_all_right(2, [this](Exchange& exchange) {
    const auto values = numbers(3, 10'000);
    int* const block = exchange.rank() == 0 ? upload(2, values) : nullptr;
    const MemoryHandle handle = handle_of(exchange, 2, block);
    const int* const opened = exchange.rank() == 1 ? open(0, handle) : nullptr;
    synchronize(exchange);
    if (exchange.rank() == 0) {
      machine().free_device(2, block);
      upload(2, numbers(0, 10'000));
    }
    synchronize(exchange);
    if (exchange.rank() == 0) return;
    EXPECT_EQ(read(0, opened, values.size()), values);
    EXPECT_THAT(refusal_of(1, handle), HasSubstr("device 1")) << "it is gone for those who come late";
    EXPECT_EQ(open(0, handle), opened) << "but not for those who have it";
    machine().close_device_memory(0, const_cast<int*>(opened));
    EXPECT_EQ(read(0, opened, values.size()), values);
    machine().close_device_memory(0, const_cast<int*>(opened));
    refusal_of(0, handle);
  });
}

TEST_F(HostSharing, OpeningTwiceForADeviceGivesOneAddress) {
  expect_all_right(2, [this](Exchange& exchange) {
    int* const block = exchange.rank() == 0 ? upload<int>(1, {1, 2, 3}) : nullptr;
    const MemoryHandle handle = handle_of(exchange, 1, block);
    if (exchange.rank() == 0) return synchronize(exchange);
    int* const opened = open(0, handle);
    EXPECT_EQ(open(0, handle), opened);
    int* const for_another = open(2, handle);
    EXPECT_NE(for_another, opened);
    machine().close_device_memory(0, opened);
    EXPECT_EQ(read(0, opened, 3), (std::vector<int>{1, 2, 3}));
    EXPECT_THAT(error_message(ErrorCode::device_failure, [&] { read(2, opened, 3); }),
                AllOf(HasSubstr("opened for device 0"), HasSubstr("not for device 2")));
    machine().close_device_memory(2, opened);  // it was opened for another device
    EXPECT_THAT(error_message(ErrorCode::device_failure, [&] { machine().synchronize_device(2); }),
                HasSubstr("close_device_memory"));
    machine().free_device(1, opened);  // it is not this process's
    EXPECT_THAT(error_message(ErrorCode::device_failure, [&] { machine().synchronize_device(1); }),
                HasSubstr("free_device"));

    machine().close_device_memory(0, opened);
    EXPECT_EQ(machine().pointer_info(opened).kind, MemoryKind::unknown);
    EXPECT_THAT(error_message(ErrorCode::device_failure, [&] { read(0, opened, 3); }),
                HasSubstr("freed or closed"));
    machine().close_device_memory(0, opened);
    EXPECT_THAT(error_message(ErrorCode::device_failure, [&] { machine().synchronize_device(0); }),
                HasSubstr("close_device_memory"));
    EXPECT_EQ(read(2, for_another, 3), (std::vector<int>{1, 2, 3}));
    machine().close_device_memory(2, for_another);
    synchronize(exchange);
  });
}

TEST_F(HostSharing, HandlesOfFreedBlocksOpenNothing) {
  expect_all_right(2, [this](Exchange& exchange) {
    MemoryHandle stale;
    void* block = nullptr;
    if (exchange.rank() == 0) {
      block = upload<int>(0, {1, 2, 3});
      stale = machine().share_device_memory(0, block);
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
    EXPECT_THAT(refusal_of(0, {}), HasSubstr("not the handle"));
    const std::size_t descriptors = open_descriptors();
    std::size_t refused = 0;
    for (std::size_t i = 0; i < good.bytes.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        MemoryHandle bad = good;
        bad.bytes[i] ^= static_cast<std::byte>(1U << static_cast<unsigned>(bit));
        try {
          machine().close_device_memory(0, open(0, bad));  // of another device, or shorter
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::peer_unavailable) << error.what();
          ++refused;
        }
      }
    }
    EXPECT_GT(refused, 64U * 3);
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
      EXPECT_THAT(error_message(ErrorCode::unsupported,
                                [&] { static_cast<void>(machine().share_device_memory(1, block)); }),
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

TEST_F(HostSharing, NothingIsLeftBehind) {
  expect_all_right(2, [this](Exchange& exchange) {
    boot("island");                       // one of this process's own
    download(0, upload<int>(0, {1}), 1);  // threads and what they open once
    const std::size_t descriptors = open_descriptors();
    const std::size_t free = machine().memory_info(0).free;
    for (int repetition = 0; repetition < 100; ++repetition) {
      int* const block = exchange.rank() == 0 ? upload(0, numbers(repetition, 5000)) : nullptr;
      const MemoryHandle handle = handle_of(exchange, 0, block);
      if (exchange.rank() == 1) {
        int* const opened = open(1, handle);
        EXPECT_EQ(open_descriptors(), descriptors) << "a mapping needs none";
        EXPECT_EQ(read(1, opened, 5000), numbers(repetition, 5000));
        machine().close_device_memory(1, opened);
      }
      synchronize(exchange);
      if (exchange.rank() == 0) machine().free_device(0, block);
    }
    EXPECT_EQ(open_descriptors(), descriptors);
    EXPECT_EQ(shared_mappings(), 0U);
    EXPECT_EQ(machine().memory_info(0).free, free);

    // A machine that goes takes what it had open, and what it shared, with it.
    int* const block = exchange.rank() == 0 ? upload<int>(0, {1}) : nullptr;
    const MemoryHandle handle = handle_of(exchange, 0, block);
    if (exchange.rank() == 1) open(1, handle);
    synchronize(exchange);
    boot("island");
    EXPECT_EQ(open_descriptors(), descriptors);
    EXPECT_EQ(shared_mappings(), 0U);
  });
}

}  // namespace
}  // namespace tutti::backend
