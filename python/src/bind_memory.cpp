// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "bind.hpp"
#include "tutti/memory.hpp"
#include "tutti/registered_memory.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include <nanobind/stl/string.h>

namespace tutti::python {
namespace {

void add(nb::dict& stats, const std::string& name, const MemoryCounter& counter) {
  stats[(name + ".current").c_str()] = counter.current;
  stats[(name + ".peak").c_str()] = counter.peak;
  stats[(name + ".allocated").c_str()] = counter.allocated;
  stats[(name + ".freed").c_str()] = counter.freed;
}

void add(nb::dict& stats, const std::string& name, const PooledCounter& counter) {
  add(stats, name + ".all", counter.all);
  add(stats, name + ".small_pool", counter.small_pool);
  add(stats, name + ".large_pool", counter.large_pool);
}

nb::dict dict_of(const MemoryStats& stats) {
  using Row = std::pair<const char*, PooledCounter MemoryStats::*>;
  constexpr std::array rows{Row{"allocation", &MemoryStats::allocation},
                            Row{"segment", &MemoryStats::segment},
                            Row{"active", &MemoryStats::active},
                            Row{"inactive_split", &MemoryStats::inactive_split},
                            Row{"allocated_bytes", &MemoryStats::allocated_bytes},
                            Row{"reserved_bytes", &MemoryStats::reserved_bytes},
                            Row{"active_bytes", &MemoryStats::active_bytes},
                            Row{"inactive_split_bytes", &MemoryStats::inactive_split_bytes},
                            Row{"requested_bytes", &MemoryStats::requested_bytes}};
  nb::dict dict;
  for (const auto& [name, counter] : rows) add(dict, name, stats.*counter);
  dict["num_alloc_retries"] = stats.num_alloc_retries;
  dict["num_ooms"] = stats.num_ooms;
  dict["num_device_alloc"] = stats.num_device_alloc;
  dict["num_device_free"] = stats.num_device_free;
  return dict;
}

nb::dict dict_of(const PinnedMemoryStats& stats) {
  nb::dict dict;
  add(dict, "allocation", stats.allocation);
  add(dict, "active", stats.active);
  add(dict, "segment", stats.segment);
  add(dict, "allocated_bytes", stats.allocated_bytes);
  add(dict, "active_bytes", stats.active_bytes);
  add(dict, "reserved_bytes", stats.reserved_bytes);
  dict["num_host_alloc"] = stats.num_host_alloc;
  dict["num_host_free"] = stats.num_host_free;
  return dict;
}

/// Adds a function of a device.
template <class Function>
void of_device(nb::module_& module, const char* name, const char* text, Function function) {
  module.def(
      name, [function](const DeviceArgument& device) { return function(device.get()); },
      nb::arg("device") = nb::none(), text);
}

void bind_amounts(nb::module_& module) {
  of_device(module, "memory_allocated", "Bytes in blocks in use.",
            [](Device d) { return memory_allocated(d); });
  of_device(module, "max_memory_allocated", "Peak of `memory_allocated`, in bytes.",
            [](Device d) { return max_memory_allocated(d); });
  of_device(module, "memory_reserved", "Bytes in segments, in use or cached.",
            [](Device d) { return memory_reserved(d); });
  of_device(module, "max_memory_reserved", "Peak of `memory_reserved`, in bytes.",
            [](Device d) { return max_memory_reserved(d); });
  of_device(module, "memory_stats", "The allocator's statistics as a dict, under torch's names.",
            [](Device d) { return dict_of(memory_stats(d)); });
  of_device(module, "reset_peak_memory_stats", "Makes every peak equal to its present value.",
            [](Device d) { reset_peak_memory_stats(d); });
  of_device(module, "reset_accumulated_memory_stats", "Sets all totals to 0.",
            [](Device d) { reset_accumulated_memory_stats(d); });
  of_device(module, "get_per_process_memory_fraction", "The limit, as a fraction of the device's memory.",
            [](Device d) { return get_per_process_memory_fraction(d); });
}

}  // namespace

void bind_memory(nb::module_& module) {
  bind_amounts(module);
  module.def(
      "memory_summary",
      [](const DeviceArgument& device, bool abbreviated) {
        return memory_summary(device.get(), abbreviated ? SummaryDetail::abbreviated : SummaryDetail::full);
      },
      nb::arg("device") = nb::none(), nb::arg("abbreviated") = false, "The statistics as a table.");
  module.def(
      "set_per_process_memory_fraction",
      [](double fraction, const DeviceArgument& device) {
        set_per_process_memory_fraction(fraction, device.get());
      },
      nb::arg("fraction"), nb::arg("device") = nb::none(),
      "Limits the memory that this process reserves on the device; more raises OutOfMemoryError.");
  module.def(
      "memory_snapshot",
      [] {
        return nb::module_::import_("json")
            .attr("loads")(memory_snapshot_json())
            .attr("__getitem__")("segments");
      },
      "All segments and their blocks, as a list of dicts.");
  module.def(
      "pinned_memory_stats", [] { return dict_of(pinned_memory_stats()); }, "Statistics of pinned memory.");
  module.def(
      "get_allocator_backend", [] { return std::string(get_allocator_backend()); },
      "'native' or 'pluggable'.");
  module.def("empty_cache", &empty_cache, nb::call_guard<nb::gil_scoped_release>(),
             "Gives cached memory back to the devices, for which it waits.");
  module.def("empty_pinned_cache", &empty_pinned_cache, nb::call_guard<nb::gil_scoped_release>());
  nb::class_<MemoryRegistration>(module, "MemoryRegistration",
                                 "A registration of memory, which ends with this object.")
      .def("release", &MemoryRegistration::release, nb::call_guard<nb::gil_scoped_release>(),
           "Ends the registration.")
      .def_prop_ro("bytes", &MemoryRegistration::bytes);
  module.def(
      "register_memory",
      [](std::uintptr_t address, std::size_t bytes) {
        return register_memory(reinterpret_cast<void*>(address), bytes);
      },
      nb::arg("address"), nb::arg("bytes"),
      "Lets collectives use device memory of other origin (such as cudaMalloc's) in place, without copies.");
}

}  // namespace tutti::python
