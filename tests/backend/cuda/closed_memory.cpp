// SPDX-License-Identifier: Apache-2.0
#include "support/memory/closed_memory.hpp"

#include "backend/cuda/program_memory.hpp"

namespace tutti::test {

ClosedBlock allocate_closed(ClosedKind kind, int device, std::size_t bytes) {
  return allocate(kind == ClosedKind::pieces ? ProgramMemory::pieces : ProgramMemory::default_pool, device,
                  bytes);
}

}  // namespace tutti::test
