// SPDX-License-Identifier: Apache-2.0
#include "transport/team/windows/windows.hpp"

#include "allocator/allocators.hpp"
#include "base/rounding.hpp"
#include "device/peer_access.hpp"
#include "settings/log.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/shared/signature.hpp"
#include "transport/team/windows/device_name.hpp"
#include "transport/team/windows/window_self_test.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::team {
namespace {

/// Room in inboxes for what aligns the messages of long lists.
constexpr std::uint64_t padding = 64 << 10;
/// The most bytes of inboxes for each byte of a slot, so that small windows have small inboxes.
constexpr std::uint64_t most_inboxes_per_slot = 5;

void clear(backend::Backend& backend, int device, std::byte* address, std::size_t bytes) {
  const ScopedStream stream(backend, device);
  backend.fill(stream.get(), {.target = address, .count = bytes, .element_bytes = 1});
  backend.synchronize_stream(stream.get());
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

/// Returns the announcements of all ranks' members, one after another.
template <class T>
std::vector<T> by_member(const std::vector<std::array<T, most_local_members>>& by_rank,
                         const Membership& membership) {
  std::vector<T> all;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const auto first = by_rank[rank].begin();
    all.insert(all.end(), first, first + membership.member_count(rank));
  }
  return all;
}

}  // namespace

