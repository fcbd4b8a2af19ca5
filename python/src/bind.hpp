// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

/// Adds the parts of the library to the module, each from a source of its own.
namespace tutti::python {

void bind_errors(nanobind::module_& module);
void bind_types(nanobind::module_& module);
void bind_devices(nanobind::module_& module);
void bind_streams(nanobind::module_& module);
void bind_tensors(nanobind::module_& module);
void bind_memory(nanobind::module_& module);
void bind_random(nanobind::module_& module);
void bind_graphs(nanobind::module_& module);
void bind_virtual_devices(nanobind::module_& module);
void bind_process_collectives(nanobind::module_& module);
void bind_communicator(nanobind::module_& module);
void bind_symmetric_memory(nanobind::module_& module);
void bind_work(nanobind::module_& module);

}  // namespace tutti::python
