// SPDX-License-Identifier: Apache-2.0
#include "transport/team/windows.hpp"

#include "backend/rounding.hpp"
#include "log.hpp"
#include "transport/team/agreement.hpp"
#include "transport/team/signature.hpp"
#include "transport/tuning.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <functional>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::ranks {
namespace {

using backend::MemoryHandle;

/// What one process tells the others of its windows.
using Handles = std::array<MemoryHandle, most_own_members>;

/// Room in inboxes for what aligns the messages of long lists.
constexpr std::uint64_t padding = 64 << 10;
/// So that inboxes are small where windows are meant to be.
constexpr std::uint64_t most_inboxes_per_slot = 5;

void clear(backend::Backend& backend, int device, std::byte* address, std::size_t bytes) {
  const OwnStream stream(backend, device);
  backend.fill(stream.get(), {.target = address, .count = bytes, .element_bytes = 1});
  backend.synchronize_stream(stream.get());
}

/// A device as other processes know it, too: a GPU may have another number there, or none.
struct DeviceName {
  std::array<char, 32> pci_bus_id{};
  int number = -1;  ///< for virtual devices, which are alike everywhere and have no bus
  int major = 0;    ///< compute capability
};

DeviceName name_of(const backend::Backend& backend, int device) {
  const DeviceProperties& properties = backend.properties(device);
  DeviceName name{.number = device, .major = properties.major};
  const std::string& id = properties.pci_bus_id;
  std::copy_n(id.begin(), std::min(id.size(), name.pci_bus_id.size() - 1), name.pci_bus_id.begin());
  return name;
}

bool has_nvlink(backend::Backend& backend, int device, const DeviceName& peer) {
  constexpr int least_major = 9;  // older ones have not been tried
  if (backend.kind() == BackendKind::host) {
    if (peer.number >= backend.device_count()) return false;
    return peer.number == device || backend.link(device, peer.number).kind == backend::LinkKind::nvlink;
  }
  if (peer.major < least_major) return false;
  return peer.pci_bus_id == name_of(backend, device).pci_bus_id ||
         backend.has_nvlink_to(device, peer.pci_bus_id.data());
}

/// Calls `step` and puts what it throws into words.
std::string complaint_of(const std::function<void()>& step) {
  try {
    step();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

/// What all ranks have told of their own members, one after another.
template <class T>
std::vector<T> by_member(const std::vector<std::array<T, most_own_members>>& by_rank,
                         const Windows::Team& team) {
  std::vector<T> all;
  for (std::size_t member = 0, first = 0; member < team.rank_of_member.size(); ++member) {
    const std::size_t rank = team.rank_of_member[member];
    if (member > 0 && rank != team.rank_of_member[member - 1]) first = member;
    all.push_back(by_rank[rank][member - first]);
  }
  return all;
}

/// Writes through windows, reads through windows, and looks at what has come.
class SelfTest {
 public:
  static constexpr std::size_t bytes = 4096;  ///< of each member

  SelfTest(Runtime& runtime, const backend::TeamWindowLayout& layout)
      : backend_(runtime.backend()),
        layout_(layout),
        host_(static_cast<std::byte*>(runtime.pinned().allocate_uncached(layout.members * bytes))) {
    if (host_ == nullptr) throw Error(ErrorCode::out_of_memory, "no pinned memory for the self-test");
  }
  SelfTest(const SelfTest&) = delete;
  SelfTest& operator=(const SelfTest&) = delete;
  ~SelfTest() { backend_.free_pinned(host_); }

  /// Member `writer` leaves a pattern of its own in every window.
  void write(int device, std::size_t writer, std::span<std::byte* const> windows) {
    const OwnStream stream(backend_, device);
    for (std::size_t i = 0; i < bytes; ++i) host_[i] = pattern(writer, i);
    std::vector<std::byte*> pointers{host_};
    for (std::byte* const window : windows) pointers.push_back(place(window, writer));
    const backend::FanOutSegment segment{
        .row_bytes = bytes, .source = 0, .first_target = 1, .target_count = layout_.members};
    backend_.fan_out(stream.get(), {.segments = std::span(&segment, 1), .pointers = pointers});
    backend_.synchronize_stream(stream.get());
  }
  /// Member `reader` looks for all patterns in the window of every member.
  void read(int device, std::size_t reader, std::span<std::byte* const> windows) {
    const OwnStream stream(backend_, device);
    for (std::size_t owner = 0; owner < windows.size(); ++owner) {
      std::memset(host_, 0, layout_.members * bytes);
      std::vector<std::byte*> pointers{place(windows[owner], 0), host_};
      const backend::FanOutSegment segment{
          .row_bytes = layout_.members * bytes, .source = 0, .first_target = 1, .target_count = 1};
      backend_.fan_out(stream.get(), {.segments = std::span(&segment, 1), .pointers = pointers});
      backend_.synchronize_stream(stream.get());
      for (std::size_t writer = 0; writer < layout_.members; ++writer) {
        for (std::size_t i = 0; i < bytes; ++i) {
          if (host_[writer * bytes + i] == pattern(writer, i)) continue;
          throw Error(
              ErrorCode::peer_unavailable,
              fmt::format("member {} does not read from member {}'s memory what member {} wrote there",
                          reader, owner, writer));
        }
      }
    }
  }

 private:
  static std::byte pattern(std::size_t writer, std::size_t index) {
    return static_cast<std::byte>((index * 167 + writer * 59 + 13) % 251);
  }
  /// Patterns lie in the slots, which hold nothing yet.
  [[nodiscard]] std::byte* place(std::byte* window, std::size_t writer) const {
    return window + layout_.slots_offset() + writer * bytes;
  }

  backend::Backend& backend_;
  backend::TeamWindowLayout layout_;
  std::byte* host_;
};

}  // namespace

Windows::Windows(Runtime& runtime, Exchange& exchange, const backend::TeamWindowLayout& layout,
                 const Team& team, TransportKind wanted)
    : runtime_(runtime), layout_(layout), devices_(team.own_devices), counters_(team.own_devices.size()) {
  try {
    choose(exchange, team, wanted);
    const std::string complaint = first_complaint(exchange, complaint_of([this] { allocate_counters(); }));
    if (!complaint.empty()) {
      close();
      synchronize(exchange);  // nobody frees what others have open
      throw Error(ErrorCode::out_of_memory, fmt::format("Communicator: {}", complaint));
    }
  } catch (...) {
    close();
    free();
    throw;
  }
}

void Windows::choose(Exchange& exchange, const Team& team, TransportKind wanted) {
  if (wanted == TransportKind::staged) {
    reason_ = fmt::format("staged was asked for{}", in_words(team.transport_source));
  } else if (team.host_count > 1) {
    reason_ = fmt::format("the ranks are on {} hosts", team.host_count);
  } else {
    reason_ = use_device_windows(exchange, team);
  }
  if (reason_.empty()) {
    transport_ = TransportKind::p2p;
    return;
  }
  if (wanted == TransportKind::p2p) {
    throw Error(ErrorCode::unsupported, fmt::format("Communicator: {}, which cannot be had: {}",
                                                    wish_in_words(wanted, team.transport_source), reason_));
  }
  use_host_windows(team);
  if (wanted == TransportKind::automatic && team.first_own == 0 && team.host_count == 1)
    log_warning(fmt::format("Communicator: data goes through host memory: {}", reason_));
}

Windows::~Windows() {
  close();
  free();
}

void Windows::use_host_windows(const Team& team) {
  std::byte* const host_windows = team.share_windows();
  std::vector<std::byte*> all;
  for (std::size_t member = 0; member < layout_.members; ++member)
    all.push_back(host_windows + member * layout_.bytes());
  addresses_.assign(devices_.size(), all);
}

void Windows::allocate_counters() {
  if (!runtime_.backend().supports_graphs()) return;
  for (std::size_t own = 0; own < devices_.size(); ++own) {
    void* const memory = runtime_.allocator(devices_[own]).allocate_uncached(sizeof(backend::TeamCounters));
    if (memory == nullptr)
      throw Error(ErrorCode::out_of_memory, fmt::format("no memory left on device {}", devices_[own]));
    counters_[own] = static_cast<backend::TeamCounters*>(memory);
    counters_streams_.push_back(std::make_unique<OwnStream>(runtime_.backend(), devices_[own]));
    clear(runtime_.backend(), devices_[own], static_cast<std::byte*>(memory), sizeof(backend::TeamCounters));
  }
}

std::string Windows::use_device_windows(Exchange& exchange, const Team& team) {
  layout_.lines =
      are_joined_by_nvlink(exchange, team) ? backend::TeamLines::wide : backend::TeamLines::narrow;
  const std::uint64_t wanted =
      layout_.in_lines(low_latency_to(Collective::all_reduce_add, layout_.lines, runtime_.backend().kind()));
  layout_.inbox_bytes = std::min(round_up(wanted + padding, backend::TeamWindowLayout::alignment),
                                 most_inboxes_per_slot * layout_.slot_bytes);
  const auto start = [&](const std::function<void()>& step) {
    return first_complaint(exchange, complaint_of(step));
  };
  Handles mine{};
  std::string complaint = start([&] { allocate_and_share(mine); });
  if (complaint.empty()) {
    const std::vector<MemoryHandle> handles = by_member(gather(exchange, mine), team);
    complaint = start([&] { open_all(team, handles); });
  }
  if (complaint.empty()) complaint = self_test(exchange, team);
  if (complaint.empty()) return {};
  // Closed by all before anybody frees what others may have opened.
  close();
  synchronize(exchange);
  free();
  addresses_.clear();
  layout_.lines = backend::TeamLines::narrow;
  layout_.inbox_bytes = 0;  // through host memory, lines would save nothing
  return complaint;
}

bool Windows::are_joined_by_nvlink(Exchange& exchange, const Team& team) const {
  backend::Backend& backend = runtime_.backend();
  std::array<DeviceName, most_own_members> mine{};
  for (std::size_t own = 0; own < devices_.size(); ++own) mine[own] = name_of(backend, devices_[own]);
  const auto names = by_member(gather(exchange, mine), team);
  bool are_joined = false;
  const std::string complaint = complaint_of([&] {
    are_joined = std::ranges::all_of(devices_, [&](int device) {
      return std::ranges::all_of(names,
                                 [&](const DeviceName& peer) { return has_nvlink(backend, device, peer); });
    });
  });
  const std::vector<std::uint8_t> answers =
      gather(exchange, static_cast<std::uint8_t>(are_joined && complaint.empty()));
  return std::ranges::all_of(answers, [](std::uint8_t answer) { return answer != 0; });
}

void Windows::allocate_and_share(std::span<MemoryHandle> handles) {
  for (std::size_t own = 0; own < devices_.size(); ++own) {
    void* const memory = runtime_.allocator(devices_[own]).allocate_uncached(layout_.bytes());
    if (memory == nullptr) {
      throw Error(ErrorCode::out_of_memory, fmt::format("no {} bytes are left on device {} for a window",
                                                        layout_.bytes(), devices_[own]));
    }
    allocated_.push_back({devices_[own], static_cast<std::byte*>(memory)});
    handles[own] = runtime_.backend().share_device_memory(devices_[own], memory);
    clear(runtime_.backend(), devices_[own], allocated_.back().address, layout_.slots_offset());
  }
}

void Windows::open_all(const Team& team, std::span<const MemoryHandle> handles) {
  for (const int device : devices_) {
    std::vector<std::byte*>& seen = addresses_.emplace_back();
    for (std::size_t member = 0; member < layout_.members; ++member) {
      const std::size_t own = member - team.first_own;
      if (member >= team.first_own && own < devices_.size()) {
        if (devices_[own] != device) runtime_.enable_peer_access(device, devices_[own]);
        seen.push_back(allocated_[own].address);
        continue;
      }
      void* const address = runtime_.backend().open_device_memory(device, handles[member]);
      opened_.push_back({device, address});
      seen.push_back(static_cast<std::byte*>(address));
    }
  }
}

std::string Windows::self_test(Exchange& exchange, const Team& team) {
  if (layout_.members * SelfTest::bytes > backend::TeamWindowLayout::slot_count * layout_.slot_bytes)
    return "there are too many members for the windows";
  std::string complaint =
      first_complaint(exchange, complaint_of([&] {
                        SelfTest test(runtime_, layout_);
                        for (std::size_t own = 0; own < devices_.size(); ++own)
                          test.write(devices_[own], team.first_own + own, addresses_[own]);
                      }));
  if (!complaint.empty()) return complaint;
  return first_complaint(exchange, complaint_of([&] {
                           SelfTest test(runtime_, layout_);
                           for (std::size_t own = 0; own < devices_.size(); ++own)
                             test.read(devices_[own], team.first_own + own, addresses_[own]);
                         }));
}

void Windows::close() noexcept {
  for (const Opened& opened : opened_) runtime_.backend().close_device_memory(opened.device, opened.address);
  opened_.clear();
}

void Windows::free() noexcept {
  for (const Allocated& window : release()) runtime_.backend().free_device(window.device, window.address);
  for (std::size_t own = 0; own < counters_.size(); ++own) {
    if (counters_[own] != nullptr) runtime_.backend().free_device(devices_[own], counters_[own]);
    counters_[own] = nullptr;
  }
}

}  // namespace tutti::transport::ranks
