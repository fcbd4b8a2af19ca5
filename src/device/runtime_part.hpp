// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

/// The fixed places of a runtime's parts, in the order in which parts are asked and destroyed. Shared
/// tensors and late releases go before the allocators that get their memory back; events go last, because all
/// others use them. Parts without a place here go before all of these.
enum class PartSlot : std::uint8_t {
  sharing,
  late_releases,
  pinned_allocator,
  plugged_allocator,
  allocators,
  graph_captures,
  streams,
  peer_access,
  foreign_memory,
  ended_work,
  events,
};
inline constexpr std::size_t part_slot_count = static_cast<std::size_t>(PartSlot::events) + 1;

/// The ways in which a part settles what waits for work of devices.
enum class Settling : std::uint8_t {
  at_once,  ///< lets go of what has passed, without waiting
  awaited,  ///< the devices are idle: waits, but not forever, for what follows from that
  given_up  ///< lets go of everything: all work is done, or will never be
};

/// State of one layer that belongs to a runtime. A class `T` derived from this names its place by
/// `static constexpr PartSlot slot`, and is made by `T(Runtime&)` when it is first asked for.
class RuntimePart {
 public:
  RuntimePart() = default;
  RuntimePart(const RuntimePart&) = delete;
  RuntimePart& operator=(const RuntimePart&) = delete;
  virtual ~RuntimePart() = default;

  /// Settles what waits for devices.
  virtual void settle(Settling /*how*/) {}
  /// Throws Error(invalid_argument) in the name of `virtual_devices::start` if the program still uses
  /// something of the part. All devices are idle.
  virtual void require_unused() {}
};

}  // namespace tutti
