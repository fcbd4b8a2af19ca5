#include "backend/shared_memory.hpp"

#include "backend/descriptor.hpp"
#include "backend/environment.hpp"
#include "backend/shared_file.hpp"
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

/// What a link in /proc points to; empty if there is none.
std::string link_target(const char* path) {
  char buffer[256];
  const ssize_t length = readlink(path, buffer, sizeof(buffer));
  return length > 0 ? std::string(buffer, static_cast<std::size_t>(length)) : std::string();
}

/// All zero if the system does not say.
struct stat status_of(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) status = {};
  return status;
}

}  // namespace

SharedMemory::SharedMemory(std::size_t bytes) {
  Descriptor file(memfd_create("tutti", MFD_CLOEXEC));
  if (!file.is_open()) fail(ErrorCode::out_of_memory, "shared memory: memfd_create", errno);
  handle_ = {getpid(), file.number(), bytes, status_of(file.number()).st_ino};
  // If it has had the number of a standard stream for a moment, something may have been printed there.
  if (ftruncate(file.number(), 0) != 0) fail(ErrorCode::out_of_memory, "shared memory: ftruncate", errno);
  // Reserved now: later a page that the system has not got would end the process with SIGBUS.
  if (const int status = reserve(file.number(), bytes); status != 0) {
    const std::string limit = status != EFBIG ? ""
                                              : fmt::format(
                                                    " (no file, and no shared memory, may be longer "
                                                    "than {} bytes: see ulimit -f)",
                                                    longest_file());
    fail(ErrorCode::out_of_memory, fmt::format("shared memory: {} bytes cannot be had{}", bytes, limit),
         status);
  }
  map(file.number());
  handle_.descriptor = file.release();
}

SharedMemory::SharedMemory(const Handle& handle)
    : handle_{handle.process, -1, handle.bytes, handle.identity} {
  const std::string path = fmt::format("/proc/{}/fd/{}", handle.process, handle.descriptor);
  const Descriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.is_open()) {
    fail(ErrorCode::peer_unavailable,
         fmt::format("shared memory of process {}: open {}", handle.process, path), errno);
  }
  const struct stat status = status_of(file.number());
  const bool complete =
      static_cast<std::size_t>(status.st_size) == handle.bytes && status.st_ino == handle.identity;
  if (!complete) fail(ErrorCode::peer_unavailable, path + " is not the memory that was announced", EINVAL);
  map(file.number());
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), handle_(std::exchange(other.handle_, {})) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(handle_, other.handle_);
  return *this;
}

SharedMemory::~SharedMemory() {
  seal();
  if (data_ != nullptr) munmap(data_, handle_.bytes);
}

void SharedMemory::seal() noexcept {
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

std::string host_identity() {
  if (const auto given = Environment::read().host_id) return *given;
  const std::string boot = first_line_of("/proc/sys/kernel/random/boot_id");
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return fmt::format("{}/{}/{}", boot, name, link_target("/proc/self/ns/pid"));
}

}  // namespace tutti
