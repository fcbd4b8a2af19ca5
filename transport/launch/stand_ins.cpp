// SPDX-License-Identifier: Apache-2.0
#include "transport/launch/stand_ins.hpp"

#include "allocator/graph_pools/graph_captures.hpp"
#include "device/foreign_memory.hpp"
#include "storage/storage.hpp"
#include "stream/stream_access.hpp"
#include "stream/streams.hpp"

#include <algorithm>

namespace tutti::transport {
namespace {

/// Returns the devices of a process whose work takes part in the plan, each once.
std::vector<int> devices_of(const Plan& plan) {
  std::vector<int> devices;
  for (const int device : plan.lane_devices) {
    if (device != remote_device && std::ranges::find(devices, device) == devices.end())
      devices.push_back(device);
  }
  return devices;
}

}  // namespace

detail::IntrusivePtr<Storage> allocate_stand_in(Runtime& runtime, backend::StreamRef stream,
                                                std::uint64_t bytes) {
  return DeviceStorage::allocate_from(runtime.part<GraphCaptures>().pool_of(stream), runtime, stream.device,
                                      bytes, stream);
}

StandIns::StandIns(Runtime& runtime, const Plan& plan, Operands& operands, std::string_view function) {
  std::vector<int> devices;           // known once they are needed
  std::span<const std::byte> around;  // the latest memory that is open
  for (const PeerUse& use : plan.peer_uses) {
    Storage* const owner = operands.storages[use.buffer];
    if (is_open_to_all(owner)) continue;
    if (devices.empty()) devices = devices_of(plan);
    std::byte* const address = operands.addresses[use.buffer];
    if (around.data() <= address && address + use.bytes <= around.data() + around.size()) continue;
    auto& foreign = runtime.part<ForeignMemory>();
    if (foreign.is_open_to(devices, {address, use.bytes}, around)) continue;
    const LaneId lane = plan.homes[use.buffer];
    foreign.tell_of_stand_ins(function, plan.lane_devices[lane], address);
    replaced_.push_back(
        {lane, use, address, owner, allocate_stand_in(runtime, operands.lanes[lane], use.bytes)});
    Storage* const stand_in = replaced_.back().stand_in.get();
    operands.addresses[use.buffer] = static_cast<std::byte*>(stand_in->data());
    operands.storages[use.buffer] = stand_in;
  }
}

void StandIns::keep_operands(std::span<const backend::StreamRef> lanes) const {
  for (const Replaced& replaced : replaced_) {
    if (replaced.owner == nullptr) continue;
    const backend::StreamRef stream = lanes[replaced.lane];
    if (!graph_keeps(*replaced.owner, stream)) replaced.owner->record_stream(StreamAccess::make(stream));
  }
}

void StandIns::copy_in(Runtime& runtime, std::span<const backend::StreamRef> lanes) const {
  for (const auto& [lane, use, operand, owner, stand_in] : replaced_) {
    // The plan's lanes wait for `use.ready`; the stand-in was allocated for the operand's own lane.
    if (use.ready != lane) runtime.part<Streams>().order(lanes[lane], lanes[use.ready]);
    if (!use.is_read) continue;
    runtime.backend().copy(
        lanes[lane],
        {.target = static_cast<std::byte*>(stand_in->data()), .source = operand, .row_bytes = use.bytes});
  }
}

void StandIns::copy_back(Runtime& runtime, std::span<const backend::StreamRef> lanes) const {
  for (const auto& [lane, use, operand, owner, stand_in] : replaced_) {
    if (!use.is_written) continue;
    runtime.backend().copy(
        lanes[lane],
        {.target = operand, .source = static_cast<std::byte*>(stand_in->data()), .row_bytes = use.bytes});
  }
}

void StandIns::record_stream(const Stream& stream) const {
  for (const Replaced& replaced : replaced_) replaced.stand_in->record_stream(stream);
}

}  // namespace tutti::transport
