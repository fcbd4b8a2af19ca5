// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "bind.hpp"
#include "tutti/error.hpp"
#include "tutti/virtual_devices.hpp"

#include <array>
#include <utility>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

namespace tutti::python {
namespace {

using namespace virtual_devices;

template <class Value, std::size_t Count>
Value parse(const std::array<std::pair<const char*, Value>, Count>& names, const std::string& text,
            const char* what) {
  std::string known;
  for (const auto& [name, value] : names) {
    if (text == name) return value;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  throw Error(ErrorCode::invalid_argument,
              std::string("inject: ") + what + " is '" + text + "', expected one of " + known);
}

Operation operation_of(const std::string& text) {
  using Row = std::pair<const char*, Operation>;
  constexpr std::array rows{Row{"allocate_device", Operation::allocate_device},
                            Row{"allocate_pinned", Operation::allocate_pinned},
                            Row{"copy", Operation::copy},
                            Row{"kernel", Operation::kernel},
                            Row{"enable_peer", Operation::enable_peer},
                            Row{"create_stream", Operation::create_stream},
                            Row{"create_event", Operation::create_event},
                            Row{"signal", Operation::signal},
                            Row{"share", Operation::share},
                            Row{"open", Operation::open}};
  return parse(rows, text, "operation");
}

FaultKind kind_of(const std::string& text) {
  using Row = std::pair<const char*, FaultKind>;
  constexpr std::array rows{Row{"fail", FaultKind::fail},
                            Row{"fail_asynchronously", FaultKind::fail_asynchronously},
                            Row{"corrupt", FaultKind::corrupt}, Row{"delay", FaultKind::delay}};
  return parse(rows, text, "kind");
}

std::optional<Device> device_if_given(const DeviceArgument& device) {
  if (device.object.is_none()) return std::nullopt;
  return device.get();
}

void start_machine(int devices, const std::string& topology, std::size_t memory_bytes) {
  VirtualMachine machine = VirtualMachine::from_topology(topology, devices);
  if (memory_bytes != 0) machine.memory_bytes = memory_bytes;
  start(machine);
}

}  // namespace

void bind_virtual_devices(nb::module_& parent) {
  nb::module_ module = parent.def_submodule("virtual_devices", "Simulates GPUs on the CPU, with real data.");
  module.def(
      "start", &start_machine, nb::arg("devices") = 8, nb::arg("topology") = "island",
      nb::arg("memory_bytes") = 0, nb::call_guard<nb::gil_scoped_release>(),
      "Replaces this process's devices by virtual ones. `topology` is 'island', 'two-islands', 'pcie', "
      "'pcie-p2p' or "
      "the path of a JSON file; `memory_bytes` is each device's, 0 for 1 GiB. All tensors must be gone.");
  module.def(
      "inject",
      [](const std::string& operation, const std::string& kind, const DeviceArgument& device,
         const DeviceArgument& peer, std::uint64_t skip, std::uint64_t count,
         std::uint64_t delay_microseconds) {
        inject({.operation = operation_of(operation),
                .kind = kind_of(kind),
                .device = device_if_given(device),
                .peer = device_if_given(peer),
                .skip = skip,
                .count = count,
                .delay_microseconds = delay_microseconds});
      },
      nb::arg("operation"), nb::arg("kind") = "fail", nb::kw_only(), nb::arg("device") = nb::none(),
      nb::arg("peer") = nb::none(), nb::arg("skip") = 0, nb::arg("count") = 1,
      nb::arg("delay_microseconds") = 0,
      "Lets `skip` matching operations pass, then affects `count`. `operation`: 'copy', 'kernel', "
      "'allocate_device', …; "
      "`kind`: 'fail', 'fail_asynchronously', 'corrupt' or 'delay', by `delay_microseconds`.");
  module.def("clear_faults", &clear_faults, "Removes all faults.");
  module.def("operations_enqueued", &operations_enqueued, "The number of operations accepted so far.");
  module.def("set_interleaving_seed", &set_interleaving_seed, nb::arg("seed").none(),
             nb::call_guard<nb::gil_scoped_release>(),
             "Draws the order in which streams run from a seed; None turns that off. Waits until all streams "
             "are idle.");
  module.def("interleaving_seed", &interleaving_seed, "The seed in use, or None.");
}

}  // namespace tutti::python
