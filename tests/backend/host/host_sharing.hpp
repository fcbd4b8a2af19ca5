// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/host/host_machine.hpp"
#include "support/ranks.hpp"
#include "transport/team/shared/agreement.hpp"

#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

/// Shares device memory between processes: each process is a rank with a machine of its own.
namespace tutti::backend {

[[nodiscard]] inline std::vector<int> numbers(int first, std::size_t count) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

class HostSharing : public HostMachine {
 protected:
  /// Shares `bytes` at `address` of rank 0's device; all ranks get the handle.
  MemoryHandle handle_of(Exchange& exchange, int device, void* address) {
    return transport::team::gather(
        exchange, exchange.rank() == 0 ? machine().share_device_memory(device, address, Audience::anyone)
                                       : MemoryHandle{})[0];
  }
  int* open(int device, const MemoryHandle& handle) {
    return static_cast<int*>(machine().open_device_memory(device, handle));
  }
  std::string refusal_of(int device, const MemoryHandle& handle) {
    return error_message(ErrorCode::peer_unavailable, [&] { open(device, handle); });
  }
  /// Copies by a kernel of `device`, which needs access.
  void move(int device, int* target, const int* source, std::size_t count) {
    std::byte* pointers[] = {bytes_of(const_cast<int*>(source)), bytes_of(target)};
    const FanOutSegment segment{
        .row_bytes = count * sizeof(int), .source = 0, .first_target = 1, .target_count = 1};
    machine().fan_out(machine().default_stream(device), {.segments = {&segment, 1}, .pointers = pointers});
    machine().synchronize_device(device);
  }
  std::vector<int> read(int device, const int* source, std::size_t count) {
    int* const target = allocate<int>(device, count);
    move(device, target, source, count);
    std::vector<int> values = download(device, target, count);
    machine().free_device(device, target);
    return values;
  }
};

}  // namespace tutti::backend
