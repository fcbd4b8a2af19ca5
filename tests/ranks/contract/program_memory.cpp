// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract/program_memory.hpp"

#include "base/rounding.hpp"
#include "perf/operations/foreign_memory.hpp"
#include "tutti/device.hpp"
#include "tutti/pluggable_allocator.hpp"

#include <cstddef>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test::ranks {
namespace {

using perf::ForeignMemory;
using perf::MemoryChoice;

/// Keeps every block, for the stream that it was taken for, so that nobody has to wait for work that uses it.
class Blocks {
 public:
  explicit Blocks(MemoryChoice choice) : choice_(choice) {}
  void* take(std::size_t bytes, int device, void* stream) {
    const std::lock_guard lock(mutex_);
    std::vector<void*>& cached = cached_[{device, stream, size_of(bytes)}];
    if (!cached.empty()) {
      void* const block = cached.back();
      cached.pop_back();
      return block;
    }
    return blocks_.emplace_back(choice_, size_of(bytes), Device(device)).data();
  }
  void give_back(void* block, std::size_t bytes, int device, void* stream) {
    const std::lock_guard lock(mutex_);
    cached_[{device, stream, size_of(bytes)}].push_back(block);
  }

 private:
  static std::size_t size_of(std::size_t bytes) { return round_up(bytes, std::size_t{512}); }

  const MemoryChoice choice_;
  std::mutex mutex_;
  std::map<std::tuple<int, void*, std::size_t>, std::vector<void*>> cached_;
  std::vector<ForeignMemory> blocks_;
};

}  // namespace

void use_program_memory() {
  static const char* const name = std::getenv("TUTTI_TEST_MEMORY");
  static Blocks* blocks = nullptr;  // for as long as the process runs
  if (name == nullptr || blocks != nullptr) return;
  const std::optional<MemoryChoice> choice = perf::found_in(perf::memory_names, std::string_view(name));
  ASSERT_TRUE(choice && choice != MemoryChoice::tutti) << name;
  blocks = new Blocks(*choice);
  change_current_allocator(CUDAPluggableAllocator(
      [](std::size_t bytes, int device, void* stream) { return blocks->take(bytes, device, stream); },
      [](void* block, std::size_t bytes, int device, void* stream) {
        blocks->give_back(block, bytes, device, stream);
      }));
}

}  // namespace tutti::test::ranks
