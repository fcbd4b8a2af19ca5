// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/audience.hpp"
#include "os/descriptor.hpp"
#include "os/thread.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <sys/types.h>

namespace tutti {

/// Hands descriptors of this process to other processes of the host: a thread listens on a socket and answers
/// clients that know a descriptor's token and belong to its audience. The kernel reports who a client is.
///
/// No other permission is needed. The alternative, /proc/PID/fd, needs no thread, but the kernel refuses it
/// across users and user namespaces, to processes with fewer capabilities, and for programs whose file may
/// not be read. Addresses and tokens are random numbers; whoever offers a descriptor passes them on.
/// Thread-safe.
class DescriptorPort {
 public:
  /// Returns the process's port, creating it if there is none. It is destroyed with its last owner. Throws
  /// Error(out_of_memory) if the system lacks the resources.
  [[nodiscard]] static std::shared_ptr<DescriptorPort> get();
  /// Returns whether `address` is that of this process's port.
  [[nodiscard]] static bool is_own(std::uint64_t address);
  DescriptorPort(const DescriptorPort&) = delete;
  DescriptorPort& operator=(const DescriptorPort&) = delete;
  ~DescriptorPort();

  /// Returns the number by which other processes find this port. It is not 0, and differs from that of every
  /// other process even if process ids coincide.
  [[nodiscard]] std::uint64_t address() const noexcept { return address_; }
  /// Returns the token by which that audience fetches the descriptor until it is withdrawn. It is not 0. The
  /// same descriptor and audience always give the same token.
  [[nodiscard]] std::uint64_t offer(int descriptor, Audience audience);
  /// Stops offering a descriptor. Call it before the descriptor is closed.
  void withdraw(int descriptor) noexcept;
  /// Also listens on a socket file in /tmp from now on: abstract socket names are visible only within one
  /// network namespace. Throws Error(unsupported).
  void listen_in_files();

  /// Fetches a descriptor from another process, or from this one. Throws Error(peer_unavailable) if that
  /// process does not offer it, or not to this process's user, or has not answered for ten seconds because it
  /// is stopped.
  [[nodiscard]] static Descriptor fetch(std::uint64_t address, std::uint64_t token);

 private:
  struct Offer {
    int descriptor = -1;
    Audience audience = Audience::same_user;
    friend bool operator==(const Offer&, const Offer&) = default;
  };

  DescriptorPort();
  void serve() noexcept;
  void answer(const Descriptor& line) noexcept;
  void wake() noexcept;

  const pid_t process_;
  const std::uint64_t address_;
  const Descriptor listener_;
  const Descriptor bell_;
  std::mutex mutex_;
  Descriptor file_listener_;                ///< guarded by `mutex_`, as are the members below
  std::map<std::uint64_t, Offer> offered_;  ///< by token
  std::atomic<bool> is_stopping_ = false;
  backend::Thread thread_;
};

}  // namespace tutti
