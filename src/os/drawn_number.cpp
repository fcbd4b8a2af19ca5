// SPDX-License-Identifier: Apache-2.0
#include "os/drawn_number.hpp"

#include "tutti/error.hpp"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/random.h>

namespace tutti {

std::uint64_t drawn_number() {
  std::uint64_t number = 0;
  while (number == 0) {
    if (getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number))
      throw Error(ErrorCode::internal, fmt::format("getrandom: {}", std::strerror(errno)), errno);
  }
  return number;
}

}  // namespace tutti
