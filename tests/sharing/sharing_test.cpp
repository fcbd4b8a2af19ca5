// SPDX-License-Identifier: Apache-2.0
// Tensors that processes of one host share.

#include "tutti/sharing.hpp"

#include "device/runtime.hpp"
#include "sharing/deferred_closes.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/stream_gate.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/device.hpp"
#include "tutti/dlpack.hpp"
#include "tutti/error.hpp"
#include "tutti/memory.hpp"
#include "tutti/tensor.hpp"
#include "tutti/virtual_devices.hpp"

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti {
namespace {

using test::all_right;
using test::becomes_true;
using test::Ending;
using test::expect_all_right;
using test::killed;
using test::refuses;

constexpr std::size_t most_handle_bytes = 1024;

/// What travels between the ranks of a test.
struct SentHandle {
  std::array<std::byte, most_handle_bytes> bytes{};
  std::size_t count = 0;
  [[nodiscard]] std::span<const std::byte> span() const { return {bytes.data(), count}; }
};

/// All ranks get what rank 0 shares.
SentHandle sent_to_all(Exchange& exchange, const SharedTensor* shared) {
  SentHandle sent;
  if (shared != nullptr) {
    sent.count = shared->handle().size();
    std::memcpy(sent.bytes.data(), shared->handle().data(), sent.count);
  }
  return transport::team::gather(exchange, sent)[0];
}

void all_together(Exchange& exchange) {
  transport::team::synchronize(exchange);
}

TEST(Sharing, GivesAnotherProcessTheSameMemory) {
  expect_all_right(3, [](Exchange& exchange) {
    if (exchange.rank() == 0) {
      const Tensor before = full({100}, 9, {.device = 0});  // so that the tensor is not its segment's first
      const Tensor tensor = full({6, 50}, 2, {.device = 0});
      const Tensor part = tensor.narrow(1, 10, 20);
      const SharedTensor shared(part);
      static_cast<void>(sent_to_all(exchange, &shared));
      all_together(exchange);  // rank 1 has written
      EXPECT_EQ(tensor.to_vector<float>()[0], 2);
      EXPECT_EQ(tensor.to_vector<float>()[10], 7);
      EXPECT_EQ(tensor.to_vector<float>()[5 * 50 + 29], 7);
      EXPECT_EQ(before.to_vector<float>(), std::vector<float>(100, 9));
      all_together(exchange);
      return;
    }
    const SentHandle handle = sent_to_all(exchange, nullptr);
    const Tensor opened = open_shared_tensor(handle.span());
    EXPECT_EQ(opened.device(), Device(0));
    EXPECT_EQ(opened.dtype(), DType::float32);
    ASSERT_EQ(std::vector<std::int64_t>(opened.sizes().begin(), opened.sizes().end()),
              (std::vector<std::int64_t>{6, 20}));
    EXPECT_EQ(opened.strides()[0], 50);
    const Tensor again = open_shared_tensor(handle.span());
    EXPECT_TRUE(refuses([&] { SharedTensor{opened}; }, ErrorCode::unsupported,
                        {"SharedTensor: tensor is another process's", "pass on the handle"}));
    if (exchange.rank() == 1) {
      EXPECT_EQ(opened.to_vector<float>(), std::vector<float>(120, 2));
      opened.fill_(7);
      synchronize(0);
    }
    all_together(exchange);
    EXPECT_EQ(again.to_vector<float>(), std::vector<float>(120, 7));
    all_together(exchange);
  });
}

TEST(Sharing, KeepsReadOnlyMemoryReadOnly) {
  expect_all_right(2, [](Exchange& exchange) {
    if (exchange.rank() == 0) {
      const Tensor tensor = full({100}, 2, {.device = 0});
      const SharedTensor shared(
          from_dlpack_versioned(to_dlpack_versioned(tensor, nullptr, MemoryAccess::read_only)));
      static_cast<void>(sent_to_all(exchange, &shared));
      all_together(exchange);
      return;
    }
    const Tensor opened = open_shared_tensor(sent_to_all(exchange, nullptr).span());
    EXPECT_TRUE(opened.is_read_only());
    EXPECT_TRUE(refuses([&] { opened.fill_(7); }, ErrorCode::invalid_argument, {"read-only"}));
    EXPECT_EQ(opened.to_vector<float>(), std::vector<float>(100, 2));
    all_together(exchange);
  });
}

TEST(Sharing, KeepsMemoryUntilAllHaveClosedIt) {
  expect_all_right(2, [](Exchange& exchange) {
    if (exchange.rank() == 0) {
      std::optional<Tensor> tensor = full({1000}, 3, {.device = 0});
      std::optional<SharedTensor> shared{*tensor};
      const std::size_t allocated = memory_allocated(0);
      static_cast<void>(sent_to_all(exchange, &*shared));
      all_together(exchange);  // rank 1 has it open
      shared.reset();
      tensor.reset();
      ipc_collect();
      EXPECT_EQ(memory_allocated(0), allocated) << "the other process uses it";
      if (backend_kind() == BackendKind::host) {
        EXPECT_TRUE(refuses([] { virtual_devices::start({}); }, ErrorCode::invalid_argument,
                            {"1 tensors that were shared are still open in other processes"}));
        ipc_collect();
        EXPECT_EQ(memory_allocated(0), allocated) << "and still does";
      }
      all_together(exchange);  // nobody else can open it now
      all_together(exchange);  // rank 1 has closed it
      ipc_collect();
      EXPECT_EQ(memory_allocated(0), allocated - 4096);
      return;
    }
    const SentHandle handle = sent_to_all(exchange, nullptr);
    std::optional<Tensor> opened = open_shared_tensor(handle.span());
    if (backend_kind() == BackendKind::host) {
      EXPECT_TRUE(refuses([] { virtual_devices::start({}); }, ErrorCode::invalid_argument,
                          {"tensors of other processes are still open"}));
    }
    all_together(exchange);
    all_together(exchange);
    EXPECT_EQ(opened->to_vector<float>(), std::vector<float>(1000, 3));
    EXPECT_TRUE(refuses([&] { static_cast<void>(open_shared_tensor(handle.span())); },
                        ErrorCode::peer_unavailable,
                        {"open_shared_tensor: handle is of a tensor of process"}));
    opened.reset();
    ipc_collect();
    synchronize(0);
    ipc_collect();
    all_together(exchange);
  });
}

TEST(Sharing, LetsGoOfAllMemoryAtOnceWhereNobodyHasIt) {
  expect_all_right(1, [](Exchange& /*exchange*/) {
    const std::size_t allocated = memory_allocated(0);
    {
      const SharedTensor shared(full({1000}, 3, {.device = 0}));
      EXPECT_EQ(memory_allocated(0), allocated + 4096) << "the shared tensor owns it";
    }
    EXPECT_EQ(memory_allocated(0), allocated);
  });
}

TEST(Sharing, CountsAProcessThatIsKilledAsClosed) {
  test::Ranks ranks(2, [](Exchange& exchange) {
    if (exchange.rank() == 0) {
      std::optional<SharedTensor> shared{full({1000}, 3, {.device = 0})};
      const std::size_t allocated = memory_allocated(0);
      static_cast<void>(sent_to_all(exchange, &*shared));
      all_together(exchange);
      shared.reset();
      EXPECT_TRUE(becomes_true([&] {
        ipc_collect();
        return memory_allocated(0) == allocated - 4096;
      }));
      return;
    }
    const Tensor opened = open_shared_tensor(sent_to_all(exchange, nullptr).span());
    all_together(exchange);
    raise(SIGKILL);
  });
  EXPECT_EQ(ranks.wait(), (std::vector<Ending>{all_right, killed}));
}

TEST(Sharing, WaitsForNoWorkThatIsQueuedAfterTheLastTensorIsGone) {
  expect_all_right(2, [](Exchange& exchange) {
    if (backend_kind() != BackendKind::host) return;  // a GPU closes memory when all its work is done
    if (exchange.rank() == 0) {
      std::optional<SharedTensor> shared{full({1000}, 3, {.device = 0})};
      const std::size_t allocated = memory_allocated(0);
      static_cast<void>(sent_to_all(exchange, &*shared));
      all_together(exchange);  // rank 1 has had it open, and its stream is held back since then
      shared.reset();
      EXPECT_TRUE(becomes_true([&] {
        ipc_collect();
        return memory_allocated(0) == allocated - 4096;
      }));
      all_together(exchange);
      return;
    }
    const Stream stream(0);
    const StreamGuard guard(stream);
    std::optional<Tensor> opened = open_shared_tensor(sent_to_all(exchange, nullptr).span());
    EXPECT_EQ(opened->to_vector<float>(), std::vector<float>(1000, 3));
    opened.reset();
    test::StreamGate gate(stream);
    ipc_collect();
    all_together(exchange);
    all_together(exchange);
  });
}

TEST(Sharing, EndsWithTheProcessThatHasOpenedItAndNotWithItsChildren) {
  expect_all_right(2, [](Exchange& exchange) {
    if (exchange.rank() == 0) {
      std::optional<SharedTensor> shared{full({1000}, 3, {.device = 0})};
      const std::size_t allocated = memory_allocated(0);
      static_cast<void>(sent_to_all(exchange, &*shared));
      all_together(exchange);  // rank 1 has closed it, and its child lives
      shared.reset();
      EXPECT_TRUE(becomes_true([&] {
        ipc_collect();
        return memory_allocated(0) == allocated - 4096;
      }));
      all_together(exchange);
      return;
    }
    std::optional<Tensor> opened = open_shared_tensor(sent_to_all(exchange, nullptr).span());
    const pid_t sleeper = fork();
    if (sleeper == 0) {
      for (;;) pause();
    }
    const pid_t closer = fork();
    if (closer == 0) {
      opened.reset();  // its parent's
      std::_Exit(0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(closer, &status, 0), closer);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(opened->to_vector<float>(), std::vector<float>(1000, 3));
    opened.reset();
    ipc_collect();
    synchronize(0);
    ipc_collect();
    all_together(exchange);
    all_together(exchange);
    EXPECT_EQ(kill(sleeper, SIGKILL), 0);
    EXPECT_EQ(waitpid(sleeper, &status, 0), sleeper);
  });
}

TEST(Sharing, EndsWithItsProcess) {
  expect_all_right(2, [](Exchange& exchange) {
    if (exchange.rank() == 0) {
      const SharedTensor shared(full({1000}, 3, {.device = 0}));
      static_cast<void>(sent_to_all(exchange, &shared));
      all_together(exchange);
      return;
    }
    const SentHandle handle = sent_to_all(exchange, nullptr);
    const Tensor opened = open_shared_tensor(handle.span());
    all_together(exchange);
    EXPECT_TRUE(becomes_true([&] {
      try {
        static_cast<void>(open_shared_tensor(handle.span()));
        return false;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::peer_unavailable);
        return true;
      }
    }));
    if (backend_kind() == BackendKind::host) {
      EXPECT_EQ(opened.to_vector<float>(), std::vector<float>(1000, 3))
          << "memory of virtual devices that is open already stays";
    }
  });
}

TEST(Sharing, ClosesMemoryWhileNoCallsOfRanksAreUnderWay) {
  expect_all_right(1, [](Exchange&) {
    QuietCloses closes(Runtime::get());
    int closed = 0;
    closes.add([&] { ++closed; });
    EXPECT_EQ(closed, 1) << "there are no ranks";

    bool is_idle = false;
    closes.set_gates([](const std::function<void()>&) { return false; },
                     [&](const std::function<void()>& work) {
                       if (is_idle) work();
                       return is_idle;
                     });
    closes.add([&] { ++closed; });
    EXPECT_FALSE(closes.close_idle());
    EXPECT_EQ(closed, 1);
    is_idle = true;
    EXPECT_TRUE(closes.close_idle());
    EXPECT_EQ(closed, 2);
    EXPECT_FALSE(closes.close_idle()) << "nothing is left";
  });
}

TEST(Sharing, RefusesWhatItCannotShareOrOpen) {
  expect_all_right(1, [](Exchange& /*exchange*/) {
    EXPECT_TRUE(refuses([] { SharedTensor{Tensor()}; }, ErrorCode::invalid_argument, {"SharedTensor"}));
    EXPECT_TRUE(refuses([] { SharedTensor{empty({3}, {.device = Device::host()})}; },
                        ErrorCode::invalid_argument, {"SharedTensor: tensor is on the host"}));
    EXPECT_TRUE(refuses([] { SharedTensor{empty({0}, {.device = 0})}; }, ErrorCode::invalid_argument,
                        {"SharedTensor: tensor has no elements"}));
    const SharedTensor shared(full({10}, 1, {.device = 0}));
    EXPECT_TRUE(refuses([&] { static_cast<void>(open_shared_tensor(shared.handle())); },
                        ErrorCode::peer_unavailable, {"this process's own memory"}));
    EXPECT_TRUE(refuses([&] { static_cast<void>(open_shared_tensor(shared.handle().first(10))); },
                        ErrorCode::invalid_argument, {"open_shared_tensor: handle has 10 bytes"}));
    const std::vector<std::byte> zeros(shared.handle().size());
    EXPECT_TRUE(refuses([&] { static_cast<void>(open_shared_tensor(zeros)); }, ErrorCode::invalid_argument,
                        {"open_shared_tensor: handle has a checksum"}));
    SharedTensor moved(full({10}, 1, {.device = 0}));
    const SharedTensor target = std::move(moved);
    EXPECT_FALSE(target.handle().empty());
  });
}

}  // namespace
}  // namespace tutti
