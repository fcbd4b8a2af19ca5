// SPDX-License-Identifier: Apache-2.0
#include "bind.hpp"
#include "tutti/error.hpp"

#include <string>

namespace tutti::python {
namespace {

namespace nb = nanobind;

nb::object python_error_of(const Error& error) {
  const nb::module_ errors = nb::module_::import_("tutti.errors");
  const auto code = std::string(name_of(error.code()));
  nb::object made = errors.attr("from_code")(code.c_str(), error.what(), error.native_code());
  if (const auto* const memory = dynamic_cast<const OutOfMemoryError*>(&error)) {
    const OutOfMemoryError::Figures& figures = memory->figures();
    made.attr("requested") = figures.requested;
    made.attr("free") = figures.free;
    made.attr("total") = figures.total;
    made.attr("reserved") = figures.reserved;
    made.attr("allocated") = figures.allocated;
  }
  return made;
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    // A signal whose handler raises is what has ended the call.
    if (PyErr_CheckSignals() != 0) return;
    const nb::object made = python_error_of(error);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  }
}

}  // namespace

void bind_errors(nb::module_&) {
  nb::register_exception_translator(translate);
}

}  // namespace tutti::python
