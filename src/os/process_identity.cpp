// SPDX-License-Identifier: Apache-2.0
#include "os/process_identity.hpp"

#include "base/hash.hpp"
#include "os/drawn_number.hpp"
#include "os/shared_memory.hpp"

#include <atomic>

#include <unistd.h>

namespace tutti {

std::uint64_t process_identity() {
  // Without a lock, which a child forked meanwhile would find held for ever.
  static std::atomic<std::uint64_t> drawn{0};
  std::uint64_t number = drawn.load();
  if (number == 0) {
    const std::uint64_t mine = drawn_number();
    if (drawn.compare_exchange_strong(number, mine)) number = mine;
  }
  // A child has its parent's number, and an id of its own, in a PID namespace of its own or in the same one.
  const std::uint64_t identity = mix(mix(number, static_cast<std::uint64_t>(getpid())), process_space());
  return identity == 0 ? 1 : identity;
}

}  // namespace tutti
