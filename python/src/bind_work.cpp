// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "bind.hpp"
#include "python_communicator.hpp"
#include "scopes.hpp"
#include "tutti/patience.hpp"
#include "work.hpp"

#include <memory>

namespace tutti::python {

void bind_work(nb::module_& module) {
  nb::class_<Work>(
      module, "Work",
      "Calls made in a `with` block on host memory of virtual devices, which return without waiting.")
      .def(nb::init<>())
      .def("__enter__",
           [](nb::object self) {
             nb::cast<Work&>(self).enter();
             return self;
           })
      .def(
          "__exit__", [](Work& work, nb::args) { work.leave(); },
          nb::sig("def __exit__(self, *args: object) -> None"))
      .def("wait", &Work::wait, "Waits until results are in host memory. Ctrl-C ends the wait.")
      .def("is_done", &Work::is_done);
  bind_scope<PatienceArgument>(
      module, "patience",
      "Overrides the patience of calls that this thread makes in a `with` block, in seconds.",
      [](const PatienceArgument& seconds) -> std::shared_ptr<void> {
        return std::make_shared<PatienceGuard>(milliseconds_of(nb::cast<double>(seconds.object)));
      });
}

}  // namespace tutti::python
