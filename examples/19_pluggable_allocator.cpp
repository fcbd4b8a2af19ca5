// SPDX-License-Identifier: Apache-2.0
// Device memory from the program's own functions: here they count, and pass on to the device. A shared object
// with two functions of this form can be named instead.

#include "tutti/tutti.hpp"

#include <atomic>
#include <cstddef>
#include <iostream>

namespace {

std::atomic<int> taken{0};
std::atomic<int> given_back{0};

void* take(std::size_t bytes, int device, void* /*stream*/) {
  ++taken;
  return tutti::device_malloc(bytes, device);
}

void give_back(void* address, std::size_t /*bytes*/, int device, void* /*stream*/) {
  ++given_back;
  tutti::synchronize(device);  // work that was queued on the stream may still use it
  tutti::device_free(address, device);
}

}  // namespace

int main() {
  tutti::change_current_allocator(tutti::CUDAPluggableAllocator(take, give_back));  // before the first tensor
  std::cout << "memory comes from a " << tutti::get_allocator_backend() << " allocator\n";
  for (int step = 0; step < 3; ++step) {
    const tutti::Tensor tensor = tutti::full({1 << 16}, step, {.device = 0});
    if (tensor.to_vector<float>().back() != static_cast<float>(step)) return 1;
  }
  std::cout << "asked " << taken << " times, given back " << given_back << " times\n";
  return taken == 3 && given_back == 3 ? 0 : 1;
}
