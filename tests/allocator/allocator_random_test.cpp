// SPDX-License-Identifier: Apache-2.0
// The statistics of every device equal the sums over its snapshot at every moment, whatever threads, streams
// and graphs do.

#include "allocator/allocators.hpp"
#include "allocator/caching_allocator.hpp"
#include "device/runtime.hpp"
#include "support/environment.hpp"
#include "support/memory/memory_books.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"
#include "tutti/graph.hpp"
#include "tutti/memory.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr std::size_t random_test_mib = std::size_t{1} << 20;
constexpr std::size_t most_held = 40;  ///< by a thread at a time
constexpr std::size_t most_graphs = 4;

/// One thread's random doings, over devices that others use as well.
class RandomTenant {
 public:
  RandomTenant(int devices, std::uint64_t seed) : random_(seed) {
    for (int device = 0; device < devices; ++device) {
      streams_.emplace_back(device);
      streams_.emplace_back(device);
    }
  }

  void step() {
    switch (below(8)) {
      case 0:
      case 1:
      case 2:
        return make_tensor();
      case 3:
        return make_raw();
      case 4:
        return use_elsewhere();
      case 5:
      case 6:
        return drop(tensors_);
      default:
        if (!raw_.empty()) caching_allocator_delete(taken_from(raw_));
    }
  }
  /// A graph whose memory is left to it, or to those that share its pool; and one tensor of it, and one that
  /// it uses and that is gone when it is captured, which may outlive it or not.
  void capture_one() {
    const Stream& stream = any_stream();
    const std::int64_t elements = any_size();
    const bool shares = !graphs_.empty() && below(2) == 0;
    const GraphPoolHandle pool = shares ? graphs_[below(graphs_.size())].pool() : GraphPoolHandle();
    Graph graph = Graph::capture(
        stream,
        [&] {
          const Tensor scratch = empty({elements}, {.dtype = DType::uint8, .device = stream.device()});
          tensors_.push_back(zeros({elements}, {.dtype = DType::uint8, .device = stream.device()}));
          drop(tensors_);
        },
        {.pool = pool});
    graph.launch(stream);
    graphs_.push_back(std::move(graph));
    if (graphs_.size() > most_graphs) {
      std::swap(graphs_[below(graphs_.size())], graphs_.back());
      graphs_.pop_back();
    }
  }
  void drop_all() {
    graphs_.clear();
    tensors_.clear();
    while (!raw_.empty()) caching_allocator_delete(taken_from(raw_));
  }

 private:
  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  const Stream& any_stream() { return streams_[below(streams_.size())]; }
  std::int64_t any_size() {
    return static_cast<std::int64_t>(below(10) == 0 ? below(12 * random_test_mib) : below(65536)) + 1;
  }
  template <class T>
  T taken_from(std::vector<T>& list) {
    std::swap(list[below(list.size())], list.back());
    T one = list.back();
    list.pop_back();
    return one;
  }
  void drop(std::vector<Tensor>& list) {
    if (!list.empty()) static_cast<void>(taken_from(list));
  }
  void make_tensor() {
    if (tensors_.size() >= most_held) return drop(tensors_);
    const Stream& stream = any_stream();
    const StreamGuard guard(stream);
    tensors_.push_back(empty({any_size()}, {.dtype = DType::uint8, .device = stream.device()})
                           .fill_(static_cast<double>(below(200))));
  }
  void make_raw() {
    const Stream& stream = any_stream();
    if (raw_.size() < most_held)
      raw_.push_back(caching_allocator_alloc(static_cast<std::size_t>(any_size()), stream.device(), stream));
  }
  void use_elsewhere() {
    if (tensors_.empty()) return;
    const Tensor& tensor = tensors_[below(tensors_.size())];
    const Stream& user = any_stream();
    if (user.device() == tensor.device().index()) tensor.record_stream(user);
  }

  std::mt19937_64 random_;
  std::vector<Stream> streams_;
  std::vector<Tensor> tensors_;
  std::vector<void*> raw_;
  std::vector<Graph> graphs_;
};

TEST(AllocatorBooks, BalanceAtEveryMoment) {
  const int devices = std::min(device_count(), 3);
  constexpr int threads = 3;
  const std::int64_t steps = test::scaled(1500);
  Runtime& runtime = Runtime::get();
  std::shared_mutex capturing;  // caches are not to be emptied meanwhile
  std::atomic<int> at_work = threads;
  std::vector<std::thread> tenants;
  for (int thread = 0; thread < threads; ++thread) {
    tenants.emplace_back([&, thread] {
      {
        RandomTenant tenant(devices, test::test_seed() + static_cast<std::uint64_t>(thread));
        for (std::int64_t step = 0; step < steps; ++step) {
          tenant.step();
          if (step % 100 == 99) {
            const std::shared_lock lock(capturing);
            tenant.capture_one();
          }
          if (step % 400 == 399 && thread == 0) {
            const std::unique_lock lock(capturing);
            empty_cache();
          }
        }
        tenant.drop_all();
      }
      --at_work;
    });
  }
  std::size_t looks = 0;
  while (at_work.load() > 0) {
    for (int device = 0; device < devices; ++device) {
      const CachingAllocator::Books books = runtime.part<Allocators>().of(device).books();
      EXPECT_TRUE(test::books_balance(books.stats, books.segments)) << "device " << device;
    }
    ++looks;
  }
  for (std::thread& tenant : tenants) tenant.join();
  EXPECT_GT(looks, 0U);
  for (int device = 0; device < devices; ++device) {
    synchronize(device);
    empty_cache();
    EXPECT_EQ(memory_allocated(device), 0U);
    EXPECT_TRUE(test::books_balance(memory_stats(device), runtime.part<Allocators>().of(device).snapshot()));
  }
}

}  // namespace
}  // namespace tutti
