// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/team_round.hpp"
#include "device/runtime.hpp"
#include "settings/environment.hpp"
#include "transport/team/shared/host_share.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/windows/scoped_stream.hpp"
#include "tutti/collectives.hpp"
#include "tutti/exchange.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::transport::team {

/// Provides the windows of a team (`backend/team_round.hpp`): on the members' own devices, if every member's
/// device reaches them all and a test has shown that reads return what was written; otherwise in host memory
/// that the processes share.
class Windows {
 public:
  struct Settings {
    TransportKind transport = TransportKind::automatic;  ///< or p2p, or staged
    TransportSource transport_source = TransportSource::options;
  };

  /// Creates the windows. The settings are the same on all ranks. Throws on all ranks if the named transport
  /// is not available. Collective over the exchange.
  Windows(Runtime& runtime, Exchange& exchange, const backend::TeamWindowLayout& layout,
          const Membership& membership, const Settings& settings);
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;
  ~Windows();

  /// Closes other processes' windows; no local work may use them any more.
  void close() noexcept;
  /// Frees the local members' windows; nobody may have them open any more.
  void free() noexcept;
  /// A window in memory of a local member's device.
  struct Allocated {
    int device;
    std::byte* address;
  };
  [[nodiscard]] const std::vector<Allocated>& allocated() const noexcept { return allocated_; }
  /// Hands over the local windows, of `layout().bytes()` each, which the caller must free: others may still
  /// write there.
  [[nodiscard]] std::vector<Allocated> release() noexcept { return std::exchange(allocated_, {}); }

  [[nodiscard]] const backend::TeamWindowLayout& layout() const noexcept { return layout_; }
  /// Returns p2p or staged.
  [[nodiscard]] TransportKind transport() const noexcept { return transport_; }
  /// Returns why the transport is not p2p; empty if it is.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  /// Returns all members' windows as a local member's device addresses them.
  [[nodiscard]] std::span<std::byte* const> seen_by(std::size_t local) const noexcept {
    return addresses_[local];
  }
  /// Returns the member's window in the memory that this host's ranks share, where windows are in such
  /// memory.
  [[nodiscard]] std::byte* on_host(std::size_t member) const noexcept {
    return host_windows_->data() + member * layout_.bytes();
  }
  /// Returns the flag at `offset` of such a window.
  [[nodiscard]] backend::SharedFlag& flag_on_host(std::size_t member, std::size_t offset) const noexcept {
    return *std::launder(reinterpret_cast<backend::SharedFlag*>(on_host(member) + offset));
  }
  /// Returns the counters of a local member, on its device; nullptr where the backend needs none.
  [[nodiscard]] backend::TeamCounters* counters(std::size_t local) const noexcept { return counters_[local]; }
  /// Returns true if devices also count completed calls in their own memory, and are polled: a write to the
  /// host's memory costs a GPU as much as a small message.
  [[nodiscard]] bool are_devices_asked() const noexcept { return !counters_streams_.empty(); }
  /// Returns the stream for copies of a local member's counters, if devices are polled.
  [[nodiscard]] backend::StreamRef counters_stream(std::size_t local) const noexcept {
    return counters_streams_[local]->get();
  }

 private:
  [[nodiscard]] const std::vector<int>& devices() const noexcept { return membership_.devices(); }
  /// A member's announcement of its window.
  struct Offer {
    backend::MemoryHandle handle;  ///< for other processes
    std::uintptr_t address = 0;    ///< for ranks of its process, as is its device
    int device = 0;
  };
  struct Opened {
    int device;
    void* address;
  };

  void choose(Exchange& exchange, const Settings& settings);
  /// Makes all members' windows in host memory, one after another. Collective.
  void use_host_windows(Exchange& exchange);
  void allocate_counters();
  /// Makes and opens windows on the devices. Returns an empty string, or why that is not possible.
  [[nodiscard]] std::string use_device_windows(Exchange& exchange);
  /// Returns, the same on all ranks, whether NVLink connects all members, so that lines may be wide.
  /// Collective.
  [[nodiscard]] bool are_joined_by_nvlink(Exchange& exchange) const;
  void allocate_and_share(std::span<Offer> offers);
  void open_all(std::span<const Offer> offers);
  [[nodiscard]] std::string self_test(Exchange& exchange);

  Runtime& runtime_;
  const Membership& membership_;
  backend::TeamWindowLayout layout_;
  TransportKind transport_ = TransportKind::staged;
  std::string reason_;
  std::optional<HostShare> host_windows_;                        ///< none where windows are on devices
  std::vector<std::vector<std::byte*>> addresses_;               ///< by local index, then member
  std::vector<backend::TeamCounters*> counters_;                 ///< by local index
  std::vector<std::unique_ptr<ScopedStream>> counters_streams_;  ///< by local index; empty if there are none
  std::vector<Allocated> allocated_;                             ///< by local index
  std::vector<Opened> opened_;
};

}  // namespace tutti::transport::team
