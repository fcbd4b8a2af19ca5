// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "os/shared_memory.hpp"
#include "tutti/exchange.hpp"

#include <cstddef>
#include <functional>

namespace tutti::transport::team {

/// Zero-filled memory that the ranks of each host share, registered with the backend: a piece on every host.
class HostShare {
 public:
  /// Collective over the exchange. The rank `maker`, the same for all of a host, makes that host's piece, and
  /// has `fill` fill it in before others see it. Throws on all ranks if one of them fails.
  HostShare(Runtime& runtime, Exchange& exchange, std::size_t bytes, std::size_t maker,
            const std::function<void(std::byte*)>& fill);
  HostShare(const HostShare&) = delete;
  HostShare& operator=(const HostShare&) = delete;
  /// Queued work does not use the memory any more.
  ~HostShare();

  [[nodiscard]] std::byte* data() const noexcept { return memory_.data(); }
  /// Hands over this rank's view of the memory, which only the host uses from now on. It stays at `data`.
  [[nodiscard]] SharedMemory release() noexcept;

 private:
  void unregister() noexcept;

  Runtime& runtime_;
  SharedMemory memory_;
  bool is_registered_ = false;
};

}  // namespace tutti::transport::team
