// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "os/shared_memory.hpp"
#include "tutti/exchange.hpp"

#include <cstddef>
#include <functional>

namespace tutti::transport::team {

/// Zero-filled memory shared by the ranks of each host, one piece per host, and registered with the backend.
/// Every rank keeps it open, so that any of them can let further processes open it.
class HostShare {
 public:
  /// Creates and maps the memory. The rank `maker`, the same for all of a host, makes that host's piece, and
  /// `fill` fills it before others see it. Throws on all ranks if one of them fails. Collective over the
  /// exchange.
  HostShare(Runtime& runtime, Exchange& exchange, std::size_t bytes, std::size_t maker,
            const std::function<void(std::byte*)>& fill);
  HostShare(const HostShare&) = delete;
  HostShare& operator=(const HostShare&) = delete;
  /// Queued work must not use the memory any more.
  ~HostShare();

  [[nodiscard]] std::byte* data() const noexcept { return memory_.data(); }
  /// Lets other processes open it by the handle that it returns, until `withdraw`.
  [[nodiscard]] SharedMemory::Handle share() { return memory_.share(Audience::anyone); }
  void withdraw() noexcept { memory_.withdraw(); }
  /// Hands over this rank's view of the memory, at the same address; only the host uses it from now on.
  [[nodiscard]] SharedMemory release() noexcept;

 private:
  void unregister() noexcept;

  Runtime& runtime_;
  SharedMemory memory_;
  bool is_registered_ = false;
};

}  // namespace tutti::transport::team
