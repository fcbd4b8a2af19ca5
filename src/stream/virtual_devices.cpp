// SPDX-License-Identifier: Apache-2.0
#include "tutti/virtual_devices.hpp"

#include "backend/host/host_backend.hpp"
#include "base/enumerators.hpp"
#include "device/blocking_call.hpp"
#include "device/current_device.hpp"
#include "stream/stream_access.hpp"
#include "tutti/error.hpp"
#include "tutti/managed_range.hpp"

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tutti::virtual_devices {
namespace {

backend::VirtualMachineControl& control(std::string_view function) {
  backend::VirtualMachineControl* machine = Runtime::get().virtual_machine();
  if (machine == nullptr) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("virtual_devices::{}: the devices in use are GPUs, expected virtual devices", function));
  }
  return *machine;
}

}  // namespace

void start(const VirtualMachine& machine) {
  Runtime::replace(machine);
}

void inject(const Fault& fault) {
  backend::VirtualMachineControl& machine = control("inject");
  require_enumerator(fault.operation, Operation::open, "inject", "the fault's operation");
  require_enumerator(fault.kind, FaultKind::delay, "inject", "the fault's kind");
  Fault settled = fault;
  for (std::optional<Device>* place : {&settled.device, &settled.peer}) {
    if (*place) *place = resolved(Runtime::get(), **place);
  }
  machine.inject(settled);
}

void clear_faults() {
  control("clear_faults").clear_faults();
}

std::uint64_t operations_enqueued() {
  return control("operations_enqueued").operations_enqueued();
}

void set_interleaving_seed(std::optional<std::uint64_t> seed) {
  backend::VirtualMachineControl& machine = control("set_interleaving_seed");
  const BlockingCall blocks("virtual_devices::set_interleaving_seed");
  machine.set_interleaving_seed(seed);
}

std::optional<std::uint64_t> interleaving_seed() {
  return control("interleaving_seed").interleaving_seed();
}

ManagedRange::ManagedRange(void* address, std::size_t bytes) {
  const auto require = [&](bool is_met, std::string_view expected) {
    if (is_met) return;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("ManagedRange: {} bytes at address {}, expected {}", bytes, address, expected));
  };
  backend::VirtualMachineControl& machine = control("ManagedRange");
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  require(address != nullptr && bytes > 0 && place + bytes > place, "memory of the program");
  auto* const begin = static_cast<std::byte*>(address);
  require(machine.add_managed(begin, bytes),
          "memory that overlaps with none of the devices, nor with part of another range");
  address_ = begin;
  machine_ = Runtime::get().generation();
}

ManagedRange::~ManagedRange() {
  Runtime* const runtime = Runtime::get_if_initialized();
  if (address_ == nullptr || runtime == nullptr || runtime->generation() != machine_) return;
  runtime->virtual_machine()->remove_managed(address_);
}

void launch(const Stream& stream, std::string_view name, std::span<const Access> accesses,
            std::function<void(std::span<void* const>)> kernel) {
  for (const Access& access : accesses)
    require_enumerator(access.use, Access::Use::unchecked, "virtual_devices::launch", "the use of an access");
  control("launch").launch(StreamAccess::ref(stream), name, accesses, std::move(kernel));
}

}  // namespace tutti::virtual_devices
