// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "bind.hpp"
#include "interrupts.hpp"
#include "scopes.hpp"
#include "tutti/device.hpp"
#include "tutti/topology.hpp"

#include <memory>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace tutti::python {
namespace {

void bind_device(nb::module_& module) {
  nb::class_<Device>(module, "Device", "A GPU or a virtual device by its index, or the host.")
      .def(
          "__init__", [](Device* self, const DeviceArgument& device) { new (self) Device(device.get()); },
          nb::arg("device").none(),
          "From an index, a name ('device:1', 'cuda:1', 'cpu'), or an object like torch.device.")
      .def_prop_ro("index", &Device::index, "-1 for the host.")
      .def_prop_ro(
          "type", [](Device device) { return device.is_host() ? "cpu" : "cuda"; },
          "'cpu' or 'cuda', as torch says it; virtual devices are 'cuda', too.")
      .def("__eq__",
           [](Device a, nb::handle b) { return nb::isinstance<Device>(b) && a == nb::cast<Device>(b); })
      .def("__hash__", [](Device device) { return std::hash<Device>{}(device); })
      .def("__repr__", [](Device device) { return to_string(device); });
}

void bind_properties(nb::module_& module) {
  nb::class_<DeviceProperties>(module, "DeviceProperties",
                               "Properties of a device. Sizes are bytes, rates kHz.")
      .def_ro("name", &DeviceProperties::name)
      .def_ro("major", &DeviceProperties::major)
      .def_ro("minor", &DeviceProperties::minor)
      .def_ro("total_memory", &DeviceProperties::total_memory)
      .def_ro("multi_processor_count", &DeviceProperties::multiprocessor_count)
      .def_ro("warp_size", &DeviceProperties::warp_size)
      .def_ro("L2_cache_size", &DeviceProperties::l2_cache_size)
      .def_ro("uuid", &DeviceProperties::uuid)
      .def_ro("pci_bus_id", &DeviceProperties::pci_bus_id)
      .def("__repr__",
           [](const DeviceProperties& properties) { return "DeviceProperties('" + properties.name + "')"; });
}

/// The device of an argument now, so that another thread may wait for it.
int index_of(const DeviceArgument& device) {
  const Device given = device.get();
  return given.is_current() ? current_device() : given.index();
}

void bind_queries(nb::module_& module) {
  module.def("is_available", &is_available, "Whether there is a device, virtual ones included.");
  module.def("is_initialized", &is_initialized, "Whether some call has selected the devices.");
  module.def("init", &init, "Selects GPUs or virtual devices, as TUTTI_BACKEND says (auto, cuda, host).");
  module.def(
      "backend", [] { return std::string(name_of(backend_kind())); }, "'cuda' or 'host' (virtual devices).");
  module.def("device_count", &device_count, "The number of devices.");
  module.def("current_device", &current_device, "The index of the calling thread's current device.");
  module.def(
      "set_device", [](const DeviceArgument& device) { set_device(device.get()); }, nb::arg("device").none(),
      "Makes a device current for the calling thread.");
  module.def(
      "get_device_properties",
      [](const DeviceArgument& device) { return get_device_properties(device.get()); },
      nb::arg("device") = nb::none());
  module.def(
      "get_device_name", [](const DeviceArgument& device) { return get_device_name(device.get()); },
      nb::arg("device") = nb::none());
  module.def(
      "get_device_capability",
      [](const DeviceArgument& device) { return get_device_capability(device.get()); },
      nb::arg("device") = nb::none(),
      "(major, minor) of the compute capability; (0, 0) for virtual devices.");
  module.def("get_arch_list", &get_arch_list, "The architectures that this build has code for.");
  module.def("get_gencode_flags", &get_gencode_flags);
  module.def(
      "can_device_access_peer",
      [](const DeviceArgument& device, const DeviceArgument& peer) {
        return can_device_access_peer(device.get(), peer.get());
      },
      nb::arg("device").none(), nb::arg("peer_device").none(),
      "Whether work on `device` may access the memory of `peer_device` directly.");
  module.def(
      "synchronize",
      [](const DeviceArgument& device) {
        wait_interruptibly([index = index_of(device)] { synchronize(Device(index)); });
      },
      nb::arg("device") = nb::none(),
      "Waits for all work queued on the device. Ctrl-C ends the wait. Raises the first failure of that "
      "work.");
  module.def(
      "mem_get_info",
      [](const DeviceArgument& device) {
        const MemoryInfo info = mem_get_info(device.get());
        return std::pair(info.free, info.total);
      },
      nb::arg("device") = nb::none(), "(free, total) bytes of the device.");
  module.def(
      "topology", [] { return to_string(discover_topology()); }, "The devices and their links, as a table.");
}

}  // namespace

void bind_devices(nb::module_& module) {
  bind_device(module);
  bind_properties(module);
  bind_queries(module);
  bind_scope<DeviceArgument>(module, "device", "Makes a device current within a `with` block.",
                             [](const DeviceArgument& device) -> std::shared_ptr<void> {
                               return std::make_shared<DeviceGuard>(device.get());
                             });
}

}  // namespace tutti::python
