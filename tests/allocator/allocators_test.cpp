// SPDX-License-Identifier: Apache-2.0
// What other layers register with the allocators.

#include "allocator/allocators.hpp"

#include "device/runtime.hpp"
#include "support/errors.hpp"
#include "tutti/graph_pool.hpp"
#include "tutti/memory.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

class RecordingKeeper final : public GraphPoolKeeper {
 public:
  void add_graph_pool(GraphPool keeper) override { added.push_back(keeper); }
  void close_graph_pool(GraphPool keeper) noexcept override { closed.push_back(keeper); }

  std::vector<GraphPool> added;
  std::vector<GraphPool> closed;
};

TEST(Allocators, TellKeepersOfTheGraphPoolsThatThereAre) {
  auto& allocators = Runtime::get().part<Allocators>();
  const GraphPool first{~std::uint64_t{0} >> 2U};
  const GraphPool second{static_cast<std::uint64_t>(first) - 1};
  RecordingKeeper keeper;
  allocators.add_graph_pool(first);
  allocators.add_keeper(keeper);
  EXPECT_EQ(keeper.added, std::vector{first}) << "the pool is older than the keeper";
  allocators.add_graph_pool(second);
  EXPECT_EQ(keeper.added, (std::vector{first, second}));
  allocators.close_graph_pool(first, GraphWork::done);
  EXPECT_EQ(keeper.closed, std::vector{first});
  allocators.remove_keeper(keeper);
  allocators.close_graph_pool(second, GraphWork::done);
  EXPECT_EQ(keeper.closed, std::vector{first});
}

/// Frees memory of the program when a pool is closed, in a function that itself uses pools.
class CallingKeeper final : public GraphPoolKeeper {
 public:
  void add_graph_pool(GraphPool /*keeper*/) override {}
  void close_graph_pool(GraphPool /*keeper*/) noexcept override {
    if (++closed == 1) other.reset();
  }

  std::optional<GraphPoolHandle> other;
  int closed = 0;
};

TEST(Allocators, LetWhatAKeeperFreesCloseOtherPools) {
  auto& allocators = Runtime::get().part<Allocators>();
  CallingKeeper keeper;
  keeper.other = graph_pool_handle();
  std::optional<GraphPoolHandle> handle = graph_pool_handle();
  allocators.add_keeper(keeper);
  handle.reset();
  allocators.remove_keeper(keeper);
  EXPECT_EQ(keeper.closed, 2);
}

/// Has a tensor that nobody uses any more, as sharing has.
class Hoard final : public Reclaimer {
 public:
  bool reclaim() override {
    ++asked;
    if (!kept) return false;
    kept.reset();
    return true;
  }

  std::optional<Tensor> kept;
  int asked = 0;
};

/// Leaves 64 MiB of device 0 to reserve.
class ScarceMemory {
 public:
  ScarceMemory() {
    empty_cache();
    set_per_process_memory_fraction(
        static_cast<double>(64 << 20) / static_cast<double>(mem_get_info(0).total), 0);
  }
  ScarceMemory(const ScarceMemory&) = delete;
  ScarceMemory& operator=(const ScarceMemory&) = delete;
  ~ScarceMemory() { set_per_process_memory_fraction(1, 0); }
};

TEST(Allocators, AskReclaimersBeforeTheyRefuse) {
  const ScarceMemory scarce;
  const auto make = [] { return empty({40 << 20}, {.dtype = DType::uint8, .device = 0}); };
  const std::shared_ptr<Reclaimers>& reclaimers = Runtime::get().part<Allocators>().reclaimers();
  Hoard hoard;
  std::shared_ptr<Reclaimer> as_reclaimer(&hoard, [](Reclaimer*) {});
  reclaimers->add(as_reclaimer);
  hoard.kept = make();
  EXPECT_EQ(hoard.asked, 0) << "there was memory";
  Tensor tensor = make();
  EXPECT_FALSE(hoard.kept.has_value());
  EXPECT_EQ(hoard.asked, 1);
  EXPECT_THROW(static_cast<void>(make()), OutOfMemoryError);
  EXPECT_EQ(hoard.asked, 2);
  as_reclaimer.reset();
  EXPECT_THROW(static_cast<void>(make()), OutOfMemoryError);
  EXPECT_EQ(hoard.asked, 2);
}

}  // namespace
}  // namespace tutti
