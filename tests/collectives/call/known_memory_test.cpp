// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/known_memory.hpp"

#include "support/errors.hpp"
#include "tutti/collectives.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::collectives {
namespace {

constexpr std::size_t size = 4096;

backend::Backend& devices() {
  return Runtime::get().backend();
}

/// Memory of device 0 that tutti has not allocated.
class ProgramMemory {
 public:
  ProgramMemory() : address_(static_cast<std::byte*>(devices().allocate_device(0, size))) {}
  ProgramMemory(const ProgramMemory&) = delete;
  ProgramMemory& operator=(const ProgramMemory&) = delete;
  ~ProgramMemory() {
    synchronize(0);
    devices().free_device(0, address_);
  }
  [[nodiscard]] std::byte* address() const { return address_; }
  void add_to(KnownMemory& known) const { known.add(Runtime::get(), address_, {address_, size}, 0); }
  [[nodiscard]] bool is_known(const KnownMemory& known, std::size_t bytes = size, int device = 0) const {
    return known.has(Runtime::get(), address_, bytes, device);
  }

 private:
  std::byte* address_;
};

TEST(KnownMemory, HasWhatWasAdded) {
  const ProgramMemory memory;
  KnownMemory known;
  EXPECT_FALSE(memory.is_known(known));
  memory.add_to(known);
  EXPECT_TRUE(memory.is_known(known));
  EXPECT_TRUE(memory.is_known(known, 1));
  EXPECT_FALSE(memory.is_known(known, size + 1));
  EXPECT_FALSE(memory.is_known(known, size, 1));
}

TEST(KnownMemory, HasAllThatLiesInTheSameAllocation) {
  const ProgramMemory memory;
  const ProgramMemory other;
  KnownMemory known;
  memory.add_to(known);
  EXPECT_TRUE(known.has(Runtime::get(), memory.address() + 512, size - 512, 0));
  EXPECT_TRUE(known.has(Runtime::get(), memory.address() + size - 1, 1, 0));
  EXPECT_FALSE(known.has(Runtime::get(), memory.address() + 512, size - 511, 0)) << "beyond its end";
  EXPECT_FALSE(known.has(Runtime::get(), other.address(), 1, 0));
}

TEST(KnownMemory, HasNothingOnceItIsFreed) {
  KnownMemory known;
  std::vector<std::byte*> before;
  for (int i = 0; i < 8; ++i) {
    const ProgramMemory memory;
    EXPECT_FALSE(memory.is_known(known)) << "memory at an address that was used before";
    memory.add_to(known);
    before.push_back(memory.address());
  }
  for (const std::byte* const freed : before) EXPECT_FALSE(known.has(Runtime::get(), freed, 1, 0));
}

TEST(KnownMemory, KeepsWhatWasAddedLast) {
  KnownMemory known;
  std::vector<std::unique_ptr<ProgramMemory>> all;
  for (int i = 0; i < 200; ++i) {
    all.push_back(std::make_unique<ProgramMemory>());
    all.back()->add_to(known);
    EXPECT_TRUE(all.back()->is_known(known));
  }
}

TEST(KnownMemory, ACallRefusesMemoryThatWasFreedAfterAnEarlierCall) {
  auto memory = std::make_unique<ProgramMemory>();
  const Tensor tensor = from_blob(memory->address(), {16}, {.device = Device(0)});
  const Tensor longer = from_blob(memory->address(), {size}, {.device = Device(0)});
  const Tensor out = zeros({16}, {.device = Device(0)});
  for (int i = 0; i < 2; ++i) broadcast(tensor, std::vector{out});
  const Tensor longer_out = zeros({size}, {.device = Device(0)});
  EXPECT_TRUE(test::refuses([&] { broadcast(longer, std::vector{longer_out}); }, ErrorCode::invalid_argument,
                            {"tensor needs 16384 bytes", "the allocation holds 4096"}));
  memory.reset();
  EXPECT_TRUE(
      test::refuses([&] { broadcast(tensor, std::vector{out}); }, ErrorCode::invalid_argument, {"tensor"}));
}

}  // namespace
}  // namespace tutti::collectives
