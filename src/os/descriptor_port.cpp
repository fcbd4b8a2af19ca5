// SPDX-License-Identifier: Apache-2.0
#include "os/descriptor_port.hpp"

#include "os/drawn_number.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

/// Time limits: for a process that does not answer, which may be stopped, and for a client that has connected
/// and sends nothing.
constexpr std::chrono::seconds longest_wait{10};
constexpr std::chrono::milliseconds asks_every{1};
/// Maximum number of clients that have connected and sent nothing yet. Beyond it, the oldest is dropped.
constexpr std::size_t most_visitors = 256;
constexpr char is_offered = 'y';
constexpr char is_not_offered = 'n';
constexpr char is_for_others = 'u';

[[noreturn]] void fail_by(ErrorCode code, const std::string& what, int error) {
  throw Error(code, fmt::format("{}: {}", what, std::strerror(error)), error);
}

/// Name of a socket: an abstract one, which the network namespace keeps, or a file's.
class SocketName {
 public:
  static SocketName abstract(std::uint64_t address) {
    return SocketName(fmt::format("{}tutti-{:016x}", '\0', address));
  }
  static SocketName file(std::uint64_t address) {
    return SocketName(fmt::format("/tmp/tutti-{:016x}.socket", address));
  }

  [[nodiscard]] const sockaddr* address() const noexcept {
    return reinterpret_cast<const sockaddr*>(&address_);
  }
  [[nodiscard]] socklen_t length() const noexcept { return length_; }
  [[nodiscard]] const char* path() const noexcept { return address_.sun_path; }
  [[nodiscard]] std::string text() const {
    return path()[0] == '\0' ? fmt::format("@{}", path() + 1) : std::string(path());
  }

 private:
  explicit SocketName(std::string_view name)
      : length_(static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())) {
    address_.sun_family = AF_UNIX;
    name.copy(address_.sun_path, sizeof address_.sun_path - 1);
  }

  sockaddr_un address_{};
  socklen_t length_;
};

Descriptor make_socket() {
  return Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

Descriptor make_bell() {
  return Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

/// Opens a listening socket. On failure the result is not open, and `errno` says why.
Descriptor listening_at(const SocketName& name) {
  Descriptor listener = make_socket();
  const bool listens = listener.is_open() && bind(listener.number(), name.address(), name.length()) == 0 &&
                       listen(listener.number(), SOMAXCONN) == 0;
  if (!listens) {
    const int error = errno;
    listener.close();
    errno = error;
  }
  return listener;
}

/// Connects to a listening socket. On failure the result is not open, and `errno` says why.
Descriptor connected_to(const SocketName& name, Clock::time_point deadline) {
  Descriptor line = make_socket();
  if (!line.is_open()) return line;
  while (connect(line.number(), name.address(), name.length()) != 0) {
    const int error = errno;
    const bool is_busy = error == EAGAIN || error == EINTR;  // many connect at once
    if (is_busy && Clock::now() < deadline) {
      std::this_thread::sleep_for(asks_every);
      continue;
    }
    line.close();
    errno = error;
    break;
  }
  return line;
}

bool has_something(const Descriptor& line, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{.fd = line.number(), .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, static_cast<int>(std::max<std::int64_t>(left, 0))) > 0) return true;
    if (left <= 0) return false;
  }
}

/// Returns whether a client ran as this process's user, or as root, when it connected; the kernel reports
/// that.
bool is_of_same_user(const Descriptor& line) noexcept {
  ucred visitor{};
  socklen_t length = sizeof visitor;
  return getsockopt(line.number(), SOL_SOCKET, SO_PEERCRED, &visitor, &length) == 0 &&
         (visitor.uid == geteuid() || visitor.uid == 0);
}

