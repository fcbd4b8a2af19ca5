// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/team_round.hpp"
#include "environment.hpp"
#include "runtime.hpp"
#include "transport/team/own_stream.hpp"
#include "tutti/collectives.hpp"
#include "tutti/exchange.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::transport::ranks {

/// The windows of a team (`backend/team_round.hpp`): on the members' own devices, where every member's device
/// reaches them all and a test has shown that what is read there is what was written; else in the host memory
/// that the processes share.
class Windows {
 public:
  /// What the processes tell one another beforehand.
  struct Team {
    std::vector<std::size_t> rank_of_member;
    std::size_t first_own = 0;
    std::vector<int> own_devices;
    std::size_t host_count = 1;
    TransportSource transport_source = TransportSource::options;
    /// Collective. Makes all members' windows in host memory, one after another, zero-filled, registered.
    std::function<std::byte*()> share_windows;
  };

  /// Collective over the exchange. `wanted` is automatic, p2p or staged, the same on all ranks. Throws on all
  /// ranks if the wanted kind cannot be had.
  Windows(Runtime& runtime, Exchange& exchange, const backend::TeamWindowLayout& layout, const Team& team,
          TransportKind wanted);
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;
  ~Windows();

  /// Lets go of other processes' windows: no own work uses them any more.
  void close() noexcept;
  /// Frees the own ones: nobody has them open any more.
  void free() noexcept;
  /// Memory of an own member's device.
  struct Allocated {
    int device;
    std::byte* address;
  };
  [[nodiscard]] const std::vector<Allocated>& allocated() const noexcept { return allocated_; }
  /// Leaves it to the caller to free the own ones, of `layout().bytes()` each: others may still write there.
  [[nodiscard]] std::vector<Allocated> release() noexcept { return std::exchange(allocated_, {}); }

  [[nodiscard]] const backend::TeamWindowLayout& layout() const noexcept { return layout_; }
  /// p2p or staged.
  [[nodiscard]] TransportKind transport() const noexcept { return transport_; }
  /// Why not p2p; empty if it is.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  /// All members' windows as the device of an own member reaches them.
  [[nodiscard]] std::span<std::byte* const> seen_by(std::size_t own_member) const noexcept {
    return addresses_[own_member];
  }
  /// An own member's, on its device; nullptr where the backend needs none.
  [[nodiscard]] backend::TeamCounters* counters(std::size_t own_member) const noexcept {
    return counters_[own_member];
  }
  /// For copies from there, of an own member that has such.
  [[nodiscard]] backend::StreamRef counters_stream(std::size_t own_member) const noexcept {
    return counters_streams_[own_member]->get();
  }

 private:
  struct Opened {
    int device;
    void* address;
  };

  void choose(Exchange& exchange, const Team& team, TransportKind wanted);
  void use_host_windows(const Team& team);
  void allocate_counters();
  /// Makes and opens windows on the devices. Empty, or why that is not possible.
  [[nodiscard]] std::string use_device_windows(Exchange& exchange, const Team& team);
  /// Collective. Whether lines may be wide, the same on all ranks.
  [[nodiscard]] bool are_joined_by_nvlink(Exchange& exchange, const Team& team) const;
  void allocate_and_share(std::span<backend::MemoryHandle> handles);
  void open_all(const Team& team, std::span<const backend::MemoryHandle> handles);
  [[nodiscard]] std::string self_test(Exchange& exchange, const Team& team);

  Runtime& runtime_;
  backend::TeamWindowLayout layout_;
  TransportKind transport_ = TransportKind::staged;
  std::string reason_;
  std::vector<int> devices_;
  std::vector<std::vector<std::byte*>> addresses_;            ///< by own member, then member
  std::vector<backend::TeamCounters*> counters_;              ///< by own member
  std::vector<std::unique_ptr<OwnStream>> counters_streams_;  ///< likewise; empty if there are none
  std::vector<Allocated> allocated_;                          ///< by own member
  std::vector<Opened> opened_;
};

}  // namespace tutti::transport::ranks
