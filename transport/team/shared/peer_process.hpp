// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/descriptor.hpp"

#include <sys/types.h>

namespace tutti::transport::team {

/// Watches another process of this host, which may end at any time.
class PeerProcess {
 public:
  /// Watches no process; it is never gone.
  PeerProcess() = default;
  explicit PeerProcess(pid_t process) noexcept;
  PeerProcess(PeerProcess&& other) noexcept;
  PeerProcess& operator=(PeerProcess&& other) noexcept;

  [[nodiscard]] bool is_gone() const noexcept;
  /// Returns another object that watches the same process.
  [[nodiscard]] PeerProcess again() const noexcept;

 private:
  pid_t process_ = 0;
  Descriptor descriptor_;  ///< signals the end of the process, even if its number is reused; may be none
};

}  // namespace tutti::transport::team