Windows::Windows(Runtime& runtime, Exchange& exchange, const backend::TeamWindowLayout& layout,
                 const Membership& membership, const Settings& settings)
    : runtime_(runtime), membership_(membership), layout_(layout), counters_(membership.local_count()) {
  try {
    choose(exchange, settings);
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

void Windows::choose(Exchange& exchange, const Settings& settings) {
  const TransportKind wanted = settings.transport;
  if (wanted == TransportKind::staged) {
    reason_ = fmt::format("staged was asked for{}", in_words(settings.transport_source));
  } else if (membership_.hosts().size() > 1) {
    reason_ = fmt::format("the ranks are on {} hosts", membership_.hosts().size());
  } else {
    reason_ = use_device_windows(exchange);
  }
  if (reason_.empty()) {
    transport_ = TransportKind::p2p;
    return;
  }
  if (wanted == TransportKind::p2p) {
    throw Error(ErrorCode::unsupported,
                fmt::format("Communicator: {}, which is not available: {}",
                            wish_in_words(wanted, settings.transport_source), reason_));
  }
  use_host_windows(exchange);
  if (wanted == TransportKind::automatic && membership_.first_local() == 0 && membership_.hosts().size() == 1)
    log_warning(fmt::format("Communicator: data goes through host memory: {}", reason_));
}

Windows::~Windows() {
  close();
  free();
}

void Windows::use_host_windows(Exchange& exchange) {
  layout_.line_lanes = 0;  // through host memory, lines would save nothing, of rounds neither
  host_windows_.emplace(runtime_, exchange, layout_.members * layout_.bytes(),
                        membership_.first_on_this_host(), [](std::byte*) {});
  std::vector<std::byte*> all;
  for (std::size_t member = 0; member < layout_.members; ++member) all.push_back(on_host(member));
  addresses_.assign(counters_.size(), all);
}

void Windows::allocate_counters() {
  const std::size_t bytes = backend::TeamCounters::bytes_with_links(layout_);
  for (std::size_t local = 0; local < devices().size(); ++local) {
    void* const memory = runtime_.part<Allocators>().of(devices()[local]).allocate_uncached(bytes);
    if (memory == nullptr)
      throw Error(ErrorCode::out_of_memory, fmt::format("no memory left on device {}", devices()[local]));
    counters_[local] = static_cast<backend::TeamCounters*>(memory);
    if (runtime_.backend().kind() == BackendKind::cuda)
      counters_streams_.push_back(std::make_unique<ScopedStream>(runtime_.backend(), devices()[local]));
    clear(runtime_.backend(), devices()[local], static_cast<std::byte*>(memory), bytes);
  }
}

std::string Windows::use_device_windows(Exchange& exchange) {
  layout_.lines = are_joined_by_nvlink(exchange) ? backend::TeamLines::wide : backend::TeamLines::narrow;
  // Elsewhere, twice the bytes take longer than what large messages wait for.
  constexpr std::uint32_t lanes_without_nvlink = 64;
  if (layout_.lines == backend::TeamLines::narrow)
    layout_.line_lanes = std::min(layout_.line_lanes, lanes_without_nvlink);
  const std::uint64_t wanted =
      layout_.in_lines(low_latency_to(Collective::all_reduce, layout_.lines, runtime_.backend().kind()));
  layout_.inbox_bytes = std::min(round_up(wanted + padding, backend::TeamWindowLayout::alignment),
                                 most_inboxes_per_slot * layout_.slot_bytes);
  const auto start = [&](const std::function<void()>& step) {
    return first_complaint(exchange, complaint_of(step));
  };
  std::array<Offer, most_local_members> mine{};
  std::string complaint = start([&] { allocate_and_share(mine); });
  if (complaint.empty()) {
    const std::vector<Offer> offers = by_member(gather(exchange, mine), membership_);
    complaint = start([&] { open_all(offers); });
  }
  if (complaint.empty()) complaint = self_test(exchange);
  if (complaint.empty()) return {};
  // Closed by all before anybody frees what others may have opened.
  close();
  synchronize(exchange);
  free();
  addresses_.clear();
  layout_.lines = backend::TeamLines::narrow;
  layout_.inbox_bytes = 0;
  return complaint;
}

bool Windows::are_joined_by_nvlink(Exchange& exchange) const {
  backend::Backend& backend = runtime_.backend();
  std::array<DeviceName, most_local_members> mine{};
  for (std::size_t local = 0; local < devices().size(); ++local)
    mine[local] = DeviceName::of(backend, devices()[local]);
  const auto names = by_member(gather(exchange, mine), membership_);
  bool are_joined = false;
  const std::string complaint = complaint_of([&] {
    are_joined = std::ranges::all_of(devices(), [&](int device) {
      return std::ranges::all_of(names,
                                 [&](const DeviceName& peer) { return has_nvlink(backend, device, peer); });
    });
  });
  const std::vector<std::uint8_t> answers =
      gather(exchange, static_cast<std::uint8_t>(are_joined && complaint.empty()));
  return std::ranges::all_of(answers, [](std::uint8_t answer) { return answer != 0; });
}

void Windows::allocate_and_share(std::span<Offer> offers) {
  for (std::size_t local = 0; local < devices().size(); ++local) {
    void* const memory = runtime_.part<Allocators>().of(devices()[local]).allocate_uncached(layout_.bytes());
    if (memory == nullptr) {
      throw Error(ErrorCode::out_of_memory, fmt::format("no {} bytes are left on device {} for a window",
                                                        layout_.bytes(), devices()[local]));
    }
    allocated_.push_back({devices()[local], static_cast<std::byte*>(memory)});
    offers[local] = {
        .handle = {}, .address = reinterpret_cast<std::uintptr_t>(memory), .device = devices()[local]};
    if (!membership_.is_in_one_process())
      offers[local].handle =
          runtime_.backend().share_device_memory(devices()[local], memory, Audience::anyone);
    clear(runtime_.backend(), devices()[local], allocated_.back().address, layout_.slots_offset());
  }
}

void Windows::open_all(std::span<const Offer> offers) {
  for (const int device : devices()) {
    std::vector<std::byte*>& seen = addresses_.emplace_back();
    for (std::size_t member = 0; member < layout_.members; ++member) {
      const Offer& offer = offers[member];
      if (membership_.is_local(member) || membership_.shares_process(membership_.rank_of_member()[member])) {
        runtime_.part<PeerAccess>().enable(device, offer.device);
        seen.push_back(reinterpret_cast<std::byte*>(offer.address));
        continue;
      }
      void* const address = runtime_.backend().open_device_memory(device, offer.handle);
      opened_.push_back({device, address});
      seen.push_back(static_cast<std::byte*>(address));
    }
  }
}

std::string Windows::self_test(Exchange& exchange) {
  if (layout_.members * WindowSelfTest::bytes > backend::TeamWindowLayout::slot_count * layout_.slot_bytes)
    return "there are too many members for the windows";
  std::string complaint =
      first_complaint(exchange, complaint_of([&] {
                        WindowSelfTest test(runtime_, layout_);
                        for (std::size_t local = 0; local < devices().size(); ++local)
                          test.write(devices()[local], membership_.first_local() + local, addresses_[local]);
                      }));
  if (!complaint.empty()) return complaint;
  return first_complaint(exchange, complaint_of([&] {
                           WindowSelfTest test(runtime_, layout_);
                           for (std::size_t local = 0; local < devices().size(); ++local)
                             test.read(devices()[local], membership_.first_local() + local,
                                       addresses_[local]);
                         }));
}

void Windows::close() noexcept {
  for (const Opened& opened : opened_) runtime_.backend().close_device_memory(opened.device, opened.address);
  opened_.clear();
}

void Windows::free() noexcept {
  for (const Allocated& window : release()) runtime_.backend().free_device(window.device, window.address);
  for (std::size_t local = 0; local < counters_.size(); ++local) {
    if (counters_[local] != nullptr) runtime_.backend().free_device(devices()[local], counters_[local]);
    counters_[local] = nullptr;
  }
}

}  // namespace tutti::transport::team
