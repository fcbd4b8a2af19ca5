// SPDX-License-Identifier: Apache-2.0
#include "os/shared_memory.hpp"

#include "os/descriptor.hpp"
#include "os/shared_file.hpp"
#include "tutti/error.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tutti {
namespace {

[[noreturn]] void fail(ErrorCode code, const std::string& what, int error) {
  throw Error(code, fmt::format("{}: {}", what, std::strerror(error)), error);
}

/// Returns the target of a link in /proc; empty if there is none.
std::string link_target(const char* path) {
  char buffer[256];
  const ssize_t length = readlink(path, buffer, sizeof(buffer));
  return length > 0 ? std::string(buffer, static_cast<std::size_t>(length)) : std::string();
}

/// Returns the file's status; all zero if the system does not report it.
struct stat status_of(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) status = {};
  return status;
}

bool is_announced(const struct stat& status, const SharedMemory::Handle& handle) {
  return S_ISREG(status.st_mode) && static_cast<std::size_t>(status.st_size) == handle.bytes &&
         status.st_ino == handle.identity;
}

/// Opens the memory file that a process has announced.
Descriptor opened(const SharedMemory::Handle& handle) {
  const std::string path = fmt::format("/proc/{}/fd/{}", handle.process, handle.descriptor);
  // Checked before it is opened: in another PID namespace, the number belongs to another process.
  struct stat status {};
  int error = stat(path.c_str(), &status) == 0 ? 0 : errno;
  if (error == 0 && is_announced(status, handle)) {
    Descriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY));
    if (file.is_open() && is_announced(status_of(file.number()), handle)) return file;
    error = file.is_open() ? 0 : errno;
  }
  std::string reason = fmt::format("{}: {}", path, std::strerror(error));
  if (error == 0) {
    error = EINVAL;
    reason = path + " is not the memory that was announced";
  }
  if (handle.port != 0) {
    try {
      Descriptor file = DescriptorPort::fetch(handle.port, handle.token);
      if (is_announced(status_of(file.number()), handle)) return file;
      reason += ", nor is the memory that its process offers";
    } catch (const Error& other) {
      reason += fmt::format("; {}", other.what());
    }
  }
  throw Error(ErrorCode::peer_unavailable,
              fmt::format("shared memory of process {}: {}", handle.process, reason), error);
}

}  // namespace

SharedMemory::SharedMemory(std::size_t bytes) {
  Descriptor file(memfd_create("tutti", MFD_CLOEXEC));
  if (!file.is_open()) fail(ErrorCode::out_of_memory, "shared memory: memfd_create", errno);
  handle_ = {getpid(), file.number(), bytes, status_of(file.number()).st_ino};
  // If it briefly had the number of a standard stream, output may have been written to it.
  if (ftruncate(file.number(), 0) != 0) fail(ErrorCode::out_of_memory, "shared memory: ftruncate", errno);
  // Reserved now: otherwise a page that the system lacks would later end the process with SIGBUS.
  if (const int status = reserve(file.number(), bytes); status != 0) {
    const std::string limit = status != EFBIG ? ""
                                              : fmt::format(
                                                    " (no file, and no shared memory, may be longer "
                                                    "than {} bytes: see ulimit -f)",
                                                    longest_file());
    fail(ErrorCode::out_of_memory, fmt::format("shared memory: {} bytes cannot be allocated{}", bytes, limit),
         status);
  }
  map(file.number());
  handle_.descriptor = file.release();
}

SharedMemory::SharedMemory(const Handle& handle)
    : handle_{handle.process, -1, handle.bytes, handle.identity} {
  map(opened(handle).number());
}

SharedMemory SharedMemory::kept_open(const Handle& handle) {
  SharedMemory memory;
  Descriptor file = opened(handle);
  memory.handle_ = {getpid(), -1, handle.bytes, handle.identity};
  memory.map(file.number());
  memory.handle_.descriptor = file.release();
  return memory;
}

Descriptor SharedMemory::open_file(const Handle& handle) {
  const Descriptor found = opened(handle);
  // A descriptor received by a socket shares its locks with the sender's.
  Descriptor own(open(fmt::format("/proc/self/fd/{}", found.number()).c_str(), O_RDWR | O_CLOEXEC));
  if (!own.is_open()) fail(ErrorCode::peer_unavailable, "shared memory: /proc/self/fd", errno);
  return own;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      handle_(std::exchange(other.handle_, {})),
      port_(std::move(other.port_)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(handle_, other.handle_);
  std::swap(port_, other.port_);
  return *this;
}

SharedMemory::~SharedMemory() {
  seal();
  if (data_ != nullptr) munmap(data_, handle_.bytes);
}

SharedMemory::Handle SharedMemory::share(Audience audience) {
  Handle handle = handle_;
  if (handle_.descriptor < 0) return handle;
  try {
    if (port_ == nullptr) port_ = DescriptorPort::get();
    handle.token = port_->offer(handle_.descriptor, audience);
    handle.port = port_->address();
  } catch (const Error&) {
    // Others can still use /proc, and report it if they cannot.
  }
  return handle;
}

void SharedMemory::withdraw() noexcept {
  if (port_ != nullptr) port_->withdraw(handle_.descriptor);
  port_ = nullptr;
}

void SharedMemory::seal() noexcept {
  withdraw();
  if (handle_.descriptor >= 0 && handle_.process == getpid()) close(handle_.descriptor);
  handle_.descriptor = -1;
}

void SharedMemory::hand_over_to(std::byte* address) {
  if (mremap(data_, handle_.bytes, handle_.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, address) == MAP_FAILED) {
    fail(ErrorCode::out_of_memory, fmt::format("shared memory: {} bytes cannot be moved", handle_.bytes),
         errno);
  }
  data_ = nullptr;
}

void SharedMemory::map(int descriptor) {
  void* const address = mmap(nullptr, handle_.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) {
    fail(ErrorCode::out_of_memory, fmt::format("shared memory: {} bytes cannot be mapped", handle_.bytes),
         errno);
  }
  data_ = static_cast<std::byte*>(address);
}

bool SharedMemory::is_own(const Handle& handle) {
  return handle.process == getpid() && (handle.port == 0 || DescriptorPort::is_own(handle.port));
}

std::uint64_t process_space() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

std::string host_identity() {
  const std::string boot = first_line_of("/proc/sys/kernel/random/boot_id");
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return fmt::format("{}/{}/{}", boot, name, link_target("/proc/self/ns/pid"));
}

}  // namespace tutti
