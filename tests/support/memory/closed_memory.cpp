// SPDX-License-Identifier: Apache-2.0
#include "support/memory/closed_memory.hpp"

#include "backend/host/virtual_machine_control.hpp"
#include "base/rounding.hpp"
#include "device/runtime.hpp"
#include "tutti/device.hpp"

#include <functional>
#include <new>
#include <utility>

namespace tutti::test {
namespace {

constexpr std::size_t before = 4096;  ///< bytes of the first piece that are not used

backend::Backend& backend() {
  return Runtime::get().backend();
}

/// Closes memory to peers and returns it.
ClosedBlock closed(void* memory, std::function<void()> free) {
  Runtime::get().virtual_machine()->close_to_peers(memory);
  return {memory, [free = std::move(free)](void*) { free(); }};
}

ClosedBlock map_pieces(int device, std::size_t bytes) {
  const std::size_t page = backend().page_bytes(device);
  const std::size_t size = round_up(before + bytes, page);
  auto* const range = static_cast<std::byte*>(backend().reserve_addresses(device, size));
  for (std::size_t at = 0; at < size; at += page)
    if (!backend().map_pages(device, range + at, page)) throw std::bad_alloc();
  return closed(range + before, [=] {
    synchronize(device);
    backend().unmap_pages(device, range, size);
    backend().release_addresses(device, range, size);
  });
}

}  // namespace

ClosedBlock allocate_closed(ClosedKind kind, int device, std::size_t bytes) {
  if (kind == ClosedKind::pieces) return map_pieces(device, bytes);
  void* const block = backend().allocate_device(device, bytes);
  return closed(block, [=] {
    synchronize(device);
    backend().free_device(device, block);
  });
}

}  // namespace tutti::test
