// SPDX-License-Identifier: Apache-2.0
// Where memory comes from: each device has a cache of blocks, which follow the streams that use them, and so
// has pinned memory of the host, from which copies run beside the program.

#include "tutti/tutti.hpp"

#include <cstddef>
#include <iostream>

int main() {
  constexpr std::size_t bytes = std::size_t{16} << 20U;
  tutti::reset_peak_memory_stats(0);
  for (int step = 0; step < 10; ++step) {
    // From the second step on it is the block of the step before: no device is asked for memory.
    const tutti::Tensor scratch = tutti::empty({bytes / sizeof(float)}, {.device = 0});
    scratch.fill_(step);
  }
  const tutti::MemoryStats stats = tutti::memory_stats(0);
  std::cout << "allocated now: " << tutti::memory_allocated(0) << " bytes, at most "
            << tutti::max_memory_allocated(0) << "; the device was asked " << stats.num_device_alloc
            << " times\n";
  if (tutti::memory_allocated(0) != 0 || tutti::max_memory_allocated(0) < bytes) return 1;

  // A block that another stream uses is not handed out before that stream is done with it.
  const tutti::Stream side(tutti::Device(0));
  {
    const tutti::Tensor lent = tutti::zeros({1024}, {.device = 0});
    side.wait_stream(tutti::current_stream(0));
    lent.record_stream(side);
    const tutti::StreamGuard guard(side);
    lent.fill_(1);
  }

  // Copies from pinned memory are queued, and do not wait.
  const tutti::Tensor staged = tutti::full({1024}, 3, {}).pin_memory();
  const tutti::Tensor on_device = staged.to(0, tutti::Blocking::no);
  std::cout << "copied: " << on_device.to_vector<float>().back() << '\n';

  std::cout << tutti::memory_summary(0, tutti::SummaryDetail::abbreviated);
  tutti::empty_cache();  // what is cached goes back to the devices
  std::cout << "reserved in the end: " << tutti::memory_reserved(0) << " bytes\n";
}
