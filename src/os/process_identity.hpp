// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tutti {

/// Returns a number other than 0 that all threads of this process get, and no other process on any host: not
/// one of another PID namespace with the same id, nor a child that is forked off. Two copies of the library
/// in one process, which share no state, count as two processes.
[[nodiscard]] std::uint64_t process_identity();

}  // namespace tutti
