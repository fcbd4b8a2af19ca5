// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/audience.hpp"
#include "os/descriptor.hpp"
#include "os/descriptor_port.hpp"
#include "tutti/error.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <sys/types.h>

namespace tutti {

/// Zero-filled memory that processes of one host share.
///
/// It has no name in any file system. Other processes open it through the process that made it, while that
/// process lives. It is freed with the last process that maps it, however that process ends, and does not
/// count against the size of /dev/shm. Processes open it by /proc, or by a socket (`DescriptorPort`) if /proc
/// is closed to them. So they may be in different user namespaces, with different capabilities, and of
/// different users if the audience is anyone.
class SharedMemory {
 public:
  /// Names the memory to other processes.
  struct Handle {
    pid_t process = 0;
    int descriptor = -1;
    std::size_t bytes = 0;
    std::uint64_t identity = 0;  ///< tells it from other memory that gets the same descriptor later
    std::uint64_t port = 0;      ///< address of the `DescriptorPort` that offers it; 0: none does
    std::uint64_t token = 0;     ///< its token at that port
    friend bool operator==(const Handle&, const Handle&) = default;
  };

  SharedMemory() = default;
  /// Returns whether the handle is of this process. Process ids alone do not tell across PID namespaces.
  [[nodiscard]] static bool is_own(const Handle& handle);
  /// Makes new memory and reserves all of it, however many signals arrive meanwhile. Throws
  /// Error(out_of_memory) if the system has too little, or the process may not have files that long (`ulimit
  /// -f`).
  explicit SharedMemory(std::size_t bytes);
  /// Maps the memory of another process, or of this one. Throws Error(peer_unavailable) if it cannot be
  /// opened, also, if /proc is closed, because its process has been stopped for ten seconds.
  explicit SharedMemory(const Handle& handle);
  /// Maps the memory of another process, and keeps it open, so that others can open it through this process.
  [[nodiscard]] static SharedMemory kept_open(const Handle& handle);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  /// Returns the memory's address, or nullptr once it has been handed over.
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return handle_.bytes; }
  /// Returns the handle by which an audience opens memory that was made here, or is kept open. It is always
  /// the same for one audience, until `withdraw`.
  [[nodiscard]] Handle share(Audience audience);
  /// Opens the file behind the memory anew, so that its locks (`flock`) are the caller's own and end with the
  /// process. Throws what the constructor throws.
  [[nodiscard]] static Descriptor open_file(const Handle& handle);
  /// Lets no further process open it by the socket before it is shared again.
  void withdraw() noexcept;
  /// Lets no further process open it. Call it when all have.
  void seal() noexcept;
  /// Maps the memory at `address`, atomically replacing the pages there, and leaves unmapping to the owner of
  /// that range. Other processes can still open it. Throws Error(out_of_memory).
  void hand_over_to(std::byte* address);

 private:
  void map(int descriptor);

  std::byte* data_ = nullptr;
  Handle handle_;
  std::shared_ptr<DescriptorPort> port_;  ///< from `share` until `withdraw`
};

/// Returns the shared memory that `make` returns. While `make` fails for want of addresses and `make_room`
/// frees some, it is called again.
template <class Make, class MakeRoom>
[[nodiscard]] SharedMemory with_addresses(const Make& make, const MakeRoom& make_room) {
  for (;;) {
    try {
      return make();
    } catch (const Error& error) {
      if (error.native_code() != ENOMEM || !make_room()) throw;
    }
  }
}

/// Returns a number that identifies the PID namespace, or 0 if that is unknown.
[[nodiscard]] std::uint64_t process_space();

/// Identifies the host: equal for all processes of a host, different for hosts and for containers that cannot
/// see each other's processes.
[[nodiscard]] std::string host_identity();

}  // namespace tutti
