// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/open_place.hpp"

#include "settings/log.hpp"
#include "tutti/error.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace tutti::tcp {
namespace {

Descriptor make_bell() {
  Descriptor bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (bell.is_open()) return bell;
  throw Error(ErrorCode::transport_failure,
              fmt::format("OpenMeetingPoint: eventfd failed: {}", std::generic_category().message(errno)),
              errno);
}

}  // namespace

std::shared_ptr<OpenPlace> OpenPlace::at(const Place& place, std::size_t most) {
  auto opened = std::make_shared<OpenPlace>(place, most);
  opened->newcomers_.set_owner(opened);
  return opened;
}

OpenPlace::OpenPlace(const Place& place, std::size_t most)
    : newcomers_(place, most),
      bell_(make_bell()),
      thread_(
          {.name = "tutti-newcomers", .purpose = "that accepts connections at a meeting point"},
          [this] { run(); }, [](const backend::Escaped& escaped) { log_warning(escaped.what); }) {}

OpenPlace::~OpenPlace() {
  if (fork_mark_.is_in_child()) {
    thread_.leave_to_parent();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  wake();
  thread_.join();
}

WaitingNewcomers* OpenPlace::take() {
  const std::lock_guard lock(mutex_);
  if (is_taken_) return nullptr;
  is_taken_ = true;
  return &newcomers_;
}

void OpenPlace::give_back() noexcept {
  {
    const std::lock_guard lock(mutex_);
    newcomers_.forget_admitted();
    is_taken_ = false;
  }
  wake();
}

void OpenPlace::wake() const noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(!write(bell_.number(), &one, sizeof one));
}

void OpenPlace::run() {
  for (std::unique_lock lock(mutex_); !is_closing_; wait(lock)) {
    if (!is_taken_) look();
  }
}

void OpenPlace::look() {
  try {
    newcomers_.look();
    has_failed_ = false;
  } catch (const std::exception& error) {
    if (!has_failed_)
      log_warning(fmt::format("OpenMeetingPoint: cannot accept connections: {}", error.what()));
    has_failed_ = true;
  }
  count();
}

void OpenPlace::wait(std::unique_lock<std::mutex>& lock) {
  constexpr int soon_ms = 100;
  std::vector<pollfd> sockets{{.fd = bell_.number(), .events = POLLIN, .revents = 0}};
  const bool is_heard = is_taken_ || (newcomers_.add_sockets(sockets) && !has_failed_);
  if (has_failed_) sockets.resize(1);
  lock.unlock();
  poll(sockets.data(), sockets.size(), is_heard ? -1 : soon_ms);
  std::uint64_t rings = 0;
  static_cast<void>(!read(bell_.number(), &rings, sizeof rings));
  lock.lock();
}

}  // namespace tutti::tcp
