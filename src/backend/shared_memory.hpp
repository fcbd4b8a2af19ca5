#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <sys/types.h>

namespace tutti {

/// Zero-filled memory that processes of one host share.
///
/// It has no name in any file system: other processes open it through the process that made it, while that
/// one lives, and it is gone with the last process that maps it, however that ends. It does not count against
/// the size of /dev/shm.
class SharedMemory {
 public:
  /// What another process needs to open it.
  struct Handle {
    pid_t process = 0;
    int descriptor = -1;
    std::size_t bytes = 0;
    std::uint64_t identity = 0;  ///< tells it from memory that has its descriptor later
    friend bool operator==(const Handle&, const Handle&) = default;
  };

  SharedMemory() = default;
  /// New memory, reserved in full, however many signals come meanwhile. Throws Error(out_of_memory) where the
  /// system has not got it, or the process may not have files that long (`ulimit -f`).
  explicit SharedMemory(std::size_t bytes);
  /// The memory of another process, or of this one. Throws Error(peer_unavailable).
  explicit SharedMemory(const Handle& handle);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  /// nullptr once it has been handed over.
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return handle_.bytes; }
  /// Of memory made here.
  [[nodiscard]] const Handle& handle() const noexcept { return handle_; }
  /// No further process can open it. Call when all have.
  void seal() noexcept;
  /// Maps the memory at `address`, in one step, in place of the pages that are there, and leaves it to their
  /// owner to unmap it. Other processes can open it as before. Throws Error(out_of_memory).
  void hand_over_to(std::byte* address);

 private:
  void map(int descriptor);

  std::byte* data_ = nullptr;
  Handle handle_;
};

/// Different for hosts (and for containers that cannot see one another's processes), the same for all
/// processes of one. What `TUTTI_HOST_ID` says, if it is set.
[[nodiscard]] std::string host_identity();

}  // namespace tutti
