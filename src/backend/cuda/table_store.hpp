// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <cuda_runtime_api.h>

namespace tutti::backend::cuda {

/// Provides device memory for segment tables that are too long for kernel parameters, with pinned memory to
/// fill it from. One per device; thread-safe. Pairs are reused once the kernel that read them is done.
class TableStore {
 public:
  struct Slot {
    Slot() = default;
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    ~Slot();

    std::byte* pinned = nullptr;
    std::byte* device = nullptr;  ///< nullptr if the device had no memory left: kernels read `pinned` then
    std::size_t capacity = 0;
    cudaEvent_t done = nullptr;
  };

  explicit TableStore(int device) : device_(device) {}
  TableStore(const TableStore&) = delete;
  TableStore& operator=(const TableStore&) = delete;

  /// Returns an unused slot with room for `bytes`; allocates one if there is none.
  [[nodiscard]] std::unique_ptr<Slot> acquire(std::size_t bytes);
  /// Returns a slot to the store once the work queued on `stream` so far is done.
  void release_after(std::unique_ptr<Slot> slot, cudaStream_t stream);
  /// Returns a slot to the store that no queued work uses. Makes no CUDA call.
  void release(std::unique_ptr<Slot> slot) noexcept;

 private:
  [[nodiscard]] std::unique_ptr<Slot> create(std::size_t bytes);
  /// Collects slots that have become idle; the mutex must be held.
  void collect();

  int device_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Slot>> idle_;
  /// Slots that are still in use, by stream, in the order in which they become idle. Only the first of each
  /// stream is asked about; of `cudaStreamPerThread` all are, because each thread has its own such stream.
  std::map<cudaStream_t, std::deque<std::unique_ptr<Slot>>> pending_;
};

}  // namespace tutti::backend::cuda
