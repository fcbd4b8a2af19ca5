// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/table_store.hpp"

#include "backend/cuda/cuda_error.hpp"
#include "backend/cuda/current_device.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace tutti::backend::cuda {
namespace {

constexpr std::size_t smallest_capacity = std::size_t{64} << 10U;

}  // namespace

TableStore::Slot::~Slot() {
  if (done != nullptr) forget(cudaEventDestroy(done));
  forget(cudaFree(device));
  forget(cudaFreeHost(pinned));
}

std::unique_ptr<TableStore::Slot> TableStore::acquire(std::size_t bytes) {
  const RelaxedCapture relaxed;  // queries of events recorded elsewhere are refused during a capture, too
  {
    const std::scoped_lock lock(mutex_);
    collect();
    // The last used slot is the likeliest in the caches.
    const auto fits =
        std::find_if(idle_.rbegin(), idle_.rend(), [&](const auto& slot) { return slot->capacity >= bytes; });
    if (fits != idle_.rend()) {
      auto slot = std::move(*fits);
      idle_.erase(std::next(fits).base());
      return slot;
    }
  }
  return create(bytes);
}

void TableStore::collect() {
  for (auto stream = pending_.begin(); stream != pending_.end();) {
    auto& slots = stream->second;
    const bool is_in_order = stream->first != cudaStreamPerThread;  // else one of each thread
    for (auto slot = slots.begin(); slot != slots.end();) {
      if (forget(cudaEventQuery((*slot)->done)) != cudaErrorNotReady) {
        idle_.push_back(std::move(*slot));
        slot = slots.erase(slot);
      } else if (is_in_order) {
        break;
      } else {
        ++slot;
      }
    }
    stream = slots.empty() ? pending_.erase(stream) : std::next(stream);
  }
}

std::unique_ptr<TableStore::Slot> TableStore::create(std::size_t bytes) {
  const CurrentDevice current(device_);
  auto slot = std::make_unique<Slot>();
  slot->capacity = std::max(smallest_capacity, std::bit_ceil(bytes));
  void* address = nullptr;
  const cudaError_t status = forget(cudaMalloc(&address, slot->capacity));
  // Memory cannot be reclaimed here: that may wait for work which this launch belongs to.
  if (status != cudaErrorMemoryAllocation) check(status, "cudaMalloc", device_);
  if (status == cudaSuccess) slot->device = static_cast<std::byte*>(address);
  check(cudaHostAlloc(&address, slot->capacity, cudaHostAllocPortable), "cudaHostAlloc", device_);
  slot->pinned = static_cast<std::byte*>(address);
  check(cudaEventCreateWithFlags(&slot->done, cudaEventDisableTiming), "cudaEventCreateWithFlags", device_);
  return slot;
}

void TableStore::release_after(std::unique_ptr<Slot> slot, cudaStream_t stream) {
  check(cudaEventRecord(slot->done, stream), "cudaEventRecord", device_);
  const std::scoped_lock lock(mutex_);
  pending_[stream].push_back(std::move(slot));
}

void TableStore::release(std::unique_ptr<Slot> slot) noexcept {
  const std::scoped_lock lock(mutex_);
  idle_.push_back(std::move(slot));
}

}  // namespace tutti::backend::cuda
