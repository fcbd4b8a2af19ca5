// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tutti {

/// What CUDA forbids while a stream is being captured: calls that may disturb a capture, such as to allocate
/// by CUDA's own means, fail, and make it invalid. The library's own calls do not disturb one, but for those
/// that wait for what is being captured, or ask how far it is, which fail in all modes. On virtual devices
/// nothing else disturbs one.
enum class CaptureErrorMode : std::uint8_t {
  global,   ///< to all threads, but those that have said otherwise to CUDA
  thread,   ///< to the thread that captures; CUDA's name for it is thread_local
  relaxed,  ///< to none
};

}  // namespace tutti
