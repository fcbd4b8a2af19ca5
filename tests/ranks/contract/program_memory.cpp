// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract/program_memory.hpp"

#include "base/rounding.hpp"
#include "perf/operations/foreign_memory.hpp"
#include "tutti/device.hpp"
#include "tutti/managed_range.hpp"
#include "tutti/pluggable_allocator.hpp"

#include <cstddef>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test::ranks {
namespace {

using perf::ForeignMemory;
using perf::MemoryChoice;

/// Allocates blocks, none of which is ever freed.
using Source = std::function<void*(std::size_t bytes, int device)>;

Source source_named(std::string_view name) {
  if (name == "managed") {
    return [](std::size_t bytes, int) {
      void* const block = ::operator new(bytes);
      static std::deque<virtual_devices::ManagedRange> ranges;
      ranges.emplace_back(block, bytes);
      return block;
    };
  }
  const std::optional<MemoryChoice> choice = perf::found_in(perf::memory_names, name);
  if (!choice || choice == MemoryChoice::tutti) return nullptr;
  return [choice = *choice](std::size_t bytes, int device) -> void* {
    static std::deque<ForeignMemory> blocks;
    return blocks.emplace_back(choice, bytes, Device(device)).data();
  };
}

/// Keeps every block, for the stream that it was taken for, so that nobody has to wait for work that uses it.
class Blocks {
 public:
  explicit Blocks(Source source) : source_(std::move(source)) {}
  void* take(std::size_t bytes, int device, void* stream) {
    const std::lock_guard lock(mutex_);
    std::vector<void*>& cached = cached_[{device, stream, size_of(bytes)}];
    if (!cached.empty()) {
      void* const block = cached.back();
      cached.pop_back();
      return block;
    }
    return source_(size_of(bytes), device);
  }
  void give_back(void* block, std::size_t bytes, int device, void* stream) {
    const std::lock_guard lock(mutex_);
    cached_[{device, stream, size_of(bytes)}].push_back(block);
  }

 private:
  static std::size_t size_of(std::size_t bytes) { return round_up(bytes, std::size_t{512}); }

  const Source source_;
  std::mutex mutex_;
  std::map<std::tuple<int, void*, std::size_t>, std::vector<void*>> cached_;
};

}  // namespace

void use_program_memory() {
  static const char* const name = std::getenv("TUTTI_TEST_MEMORY");
  static Blocks* blocks = nullptr;  // for as long as the process runs
  if (name == nullptr || blocks != nullptr) return;
  Source source = source_named(name);
  ASSERT_TRUE(source) << name;
  blocks = new Blocks(std::move(source));
  change_current_allocator(CUDAPluggableAllocator(
      [](std::size_t bytes, int device, void* stream) { return blocks->take(bytes, device, stream); },
      [](void* block, std::size_t bytes, int device, void* stream) {
        blocks->give_back(block, bytes, device, stream);
      }));
}

}  // namespace tutti::test::ranks
