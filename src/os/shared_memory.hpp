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
/// It has no name in any file system: other processes open it through the process that made it, while that
/// one lives, and it is gone with the last process that maps it, however that ends. It does not count against
/// the size of /dev/shm. They find it by /proc, or where that is closed to them by a socket
/// (`DescriptorPort`): user namespaces and capabilities may be different, also from some time on, and users
/// where the audience is anyone.
class SharedMemory {
 public:
  /// What another process needs to open it.
  struct Handle {
    pid_t process = 0;
    int descriptor = -1;
    std::size_t bytes = 0;
    std::uint64_t identity = 0;  ///< tells it from memory that has its descriptor later
    std::uint64_t port = 0;      ///< where it can be fetched; 0: nowhere
    std::uint64_t token = 0;     ///< by which it is known there
    friend bool operator==(const Handle&, const Handle&) = default;
  };

  SharedMemory() = default;
  /// Whether it is of this process, which may have another's number where processes are counted otherwise.
  [[nodiscard]] static bool is_own(const Handle& handle);
  /// New memory, reserved in full, however many signals come meanwhile. Throws Error(out_of_memory) where the
  /// system has not got it, or the process may not have files that long (`ulimit -f`).
  explicit SharedMemory(std::size_t bytes);
  /// The memory of another process, or of this one. Throws Error(peer_unavailable), where /proc is closed
  /// also if its process has been stopped for ten seconds.
  explicit SharedMemory(const Handle& handle);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  /// nullptr once it has been handed over.
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return handle_.bytes; }
  /// What an audience opens it by, of memory made here. Always the same for that audience.
  [[nodiscard]] Handle share(Audience audience);
  /// The file behind it, opened anew, so that its locks (`flock`) are the caller's own and end with the
  /// process. Throws as the constructor does.
  [[nodiscard]] static Descriptor open_file(const Handle& handle);
  /// No further process can open it. Call when all have.
  void seal() noexcept;
  /// Maps the memory at `address`, in one step, in place of the pages that are there, and leaves it to their
  /// owner to unmap it. Other processes can open it as before. Throws Error(out_of_memory).
  void hand_over_to(std::byte* address);

 private:
  void map(int descriptor);

  std::byte* data_ = nullptr;
  Handle handle_;
  std::shared_ptr<DescriptorPort> port_;  ///< once it has been shared, until it is sealed
};

/// What `make` returns, which is shared memory, made anew while there are no addresses for it and `make_room`
/// finds some.
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

/// Tells apart the systems of processes that count these otherwise; 0 if it is not known.
[[nodiscard]] std::uint64_t process_space();

/// Different for hosts (and for containers that cannot see one another's processes), the same for all
/// processes of one.
[[nodiscard]] std::string host_identity();

}  // namespace tutti
