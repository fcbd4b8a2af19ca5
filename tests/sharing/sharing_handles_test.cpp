// SPDX-License-Identifier: Apache-2.0
// Handles of tensors and events that reach another process changed, or reach one of another user.

#include "backend/sealed_words.hpp"
#include "sharing/shared_tensor_words.hpp"
#include "support/errors.hpp"
#include "support/isolation.hpp"
#include "support/ranks.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"
#include "tutti/event.hpp"
#include "tutti/pluggable_allocator.hpp"
#include "tutti/sharing.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace tutti {
namespace {

using test::expect_all_right;
using test::refuses;
using transport::team::gather;

using Handle = std::array<std::byte, sizeof(SharedTensorWords)>;

/// What rank 0 shares, to all.
Handle sent_to_all(Exchange& exchange, const std::optional<SharedTensor>& shared) {
  Handle handle{};
  if (shared.has_value()) {
    EXPECT_EQ(shared->handle().size(), handle.size());
    std::ranges::copy(shared->handle(), handle.begin());
  }
  return gather(exchange, handle)[0];
}

void flip(std::span<std::byte> bytes, std::size_t bit) {
  bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
}

/// Rank 0 shares a part of a tensor of 1000 elements; `use` is what rank 1 does with the handle.
void share_with(const std::function<void(const Handle&)>& use) {
  expect_all_right(2, [&use](Exchange& exchange) {
    std::optional<SharedTensor> shared;
    if (exchange.rank() == 0) shared.emplace(full({1000}, 7, {.device = 0}).narrow(0, 10, 500));
    const Handle handle = sent_to_all(exchange, shared);
    if (exchange.rank() == 1) use(handle);
    transport::team::synchronize(exchange);
  });
}

void expect_that_it_opens(const Handle& handle) {
  EXPECT_EQ(open_shared_tensor(handle).to_vector<float>(), std::vector<float>(500, 7));
}

TEST(SharedHandles, WithOneBitChangedAreRefused) {
  share_with([](const Handle& handle) {
    for (std::size_t bit = 0; bit < handle.size() * 8; ++bit) {
      Handle changed = handle;
      flip(changed, bit);
      ASSERT_TRUE(refuses([&] { static_cast<void>(open_shared_tensor(changed)); },
                          ErrorCode::invalid_argument, {"open_shared_tensor: handle has a checksum"}))
          << "bit " << bit;
    }
    expect_that_it_opens(handle);
  });
}

Handle forged(const Handle& handle, const std::function<void(SharedTensorWords&)>& change) {
  std::optional<SharedTensorWords> words = unsealed<SharedTensorWords>(handle);
  change(words.value());
  Handle result{};
  seal(*words, result);
  return result;
}

TEST(SharedHandles, AreComparedWithTheMemoryThatIsOpen) {
  share_with([](const Handle& handle) {
    constexpr std::uint64_t far = std::uint64_t{1} << 40;
    const auto expect_refusal = [&](const std::string& fragment,
                                    const std::function<void(SharedTensorWords&)>& change) {
      EXPECT_TRUE(refuses([&] { static_cast<void>(open_shared_tensor(forged(handle, change))); },
                          ErrorCode::invalid_argument, {"open_shared_tensor: handle names ", fragment}));
    };
    using Words = SharedTensorWords;
    expect_refusal("from offset 8589934592, and its memory has", [](Words& words) {
      words.bytes = far;
      words.offset = std::uint64_t{1} << 33;
    });
    expect_refusal("names 4000000000 bytes", [](Words& words) {
      words.bytes = far;
      words.sizes[0] = 1'000'000'000;
    });
    expect_refusal("and its memory has", [](Words& words) { words.strides[0] = 1 << 30; });
    expect_refusal("offset 42, which is no multiple of the 4 bytes of float32",
                   [](Words& words) { words.offset += 2; });
    expect_refusal("element type 77", [](Words& words) { words.dtype = 77; });
    expect_refusal("9 dimensions", [](Words& words) { words.rank = max_dimensions + 1; });
    expect_refusal("device -1", [](Words& words) { words.device = -1; });
    expect_refusal("an impossible tensor (Layout: strides[0] is -1",
                   [](Words& words) { words.strides[0] = -1; });
    expect_refusal("an impossible tensor (Layout: sizes", [](Words& words) {
      words.sizes[0] = words.strides[0] = std::numeric_limits<std::int64_t>::max();
    });
    expect_refusal("bytes of shared state", [](Words& words) { words.control.bytes = 4096; });
    expect_that_it_opens(handle);
  });
}

TEST(SharedHandles, OfPiecesAreComparedWithThePiecesThatAreOpen) {
  expect_all_right(2, [](Exchange& exchange) {
    constexpr std::size_t piece = std::size_t{2} << 20U;
    constexpr std::int64_t count = 1'000'000;  // of float32: in two pieces of four
    void* const memory = exchange.rank() == 0 ? device_malloc_in_pieces(4 * piece, piece, 0) : nullptr;
    std::optional<SharedTensor> shared;
    if (exchange.rank() == 0) {
      const Tensor tensor = from_blob(memory, {count}, {.dtype = DType::float32, .device = 0});
      tensor.fill_(7);
      shared.emplace(tensor);
    }
    const Handle handle = sent_to_all(exchange, shared);
    if (exchange.rank() == 1) {
      const Handle changed = forged(handle, [](SharedTensorWords& words) {
        words.bytes = 4 * piece;
        words.sizes[0] = 2 * count;
      });
      EXPECT_TRUE(refuses([&] { static_cast<void>(open_shared_tensor(changed)); },
                          ErrorCode::invalid_argument, {"open_shared_tensor: handle names 8000000 bytes"}));
      EXPECT_EQ(open_shared_tensor(handle).to_vector<float>(), std::vector<float>(count, 7));
    }
    transport::team::synchronize(exchange);
    shared.reset();
    synchronize(0);
    device_free(memory, 0);
  });
}

TEST(SharedHandles, WithABitChangedAndSealedAnewOpenNothingThatIsNotThere) {
  share_with([](const Handle& handle) {
    if (backend_kind() == BackendKind::cuda) return;  // it promises nothing of handles that were changed
    int opened = 0;
    for (std::size_t bit = 64; bit < handle.size() * 8; ++bit) {
      const Handle changed = forged(
          handle, [&](SharedTensorWords& words) { flip(std::as_writable_bytes(std::span(&words, 1)), bit); });
      std::optional<Tensor> tensor;
      try {
        tensor = open_shared_tensor(changed);
      } catch (const Error&) {
        continue;
      }
      ++opened;
      EXPECT_NO_THROW(static_cast<void>(tensor->to_bytes())) << "bit " << bit;
    }
    EXPECT_GT(opened, 0) << "a stride of less, for instance";
    expect_that_it_opens(handle);
  });
}

TEST(SharedHandles, OfEventsWithOneBitChangedAreRefused) {
  expect_all_right(2, [](Exchange& exchange) {
    if (backend_kind() == BackendKind::cuda) return;  // these are CUDA's own, to the last bit
    Event own({.interprocess = true});
    const IpcEventHandle handle =
        gather(exchange, exchange.rank() == 0 ? own.ipc_handle() : IpcEventHandle{})[0];
    for (std::size_t bit = 0; exchange.rank() == 1 && bit < 56 * 8; ++bit) {
      IpcEventHandle changed = handle;
      flip(changed.bytes, bit);
      ASSERT_TRUE(refuses([&] { static_cast<void>(Event::from_ipc_handle(0, changed)); },
                          ErrorCode::invalid_argument, {"device 0", "or was changed"}))
          << "bit " << bit;
    }
    if (exchange.rank() == 1) {
      EXPECT_TRUE(Event::from_ipc_handle(0, handle).query());
    }
    transport::team::synchronize(exchange);
  });
}

TEST(SharedHandles, AreOfNoUseToAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  expect_all_right(2, [](Exchange& exchange) {
    constexpr uid_t nobody = 65534;
    if (exchange.rank() == 1) {
      ASSERT_EQ(setresuid(nobody, nobody, nobody), 0);
    }
    std::optional<SharedTensor> shared;
    Event own({.interprocess = true});
    IpcEventHandle of_event;
    if (exchange.rank() == 0) {
      shared.emplace(full({1000}, 7, {.device = 0}));
      of_event = own.ipc_handle();
    }
    const Handle handle = sent_to_all(exchange, shared);
    of_event = gather(exchange, of_event)[0];
    if (exchange.rank() == 1) {
      const std::vector<std::string> reasons{"processes of the same user", "user 65534"};
      EXPECT_TRUE(refuses([&] { static_cast<void>(open_shared_tensor(handle)); }, ErrorCode::peer_unavailable,
                          {"open_shared_tensor: handle is of a tensor of process", reasons[0], reasons[1]}));
      if (backend_kind() == BackendKind::host) {
        EXPECT_TRUE(refuses([&] { static_cast<void>(Event::from_ipc_handle(0, of_event)); },
                            ErrorCode::peer_unavailable, reasons));
      }
    }
    transport::team::synchronize(exchange);
  });
}

TEST(SharedHandles, AreOpenedByTheSameUserAlsoWhereProcIsClosed) {
  expect_all_right(2, [](Exchange& exchange) {
    test::close_proc();
    std::optional<SharedTensor> shared;
    if (exchange.rank() == 0) shared.emplace(full({500}, 7, {.device = 0}));
    const Handle handle = sent_to_all(exchange, shared);
    for (const pid_t process : gather(exchange, getpid())) {
      if (process != getpid()) {
        EXPECT_FALSE(test::is_proc_open(process)) << "else this shows nothing";
      }
    }
    if (exchange.rank() == 1) expect_that_it_opens(handle);
    transport::team::synchronize(exchange);
  });
}

}  // namespace
}  // namespace tutti