/// A message of one byte, with an optional descriptor.
class Answer {
 public:
  Answer() {
    message_.msg_iov = &piece_;
    message_.msg_iovlen = 1;
  }
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  void send(int line, char word, int descriptor) noexcept {
    word_ = word;
    if (descriptor >= 0) {
      use_control();
      cmsghdr* const part = CMSG_FIRSTHDR(&message_);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(sizeof descriptor);
      std::memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
    }
    static_cast<void>(sendmsg(line, &message_, MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  /// Returns the byte, or 0 if nothing arrives.
  [[nodiscard]] char receive(int line, Descriptor& descriptor) noexcept {
    use_control();
    if (recvmsg(line, &message_, MSG_CMSG_CLOEXEC) != 1) return 0;
    const cmsghdr* const part = CMSG_FIRSTHDR(&message_);
    if (part != nullptr && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS &&
        part->cmsg_len == CMSG_LEN(sizeof(int))) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(part), sizeof number);
      descriptor = Descriptor(number);
    }
    return word_;
  }

 private:
  void use_control() noexcept {
    message_.msg_control = control_.data();
    message_.msg_controllen = control_.size();
  }

  char word_ = 0;
  iovec piece_{.iov_base = &word_, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control_{};
  msghdr message_{};
};

/// Holds the process's port, if it has one. Never destroyed, because destructors of other objects may run
/// later.
struct Slot {
  std::mutex mutex;
  std::weak_ptr<DescriptorPort> port;
};
Slot& slot() {
  static Slot& only = *new Slot;
  return only;
}

}  // namespace

std::shared_ptr<DescriptorPort> DescriptorPort::get() {
  const std::lock_guard lock(slot().mutex);
  std::shared_ptr<DescriptorPort> port = slot().port.lock();
  // In a forked child, no thread serves the parent's port.
  if (port != nullptr && port->process_ == getpid()) return port;
  port.reset(new DescriptorPort);
  slot().port = port;
  return port;
}

bool DescriptorPort::is_own(std::uint64_t address) {
  const std::lock_guard lock(slot().mutex);
  const std::shared_ptr<DescriptorPort> port = slot().port.lock();
  return port != nullptr && port->process_ == getpid() && port->address_ == address;
}

DescriptorPort::DescriptorPort()
    : process_(getpid()),
      address_(drawn_number()),
      listener_(listening_at(SocketName::abstract(address_))),
      bell_(listener_.is_open() ? make_bell() : Descriptor()) {
  if (!bell_.is_open())
    fail_by(ErrorCode::out_of_memory, "cannot open a socket to pass shared memory", errno);
  thread_ = backend::Thread(
      {.name = "tutti-port", .purpose = "that passes shared memory to other processes"}, [this] { serve(); },
      [](const backend::Escaped&) {});
}

DescriptorPort::~DescriptorPort() {
  if (process_ != getpid()) {
    thread_.leave_to_parent();
    return;
  }
  is_stopping_.store(true);
  wake();
  thread_.join();
  if (file_listener_.is_open()) unlink(SocketName::file(address_).path());
}

std::uint64_t DescriptorPort::offer(int descriptor, Audience audience) {
  const std::lock_guard lock(mutex_);
  const Offer offer{descriptor, audience};
  for (const auto& [token, other] : offered_) {
    if (other == offer) return token;
  }
  for (;;) {
    const std::uint64_t token = drawn_number();
    if (offered_.emplace(token, offer).second) return token;
  }
}

void DescriptorPort::withdraw(int descriptor) noexcept {
  if (process_ != getpid()) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(offered_, [descriptor](const auto& entry) { return entry.second.descriptor == descriptor; });
}

void DescriptorPort::listen_in_files() {
  const std::lock_guard lock(mutex_);
  if (file_listener_.is_open()) return;
  const SocketName name = SocketName::file(address_);
  Descriptor listener = listening_at(name);
  if (!listener.is_open())
    fail_by(ErrorCode::unsupported, fmt::format("cannot open socket {} to pass shared memory", name.text()),
            errno);
  // Any user may connect; the tokens decide.
  static_cast<void>(chmod(name.path(), S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH));
  file_listener_ = std::move(listener);
  // Tensors may share memory until the process ends.
  static_cast<void>(std::atexit([] {
    const std::lock_guard at_exit(slot().mutex);
    const std::shared_ptr<DescriptorPort> port = slot().port.lock();
    if (port != nullptr && port->process_ == getpid()) unlink(SocketName::file(port->address_).path());
  }));
  wake();
}

void DescriptorPort::wake() noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(!write(bell_.number(), &one, sizeof one));
}

