// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/fake_nccl/fake_nccl.hpp"

#include <cstdlib>

using namespace fake_nccl;

// NOLINTBEGIN(readability-identifier-naming): the names are the interface's
extern "C" {

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return count("ncclMemAlloc");
}
ncclResult_t ncclMemFree(void* memory) {
  std::free(memory);
  return count("ncclMemFree");
}
ncclResult_t ncclCommRegister(ncclComm_t, void* memory, size_t, void** handle) {
  *handle = memory;
  return count("ncclCommRegister");
}
ncclResult_t ncclCommDeregister(ncclComm_t, void*) {
  return count("ncclCommDeregister");
}
ncclResult_t ncclCommWindowRegister(ncclComm_t, void* memory, size_t, ncclWindow_t* window, int) {
  const ncclResult_t result = count("ncclCommWindowRegister");
  if (result != ncclSuccess) return result;
  return add(alone([=] {
    *window = static_cast<ncclWindow_t>(memory);
    return ncclSuccess;
  }));
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) {
  return count("ncclCommWindowDeregister");
}
ncclResult_t ncclWinGetUserPtr(ncclComm_t, ncclWindow_t window, void** memory) {
  *memory = window;
  return count("ncclWinGetUserPtr");
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
