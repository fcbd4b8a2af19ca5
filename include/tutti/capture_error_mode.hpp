// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tutti {

/// Scope of CUDA's prohibitions while a stream is being captured. Calls that may disturb a capture, such as
/// allocating with CUDA's own functions, then fail and invalidate the capture. The library's own calls do not
/// disturb a capture, except those that wait for the captured work or query it, which fail in every mode. On
/// virtual devices nothing else disturbs a capture.
enum class CaptureErrorMode : std::uint8_t {
  global,   ///< to all threads, but those that have said otherwise to CUDA
  thread,   ///< to the thread that captures; CUDA's name for it is thread_local
  relaxed,  ///< to none
};

}  // namespace tutti
