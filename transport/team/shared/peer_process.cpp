// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shared/peer_process.hpp"

#include <cerrno>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tutti::transport::team {

PeerProcess::PeerProcess(pid_t process) noexcept
    : process_(process), descriptor_(static_cast<int>(syscall(SYS_pidfd_open, process, 0))) {}

PeerProcess::PeerProcess(PeerProcess&& other) noexcept
    : process_(std::exchange(other.process_, 0)), descriptor_(std::move(other.descriptor_)) {}

PeerProcess& PeerProcess::operator=(PeerProcess&& other) noexcept {
  std::swap(process_, other.process_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

PeerProcess PeerProcess::again() const noexcept {
  PeerProcess other;
  other.process_ = process_;
  if (descriptor_.is_open()) other.descriptor_ = Descriptor(fcntl(descriptor_.number(), F_DUPFD_CLOEXEC, 0));
  return other;
}

bool PeerProcess::is_gone() const noexcept {
  if (process_ == 0) return false;
  pollfd descriptor{.fd = descriptor_.number(), .events = POLLIN, .revents = 0};
  if (!descriptor_.is_open()) return kill(process_, 0) != 0 && errno == ESRCH;
  return poll(&descriptor, 1, 0) == 1 && (descriptor.revents & POLLIN) != 0;
}

}  // namespace tutti::transport::team
