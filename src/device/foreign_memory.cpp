// SPDX-License-Identifier: Apache-2.0
#include "device/foreign_memory.hpp"

#include "settings/log.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

#include <fmt/format.h>

namespace tutti {
namespace {

/// More blocks and pieces are not remembered: most of so many would be gone.
constexpr std::size_t most_known = 65'536;

const std::byte* const end_of_addresses =
    reinterpret_cast<const std::byte*>(std::numeric_limits<std::uintptr_t>::max());

}  // namespace

ForeignMemory::ForeignMemory(Runtime& runtime) : backend_(runtime.backend()) {}

bool ForeignMemory::is_open_to(std::span<const int> peers, Bytes memory, Bytes& around) {
  const std::lock_guard lock(mutex_);
  const std::byte* begin = nullptr;
  const std::byte* const end = memory.data() + memory.size();
  const std::byte* at = memory.data();
  while (at < end) {
    Known& known = known_at(at);
    if (!std::ranges::all_of(peers, [&](int peer) { return is_open_to(peer, at, known); })) return false;
    if (begin == nullptr) begin = known.begin;
    at = known.end;
  }
  around = at == end_of_addresses ? Bytes() : Bytes(begin, at);
  return true;
}

bool ForeignMemory::is_open_to(int peer, const std::byte* address, Known& known) {
  if (std::ranges::find(known.open_to, peer) != known.open_to.end()) return true;
  if (!backend_.is_open_to(peer, address)) return false;
  if (known.identity != 0) known.open_to.push_back(peer);
  return true;
}

ForeignMemory::Known& ForeignMemory::known_at(const std::byte* address) {
  const std::uint64_t identity = backend_.identity_of(address);
  auto next = known_.upper_bound(address);
  if (next != known_.begin()) {
    Known& found = std::prev(next)->second;
    if (address < found.end && identity != 0 && found.identity == identity) return found;
  }
  const backend::PointerInfo info = backend_.pointer_info(address);
  const bool has_extent = info.base != nullptr && info.base + info.bytes > address;
  if (!has_extent || identity == 0) {
    unknown_.begin = has_extent ? info.base : address;
    unknown_.end = has_extent ? info.base + info.bytes : end_of_addresses;
    return unknown_;
  }
  if (known_.size() >= most_known) known_.clear();
  next = known_.lower_bound(info.base);  // what was there before is gone
  if (next != known_.begin() && std::prev(next)->second.end > info.base) --next;
  const std::byte* const end = info.base + info.bytes;
  known_.erase(next, known_.lower_bound(end));
  return known_.emplace(info.base, Known{.begin = info.base, .end = end, .identity = identity}).first->second;
}

void ForeignMemory::tell_of_stand_ins(std::string_view function, int device, const void* address) {
  if (has_told_.exchange(true)) return;
  log_warning(
      fmt::format("{}: memory of device {} at {} goes through stand-ins, copies that take time and room in "
                  "each call, as {}. This is said once; last_plan says it of each collective",
                  function, device, fmt::ptr(address), closed_to_peers));
}

}  // namespace tutti
