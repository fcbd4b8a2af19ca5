// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <dlpack/dlpack.h>

/// Declares what headers of DLPack before 1.0 lack, following the specification of its ABI.
#ifndef DLPACK_MAJOR_VERSION

struct DLPackVersion {
  std::uint32_t major;
  std::uint32_t minor;
};

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};

#endif

namespace tutti {

inline constexpr std::uint64_t dl_flag_read_only = 1;

}  // namespace tutti
