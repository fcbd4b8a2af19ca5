// SPDX-License-Identifier: Apache-2.0
#include "backend/host/machine.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace tutti::backend::host {

using virtual_devices::Operation;
using virtual_devices::VirtualLink;

Machine::Machine(virtual_devices::VirtualMachine description)
    : description_(std::move(description)),
      process_(getpid()),
      addresses_(description_.device_count, description_.memory_bytes),
      peers_(description_.device_count) {
  for (int device = 0; device < description_.device_count; ++device) {
    auto& added = *devices_.emplace_back(std::make_unique<VirtualDevice>());
    added.properties.name = "virtual device";
    added.properties.total_memory = description_.memory_bytes;
    added.properties.multiprocessor_count = 1;
    added.properties.warp_size = 1;
    added.properties.copy_engine_count = 1;
    added.default_stream = &add_stream(device, 0);
  }
}

Machine::~Machine() {
  if (getpid() != process_) {
    // A forked child has none of the threads, and the state they left behind may be locked forever.
    for (auto* streams : {&streams_, &retired_}) {
      for (auto& stream : *streams) static_cast<void>(stream.release());
    }
    static_cast<void>(interleaver_.release());
    return;
  }
  wait_until_idle(std::nullopt);
  interleaver_->set_seed(std::nullopt);
  for (auto* streams : {&streams_, &retired_}) {
    for (auto& stream : *streams) {
      stream->close();
      stream->join();
    }
  }
}

const DeviceProperties& Machine::properties(int device) const {
  return device_at(device).properties;
}

MemoryInfo Machine::memory_info(int device) {
  return {.free = addresses_.free_bytes(device), .total = description_.memory_bytes};
}

VirtualLink Machine::link_between(int device, int peer) const {
  if (description_.links.empty()) return VirtualLink::nvlink;
  return description_.links[static_cast<std::size_t>(device)][static_cast<std::size_t>(peer)];
}

Link Machine::link(int device, int peer) {
  if (device == peer) return {.kind = LinkKind::self};
  switch (link_between(device, peer)) {
    case VirtualLink::nvlink:
      return {.kind = LinkKind::nvlink};
    case VirtualLink::pcie:
      return {.kind = LinkKind::pcie_p2p};
    case VirtualLink::none:
      break;
  }
  return {.kind = LinkKind::host_bridge};
}

bool Machine::can_access_peer(int device, int peer) {
  return device != peer && link_between(device, peer) != VirtualLink::none;
}

void Machine::enable_peer_access(int device, int peer) {
  if (!can_access_peer(device, peer)) {
    throw Error(ErrorCode::peer_unavailable,
                fmt::format("device {} cannot access the memory of device {} in topology '{}'", device, peer,
                            description_.name));
  }
  if (faults_.disturb(Operation::enable_peer, device, peer).refused) {
    throw Error(ErrorCode::peer_unavailable,
                fmt::format("access of device {} to the memory of device {} was refused by an injected fault",
                            device, peer));
  }
  peers_.enable(device, peer);
}

int Machine::read_gauge(int device, Gauge gauge) {
  throw Error(ErrorCode::unsupported,
              fmt::format("{}: device {} is a virtual device, expected a GPU", name_of(gauge), device));
}

ThrottleReasons Machine::throttle_reasons(int device) {
  throw Error(ErrorCode::unsupported,
              fmt::format("throttle_reasons: device {} is a virtual device, expected a GPU", device));
}

std::vector<GpuProcess> Machine::processes_on(int device) {
  throw Error(ErrorCode::unsupported,
              fmt::format("list_gpu_processes: device {} is a virtual device, expected a GPU", device));
}

void Machine::synchronize_device(int device) {
  require_uncaptured_device(device, "synchronize_device");
  wait_until_idle(device);
  report_failures(device);
}

void* Machine::allocate_device(int device, std::size_t bytes) {
  if (faults_.disturb(Operation::allocate_device, device).refused) return nullptr;
  return addresses_.allocate_device(device, bytes);
}

void Machine::free_device(int device, void* address) noexcept {
  if (address == nullptr || addresses_.free(device, address)) return;
  device_at(device).failures.add(fmt::format(
      "free_device: address {} is not the start of a block of device {}", fmt::ptr(address), device));
}

void* Machine::reserve_addresses(int device, std::size_t bytes) {
  return addresses_.reserve(device, bytes);
}

bool Machine::map_pages(int device, void* address, std::size_t bytes) {
  if (faults_.disturb(Operation::allocate_device, device).refused) return false;
  return addresses_.map_pages(device, address, bytes);
}

void Machine::unmap_pages(int device, void* address, std::size_t bytes) noexcept {
  if (addresses_.unmap_pages(device, address, bytes)) return;
  device_at(device).failures.add(fmt::format("unmap_pages: {} bytes at address {} are no pages of device {}",
                                             bytes, fmt::ptr(address), device));
}

void Machine::release_addresses(int device, void* address, std::size_t bytes) noexcept {
  if (addresses_.release(device, address)) return;
  device_at(device).failures.add(
      fmt::format("release_addresses: {} bytes at address {} are no range of device {} without memory", bytes,
                  fmt::ptr(address), device));
}

