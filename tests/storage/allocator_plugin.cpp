// SPDX-License-Identifier: Apache-2.0
// A shared object with an allocator for tensors, as a program would load it. What it allocates with is handed
// to it, as it is linked to neither CUDA nor the library.

#include <atomic>

#include <sys/types.h>

namespace {

using Malloc = void* (*)(ssize_t bytes, int device);
using Free = void (*)(void* address, int device);

Malloc device_malloc = nullptr;
Free device_free = nullptr;
std::atomic<long> bytes_in_use{0};

}  // namespace

extern "C" {

void plugin_use(Malloc given_malloc, Free given_free) {
  device_malloc = given_malloc;
  device_free = given_free;
}

long plugin_bytes_in_use() {
  return bytes_in_use;
}

void* plugin_alloc(ssize_t bytes, int device, void* /*stream*/) {
  void* const address = device_malloc(bytes, device);
  if (address != nullptr) bytes_in_use += bytes;
  return address;
}

void plugin_free(void* address, ssize_t bytes, int device, void* /*stream*/) {
  bytes_in_use -= bytes;
  device_free(address, device);
}

}  // extern "C"
