// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract/program_memory.hpp"

#include "base/rounding.hpp"
#include "tutti/device.hpp"
#include "tutti/pluggable_allocator.hpp"
#include "tutti/registered_memory.hpp"

#include <cstddef>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test::ranks {
namespace {

/// Keeps every block, for the stream that it was taken for, so that nobody has to wait for work that uses it.
class Blocks {
 public:
  explicit Blocks(bool are_registered) : are_registered_(are_registered) {}
  void* take(std::size_t bytes, int device, void* stream) {
    const std::lock_guard lock(mutex_);
    std::vector<void*>& cached = cached_[{device, stream, size_of(bytes)}];
    if (!cached.empty()) {
      void* const block = cached.back();
      cached.pop_back();
      return block;
    }
    void* const block = device_malloc(size_of(bytes), Device(device));
    if (block != nullptr && are_registered_) registrations_.push_back(register_memory(block, size_of(bytes)));
    return block;
  }
  void give_back(void* block, std::size_t bytes, int device, void* stream) {
    const std::lock_guard lock(mutex_);
    cached_[{device, stream, size_of(bytes)}].push_back(block);
  }

 private:
  static std::size_t size_of(std::size_t bytes) { return round_up(bytes, std::size_t{512}); }

  const bool are_registered_;
  std::mutex mutex_;
  std::map<std::tuple<int, void*, std::size_t>, std::vector<void*>> cached_;
  std::vector<MemoryRegistration> registrations_;
};

}  // namespace

void use_program_memory() {
  static const char* const kind = std::getenv("TUTTI_TEST_MEMORY");
  static Blocks* blocks = nullptr;  // for as long as the process runs
  if (kind == nullptr || blocks != nullptr) return;
  const bool are_registered = std::string_view(kind) == "registered";
  ASSERT_TRUE(are_registered || std::string_view(kind) == "foreign") << kind;
  blocks = new Blocks(are_registered);
  change_current_allocator(CUDAPluggableAllocator(
      [](std::size_t bytes, int device, void* stream) { return blocks->take(bytes, device, stream); },
      [](void* block, std::size_t bytes, int device, void* stream) {
        blocks->give_back(block, bytes, device, stream);
      }));
}

}  // namespace tutti::test::ranks
