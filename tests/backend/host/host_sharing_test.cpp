// SPDX-License-Identifier: Apache-2.0
#include "backend/host/host_sharing.hpp"

#include "backend/shared_pieces.hpp"
#include "support/memory/process_resources.hpp"
#include "support/ranks.hpp"
#include "transport/team/shared/agreement.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <unistd.h>

/// What those who share memory see of it.
namespace tutti::backend {
namespace {

using test::expect_all_right;
using test::open_descriptors;
using test::shared_mappings;
using testing::AllOf;
using testing::HasSubstr;
using transport::team::synchronize;
using namespace std::chrono_literals;

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

/// A range of three pieces, of 4, 8 and 4 pages.
class HostPieces : public HostSharing {
 protected:
  static constexpr std::size_t page = 4096;
  static constexpr std::size_t used = 16 * page;
  static constexpr std::size_t first = 2 * page + 512;  ///< where the memory that is shared begins
  static constexpr std::size_t count = 10 * page / sizeof(int);

  /// Maps the pieces and writes numbers to what is shared of them.
  std::byte* make_range(int device) {
    auto* const range = static_cast<std::byte*>(machine().reserve_addresses(device, 20 * page));
    EXPECT_TRUE(machine().map_pages(device, range, 4 * page));
    EXPECT_TRUE(machine().map_pages(device, range + 4 * page, 8 * page));
    EXPECT_TRUE(machine().map_pages(device, range + 12 * page, 4 * page));
    const auto given = numbers(5, count);
    copy(machine().default_stream(device), range + first, given.data(), count * sizeof(int));
    machine().synchronize_device(device);
    return range;
  }
  MemoryHandle shared(Exchange& exchange, const std::unique_ptr<SharedPieces>& pieces) {
    return transport::team::gather(exchange, pieces == nullptr ? MemoryHandle{} : pieces->handle())[0];
  }
  std::unique_ptr<SharedPieces> share(int device, std::byte* address, std::size_t bytes) {
    return machine().share_pieces(device, address, bytes, Audience::anyone);
  }
};

TEST_F(HostPieces, AreOpenedSideBySide) {
  expect_all_right(2, [this](Exchange& exchange) {
    const bool owns = exchange.rank() == 0;
    const std::size_t descriptors = open_descriptors();
    std::byte* const range = owns ? make_range(1) : nullptr;
    std::unique_ptr<SharedPieces> pieces = owns ? share(1, range + first, count * sizeof(int)) : nullptr;
    const MemoryHandle handle = shared(exchange, pieces);
    const auto returned = numbers(-7, count);
    if (owns) {
      const PointerInfo info = machine().pointer_info(range + 4 * page);
      EXPECT_EQ(info.base, range + 4 * page);
      EXPECT_EQ(info.bytes, 8 * page);
      EXPECT_EQ(machine().origin_of(range + 4 * page), MemoryOrigin::piece);
    } else {
      int* const opened = open(0, handle);
      EXPECT_EQ(open(0, handle), opened) << "once more";
      machine().close_device_memory(0, opened);
      EXPECT_EQ(read(0, opened, count), numbers(5, count));
      int* const source = upload(0, returned);
      move(0, opened, source, count);
      EXPECT_THROW(static_cast<void>(read(0, opened, count + 1)), Error) << "more than is shared";
    }
    synchronize(exchange);
    if (owns) {
      EXPECT_EQ(download(1, reinterpret_cast<int*>(range + first), count), returned);
      pieces.reset();
      machine().unmap_pages(1, range, used);
      machine().release_addresses(1, range, 20 * page);
      EXPECT_EQ(machine().memory_info(1).free, memory_bytes);
      EXPECT_EQ(open_descriptors(), descriptors);
    }
    synchronize(exchange);
    if (!owns) {
      EXPECT_THAT(refusal_of(0, handle), HasSubstr("device 0 cannot open"));
    }
    synchronize(exchange);
  });
}

TEST_F(HostPieces, StayWithThoseWhoHaveThemOpen) {
  expect_all_right(2, [this](Exchange& exchange) {
    const bool owns = exchange.rank() == 0;
    std::byte* const range = owns ? make_range(0) : nullptr;
    std::unique_ptr<SharedPieces> pieces = owns ? share(0, range + first, count * sizeof(int)) : nullptr;
    const MemoryHandle handle = shared(exchange, pieces);
    const std::size_t mappings = shared_mappings();
    int* const opened = owns ? nullptr : open(0, handle);
    synchronize(exchange);
    if (owns) {
      pieces.reset();
      machine().unmap_pages(0, range, used);
    }
    synchronize(exchange);
    if (owns) return;
    EXPECT_EQ(read(0, opened, count), numbers(5, count));
    machine().close_device_memory(0, opened);
    EXPECT_EQ(shared_mappings(), mappings);
  });
}

TEST_F(HostPieces, AreRefusedWhereThereIsNoMemory) {
  expect_all_right(1, [this](Exchange&) {
    std::byte* const range = make_range(0);
    const auto refused = [&](int device, std::byte* address, std::size_t bytes) {
      return error_message(ErrorCode::unsupported, [&] { static_cast<void>(share(device, address, bytes)); });
    };
    EXPECT_THAT(refused(0, range + first, used), HasSubstr("side by side"));
    EXPECT_THAT(refused(1, range, page), HasSubstr("side by side"));
    EXPECT_THAT(refused(0, range, 0), HasSubstr("side by side"));
    const std::unique_ptr<SharedPieces> pieces = share(0, range, used);
    EXPECT_THAT(refusal_of(0, pieces->handle()), HasSubstr("this process's own"));
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
    static_cast<void>(machine().share_device_memory(0, empty, Audience::anyone));
    machine().free_device(0, empty);
    const MemoryHandle handle = machine().share_device_memory(0, block, Audience::anyone);
    EXPECT_EQ(machine().share_device_memory(0, block, Audience::anyone).bytes, handle.bytes);
    EXPECT_NE(machine().share_device_memory(0, other, Audience::anyone).bytes, handle.bytes);
    EXPECT_EQ(open_descriptors(), before + 4) << "one for each block, and two where others get these";
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
      return error_message(ErrorCode::unsupported, [&] {
        static_cast<void>(machine().share_device_memory(device, address, Audience::anyone));
      });
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
    static_cast<void>(machine().share_device_memory(0, block, Audience::anyone));
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
      static_cast<void>(machine().share_device_memory(0, block, Audience::anyone));
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