void* Machine::allocate_pinned(std::size_t bytes) {
  if (faults_.disturb(Operation::allocate_pinned, -1).refused) return nullptr;
  return addresses_.allocate_pinned(bytes);
}

void Machine::free_pinned(void* address) noexcept {
  if (address == nullptr || addresses_.free(Allocation::pinned, address) || devices_.empty()) return;
  // No device owns pinned memory; the first one reports for all.
  device_at(0).failures.add(
      fmt::format("free_pinned: address {} is not the start of a pinned block", fmt::ptr(address)));
}

void Machine::register_pinned(void* address, std::size_t bytes) {
  if (faults_.disturb(Operation::allocate_pinned, -1).refused ||
      !addresses_.register_pinned(static_cast<std::byte*>(address), bytes)) {
    throw Error(ErrorCode::device_failure,
                fmt::format("register_pinned: {} bytes at address {} cannot be registered", bytes,
                            fmt::ptr(address)));
  }
}

PointerInfo Machine::pointer_info(const void* address) {
  const auto* byte = static_cast<const std::byte*>(address);
  const auto block = addresses_.find(byte);
  if (block == nullptr) return {.kind = is_pageable(byte) ? MemoryKind::pageable : MemoryKind::unknown};
  if (!block->has_memory(byte, 1)) return {};
  const bool pinned = block->owner == Allocation::pinned;
  if (block->pages != nullptr) {
    const Pages::Extent piece = block->pages->piece_at(static_cast<std::size_t>(byte - block->base));
    return {.kind = MemoryKind::device,
            .device = block->owner,
            .base = block->base + piece.offset,
            .bytes = piece.bytes};
  }
  return {.kind = pinned && !block->is_managed ? MemoryKind::pinned : MemoryKind::device,
          .device = block->owner,
          .base = block->base,
          .is_managed = block->is_managed,
          .bytes = block->bytes};
}

MemoryOrigin Machine::origin_of(const void* address) {
  const auto block = addresses_.find(static_cast<const std::byte*>(address));
  if (block == nullptr) return MemoryOrigin::block;
  if (block->pages != nullptr) return MemoryOrigin::piece;
  return block->is_closed_to_peers.load() ? MemoryOrigin::pool : MemoryOrigin::block;
}

bool Machine::is_open_to(int peer, const void* address) {
  const auto block = addresses_.find(static_cast<const std::byte*>(address));
  return block == nullptr || block->is_open_to(peer);
}

void Machine::adopt_pieces(int /*device*/, void* address, std::size_t /*bytes*/) {
  if (const auto block = addresses_.find(static_cast<const std::byte*>(address)))
    block->is_closed_to_peers.store(false);
}

void Machine::close_to_peers(const void* address) {
  if (const auto block = addresses_.find(static_cast<const std::byte*>(address)))
    block->is_closed_to_peers.store(true);
}

std::uint64_t Machine::identity_of(const void* address) {
  const auto* const byte = static_cast<const std::byte*>(address);
  const auto block = addresses_.find(byte);
  if (block == nullptr) return 0;
  if (block->pages == nullptr) return block->identity;
  return block->pages->piece_at(static_cast<std::size_t>(byte - block->base)).identity;
}

bool Machine::is_pageable(const std::byte* address) const {
  return address != nullptr && addresses_.find(address) == nullptr && !addresses_.recently_freed(address);
}

void Machine::inject(const virtual_devices::Fault& fault) {
  const auto require = [this](const std::optional<Device>& place, std::string_view role) {
    if (!place || (place->index() >= 0 && place->index() < device_count())) return;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("inject: the fault's {} is {}, but there are {} devices", role, to_string(*place),
                            device_count()));
  };
  require(fault.device, "device");
  require(fault.peer, "peer");
  faults_.inject(fault);
}

void Machine::set_interleaving_seed(std::optional<std::uint64_t> seed) {
  wait_until_idle(std::nullopt);
  interleaver_->set_seed(seed);
}

void Machine::wait_until(const std::shared_ptr<Progress>& progress, std::uint64_t position,
                         std::chrono::nanoseconds spin) {
  interleaver_->choose_until(progress, position);
  progress->wait(position, spin);
}

void Machine::wait_until_idle(std::optional<int> device) {
  std::uint64_t seen = 0;
  do {  // what the work that is waited for queues itself is waited for too
    seen = queued_by_work_.load();
    std::vector<Ticket> tickets;
    {
      const std::lock_guard lock(streams_mutex_);
      for (const auto* streams : {&streams_, &retired_}) {
        for (const auto& stream : *streams) {
          if (device.has_value() && stream->device() != *device) continue;
          tickets.push_back({stream->progress(), stream->progress()->submitted(), nullptr});
        }
      }
    }
    for (const Ticket& ticket : tickets) wait_until(ticket.progress, ticket.position, host_spin);
  } while (queued_by_work_.load() != seen);
  const std::lock_guard lock(streams_mutex_);
  reap_retired_streams();
}

void Machine::report_failures(int device) {
  try {
    device_at(device).failures.report();
  } catch (const Error& error) {
    const auto seed = interleaver_->seed();
    if (!seed.has_value()) throw;
    throw Error(error.code(), fmt::format("{} [interleaving seed {}]", error.what(), *seed));
  }
}

}  // namespace tutti::backend::host
