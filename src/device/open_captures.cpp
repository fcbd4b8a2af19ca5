// SPDX-License-Identifier: Apache-2.0
#include "device/open_captures.hpp"

#include <algorithm>

namespace tutti {

thread_local constinit OpenCapture::OpenHere OpenCapture::open_here;

void OpenCapture::OpenHere::remove(std::uint64_t number) noexcept {
  const auto begin = pools.begin();
  const auto end = begin + static_cast<std::ptrdiff_t>(count);
  const auto removed = std::find_if(begin, end, [number](const Open& open) { return open.number == number; });
  if (removed == end) return;
  std::move(removed + 1, end, removed);
  --count;
}

}  // namespace tutti
