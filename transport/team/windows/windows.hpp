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
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::transport::team {

/// The windows of a team (`backend/team_round.hpp`): on the members' own devices, where every member's device
/// reaches them all and a test has shown that what is read there is what was written; else in the host memory
/// that the processes share.
class Windows {
 public:
  struct Settings {
    TransportKind transport = TransportKind::automatic;  ///< or p2p, or staged
    TransportSource transport_source = TransportSource::options;
  };

  /// Collective over the exchange. The settings are the same on all ranks. Throws on all ranks if the
  /// transport that they name cannot be had.
  Windows(Runtime& runtime, Exchange& exchange, const backend::TeamWindowLayout& layout,
          const Membership& membership, const Settings& settings);
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;
  ~Windows();

  /// Closes other processes' windows: no local work uses them any more.
  void close() noexcept;
  /// Frees the local members' windows: nobody has them open any more.
  void free() noexcept;
  /// Memory of a local member's device.
  struct Allocated {
    int device;
    std::byte* address;
  };
  [[nodiscard]] const std::vector<Allocated>& allocated() const noexcept { return allocated_; }
  /// Leaves it to the caller to free the local windows, of `layout().bytes()` each: others may still write
  /// there.
  [[nodiscard]] std::vector<Allocated> release() noexcept { return std::exchange(allocated_, {}); }

  [[nodiscard]] const backend::TeamWindowLayout& layout() const noexcept { return layout_; }
  /// p2p or staged.
  [[nodiscard]] TransportKind transport() const noexcept { return transport_; }
  /// Why not p2p; empty if it is.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  /// All members' windows as the device of a local member reaches them.
  [[nodiscard]] std::span<std::byte* const> seen_by(std::size_t local) const noexcept {
    return addresses_[local];
  }
  /// The member's window in the memory that this host's ranks share, where windows are in such.
  [[nodiscard]] std::byte* on_host(std::size_t member) const noexcept {
    return host_windows_->data() + member * layout_.bytes();
  }
  /// The flag at `offset` of such a window.
  [[nodiscard]] backend::SharedFlag& flag_on_host(std::size_t member, std::size_t offset) const noexcept {
    return *std::launder(reinterpret_cast<backend::SharedFlag*>(on_host(member) + offset));
  }
  /// A local member's, on its device; nullptr where the backend needs none.
  [[nodiscard]] backend::TeamCounters* counters(std::size_t local) const noexcept { return counters_[local]; }
  /// Whether devices count the calls they have completed in their own memory, too, and are asked: a write to
  /// the host's costs a GPU as much as a small message.
  [[nodiscard]] bool are_devices_asked() const noexcept { return !counters_streams_.empty(); }
  /// The stream for copies of a local member's counters, if devices are asked.
  [[nodiscard]] backend::StreamRef counters_stream(std::size_t local) const noexcept {
    return counters_streams_[local]->get();
  }

 private:
  [[nodiscard]] const std::vector<int>& devices() const noexcept { return membership_.devices(); }
  struct Opened {
    int device;
    void* address;
  };

  void choose(Exchange& exchange, const Settings& settings);
  /// Collective. Makes all members' windows in host memory, one after another.
  void use_host_windows(Exchange& exchange);
  void allocate_counters();
  /// Makes and opens windows on the devices. Empty, or why that is not possible.
  [[nodiscard]] std::string use_device_windows(Exchange& exchange);
  /// Collective. Whether lines may be wide, the same on all ranks.
  [[nodiscard]] bool are_joined_by_nvlink(Exchange& exchange) const;
  void allocate_and_share(std::span<backend::MemoryHandle> handles);
  void open_all(std::span<const backend::MemoryHandle> handles);
  [[nodiscard]] std::string self_test(Exchange& exchange);

  Runtime& runtime_;
  const Membership& membership_;
  backend::TeamWindowLayout layout_;
  TransportKind transport_ = TransportKind::staged;
  std::string reason_;
  std::optional<HostShare> host_windows_;                        ///< none where windows are on devices
  std::vector<std::vector<std::byte*>> addresses_;               ///< by local index, then member
  std::vector<backend::TeamCounters*> counters_;                 ///< by local index
  std::vector<std::unique_ptr<ScopedStream>> counters_streams_;  ///< likewise; empty if there are none
  std::vector<Allocated> allocated_;                             ///< by local index
  std::vector<Opened> opened_;
};

}  // namespace tutti::transport::team
