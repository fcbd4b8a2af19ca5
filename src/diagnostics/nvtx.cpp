// SPDX-License-Identifier: Apache-2.0
#include "tutti/nvtx.hpp"

#include "diagnostics/watching.hpp"

namespace tutti::nvtx {
namespace {

thread_local int open_ranges = 0;

}  // namespace

void mark(std::string_view message) noexcept {
  if (watching::is_watched()) watching::mark(message);
}

int range_push(std::string_view message) noexcept {
  if (watching::is_watched()) watching::push(message);
  return open_ranges++;
}

int range_pop() noexcept {
  if (open_ranges == 0) return -1;
  if (watching::is_watched()) watching::pop();
  return --open_ranges;
}

}  // namespace tutti::nvtx
