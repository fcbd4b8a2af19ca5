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

/// Where other processes of the host get descriptors of this one: a socket, and a thread that answers those
/// who know a descriptor's token, and are of its audience, as the system tells of who connects.
///
/// It takes no permission but that: /proc/PID/fd, by which it goes without a thread, is closed to processes
/// of another user or user namespace, to those with fewer capabilities, and of programs that may not be read.
/// Numbers here are drawn by chance; who learns them is told by whoever offers. Thread-safe.
class DescriptorPort {
 public:
  /// The process's one, made where there is none: it ends with its last owner. Throws Error(out_of_memory) if
  /// the system has not got what it takes.
  [[nodiscard]] static std::shared_ptr<DescriptorPort> get();
  /// Whether it is this process's one that has this address.
  [[nodiscard]] static bool is_own(std::uint64_t address);
  DescriptorPort(const DescriptorPort&) = delete;
  DescriptorPort& operator=(const DescriptorPort&) = delete;
  ~DescriptorPort();

  /// What others find it by; not 0. Different from that of any other process, whatever number that has.
  [[nodiscard]] std::uint64_t address() const noexcept { return address_; }
  /// Returns what that audience fetches it by, which is not 0, until it is withdrawn: the same for the same
  /// descriptor and audience.
  [[nodiscard]] std::uint64_t offer(int descriptor, Audience audience);
  /// Nobody can fetch it any more. Comes before it is closed.
  void withdraw(int descriptor) noexcept;
  /// Listens also on a name in /tmp, until it ends. Sockets with other names are found only by processes of
  /// the same network namespace. Throws Error(unsupported).
  void listen_in_files();

  /// Gets a descriptor from another process, or from this one. Throws Error(peer_unavailable) if it is not
  /// offered there, or not to this process's user, or if the process has not answered for ten seconds, being
  /// stopped.
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
  Descriptor file_listener_;                ///< guarded by `mutex_`, like what follows
  std::map<std::uint64_t, Offer> offered_;  ///< by token
  std::atomic<bool> is_stopping_ = false;
  backend::Thread thread_;
};

}  // namespace tutti
