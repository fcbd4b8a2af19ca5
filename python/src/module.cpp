// SPDX-License-Identifier: Apache-2.0
#include "bind.hpp"
#include "tutti/version.hpp"

NB_MODULE(_tutti, module) {
  using namespace tutti::python;
  // Classes keep operations and libraries as long as the process lives, which nanobind would call leaks.
  nanobind::set_leak_warnings(false);
  module.doc() = "The library's functions and classes; programs import `tutti`.";
  bind_errors(module);
  bind_types(module);
  bind_devices(module);
  bind_streams(module);
  bind_tensors(module);
  bind_memory(module);
  bind_random(module);
  bind_graphs(module);
  bind_virtual_devices(module);
  bind_process_collectives(module);
  bind_communicator(module);
  bind_symmetric_memory(module);
  bind_work(module);
}
