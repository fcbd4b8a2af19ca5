// SPDX-License-Identifier: Apache-2.0
#include "support/machines/machines.hpp"

#include "allocator/pinned_allocator.hpp"
#include "device/runtime.hpp"
#include "support/environment.hpp"
#include "tutti/memory.hpp"

#include <ostream>

namespace tutti::test {

void boot(std::string_view topology, int device_count, std::size_t memory_bytes) {
  drop_caches();
  auto machine = virtual_devices::VirtualMachine::from_topology(topology, device_count);
  machine.memory_bytes = memory_bytes;
  virtual_devices::start(machine);
}

MemoryInUse memory_in_use() {
  // Pinned memory that was given up returns in two steps: events are recorded where it was used, and then
  // found done.
  for (int step = 0; step < 2; ++step) {
    empty_pinned_cache();
    synchronize_all();
  }
  empty_pinned_cache();
  MemoryInUse memory;
  for (int device = 0; device < device_count(); ++device) memory.device += memory_allocated(device);
  memory.pinned = Runtime::get().part<PinnedAllocator>().bytes_active();
  return memory;
}

std::ostream& operator<<(std::ostream& stream, const MemoryInUse& memory) {
  return stream << memory.device << " bytes on devices, " << memory.pinned << " pinned";
}

void drop_caches() {
  synchronize_all();
  empty_cache();
  empty_pinned_cache();
}

}  // namespace tutti::test
