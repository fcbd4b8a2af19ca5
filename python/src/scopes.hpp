// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

namespace tutti::python {

/// A context manager that makes a guard on entry, and drops it on exit. It may be entered again, also while
/// it is open.
template <class Argument>
class Scope {
 public:
  using Enter = std::shared_ptr<void> (*)(const Argument&);

  Scope(Enter make_guard, Argument argument) : enter_(make_guard), argument_(std::move(argument)) {}
  void enter() { guards_.push_back(enter_(argument_)); }
  void exit() { guards_.pop_back(); }

 private:
  Enter enter_;
  Argument argument_;
  std::vector<std::shared_ptr<void>> guards_;
};

/// Adds the class `name`, whose argument `enter` turns into a guard.
template <class Argument>
void bind_scope(nanobind::module_& module, const char* name, const char* text,
                typename Scope<Argument>::Enter enter) {
  namespace nb = nanobind;
  nb::class_<Scope<Argument>>(module, name, text)
      .def(
          "__init__",
          [enter](Scope<Argument>* self, const Argument& argument) {
            new (self) Scope<Argument>(enter, argument);
          },
          nb::arg("value").none())
      .def("__enter__",
           [](nb::object self) {
             nb::cast<Scope<Argument>&>(self).enter();
             return self;
           })
      .def(
          "__exit__", [](Scope<Argument>& self, nb::args) { self.exit(); },
          nb::sig("def __exit__(self, *args: object) -> None"));
}

}  // namespace tutti::python
