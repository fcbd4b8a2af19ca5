#pragma once

#include "backend/shared_flag.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cuda/atomic>

/// Words in memory as kernels read and write them.
namespace tutti::backend::cuda {

/// Between devices and with the host.
using SystemWord = ::cuda::atomic_ref<std::uint32_t, ::cuda::thread_scope_system>;
/// Between the blocks of one device.
using DeviceWord = ::cuda::atomic_ref<std::uint32_t, ::cuda::thread_scope_device>;

inline std::uint32_t* word_of(const std::atomic<std::uint32_t>& value) {
  return const_cast<std::uint32_t*>(reinterpret_cast<const std::uint32_t*>(&value));
}

static_assert(offsetof(SharedFlag, value) == 0, "kernels reach a flag's value by the flag's address");

}  // namespace tutti::backend::cuda