/// Allocates no memory, so that nothing can fail.
void DescriptorPort::serve() noexcept {
  struct Visitor {
    Descriptor line;
    Clock::time_point leaves_at;
  };
  std::array<Visitor, most_visitors> visitors;  // in order of arrival
  std::size_t count = 0;
  const auto see_off = [&](std::size_t visitor) {
    std::move(visitors.begin() + static_cast<std::ptrdiff_t>(visitor) + 1,
              visitors.begin() + static_cast<std::ptrdiff_t>(count),
              visitors.begin() + static_cast<std::ptrdiff_t>(visitor));
    visitors[--count].line.close();
  };
  constexpr std::size_t doors = 3;
  std::array<pollfd, doors + most_visitors> waiting{};
  bool is_short = false;  // of descriptors: waiting clients are not accepted for now
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      waiting[0].fd = bell_.number();
      waiting[1].fd = is_short ? -1 : listener_.number();
      waiting[2].fd = is_short ? -1 : file_listener_.number();
    }
    for (std::size_t visitor = 0; visitor < count; ++visitor)
      waiting[doors + visitor].fd = visitors[visitor].line.number();
    for (pollfd& one : waiting) {
      one.events = POLLIN;
      one.revents = 0;
    }
    const int until_then = count == 0 ? -1 : 1000;
    poll(waiting.data(), doors + count, is_short ? 10 : until_then);
    if (is_stopping_.load()) return;
    if (waiting[0].revents != 0) {
      std::uint64_t rung = 0;
      static_cast<void>(!read(bell_.number(), &rung, sizeof rung));
    }
    const auto now = Clock::now();
    for (std::size_t visitor = count; visitor-- > 0;) {
      const bool has_spoken = waiting[doors + visitor].revents != 0;
      if (has_spoken) answer(visitors[visitor].line);
      if (has_spoken || now >= visitors[visitor].leaves_at) see_off(visitor);
    }
    is_short = false;
    for (std::size_t door = 1; door < doors; ++door) {
      if (waiting[door].revents == 0) continue;
      Descriptor line(accept4(waiting[door].fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      is_short |= !line.is_open() && errno != EAGAIN;
      if (!line.is_open()) continue;
      if (count == most_visitors) see_off(0);
      visitors[count].line = std::move(line);
      visitors[count++].leaves_at = now + longest_wait;
    }
  }
}

void DescriptorPort::answer(const Descriptor& line) noexcept {
  std::uint64_t token = 0;
  if (recv(line.number(), &token, sizeof token, MSG_DONTWAIT) != static_cast<ssize_t>(sizeof token)) return;
  const std::lock_guard lock(mutex_);  // keeps the descriptor from being closed meanwhile
  const auto found = offered_.find(token);
  if (found == offered_.end()) {
    Answer().send(line.number(), is_not_offered, -1);
  } else if (found->second.audience == Audience::same_user && !is_of_same_user(line)) {
    Answer().send(line.number(), is_for_others, -1);
  } else {
    Answer().send(line.number(), is_offered, found->second.descriptor);
  }
}

Descriptor DescriptorPort::fetch(std::uint64_t address, std::uint64_t token) {
  const auto deadline = Clock::now() + longest_wait;
  const SocketName near = SocketName::abstract(address);
  Descriptor line = connected_to(near, deadline);
  if (!line.is_open()) {
    const int error = errno;
    line = connected_to(SocketName::file(address), deadline);
    if (!line.is_open()) fail_by(ErrorCode::peer_unavailable, fmt::format("socket {}", near.text()), error);
  }
  static_cast<void>(send(line.number(), &token, sizeof token, MSG_NOSIGNAL));
  if (!has_something(line, deadline))
    fail_by(ErrorCode::peer_unavailable, fmt::format("socket {}: no answer", near.text()), ETIMEDOUT);
  Descriptor descriptor;
  const char word = Answer().receive(line.number(), descriptor);
  if (word == is_offered && !descriptor.is_open()) {
    fail_by(
        ErrorCode::peer_unavailable,
        fmt::format("socket {}: this process cannot receive another descriptor: see ulimit -n", near.text()),
        EMFILE);
  }
  if (word == is_for_others) {
    fail_by(
        ErrorCode::peer_unavailable,
        fmt::format("socket {}: it is offered to processes of the same user, and this one runs as user {}",
                    near.text(), geteuid()),
        EPERM);
  }
  if (word != is_offered)
    fail_by(ErrorCode::peer_unavailable, fmt::format("socket {}: it is not offered any more", near.text()),
            ENOENT);
  return descriptor;
}

}  // namespace tutti
