// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/foreign_memory.hpp"

#include "tutti/error.hpp"
#include "tutti/pluggable_allocator.hpp"

#include <fmt/format.h>

namespace tutti::perf {
namespace {

/// PyTorch's segments have pieces of these sizes: small segments, and others.
constexpr std::size_t small_piece = std::size_t{2} << 20U;
constexpr std::size_t large_piece = std::size_t{20} << 20U;

void* allocate(MemoryChoice choice, std::size_t bytes, Device device) {
  void* const address =
      choice == MemoryChoice::expandable
          ? device_malloc_in_pieces(bytes, bytes > small_piece ? large_piece : small_piece, device)
          : device_malloc(bytes, device);
  if (address != nullptr) return address;
  throw Error(ErrorCode::out_of_memory,
              fmt::format("{} has no {} bytes of memory for operands", to_string(device), bytes));
}

}  // namespace

ForeignMemory::ForeignMemory(MemoryChoice choice, std::size_t bytes, Device device)
    : block_(allocate(choice, bytes, device), Free{device}) {
  if (choice != MemoryChoice::cuda) registration_ = register_memory(block_.get(), bytes);
}

void ForeignMemory::Free::operator()(void* address) const {
  device_free(address, device);
}

}  // namespace tutti::perf
