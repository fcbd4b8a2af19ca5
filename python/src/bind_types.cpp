// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "bind.hpp"
#include "tutti/collective.hpp"
#include "tutti/collectives.hpp"
#include "tutti/version.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

namespace tutti::python {
namespace {

void bind_dtypes(nb::module_& module) {
  nb::enum_<DType> dtypes(module, "DType", "An element type; `tutti.float32` and its like are the members.");
  for (const DType dtype : all_dtypes) dtypes.value(std::string(name_of(dtype)).c_str(), dtype);
  dtypes.def_prop_ro(
      "itemsize", [](DType dtype) { return size_of(dtype); }, "Bytes per element.");
  for (const DType dtype : all_dtypes) {
    // `bool` would hide Python's own where stubs mention it.
    if (dtype != DType::boolean) module.attr(std::string(name_of(dtype)).c_str()) = nb::cast(dtype);
  }
}

void bind_operations(nb::module_& module) {
  nb::class_<ReduceOp> operations(
      module, "ReduceOp",
      "An operation by which reductions combine elements, in ascending order of inputs. Calls "
      "also take the names 'sum', 'avg', 'min', 'max', 'prod', 'band', 'bor' and 'bxor'.");
  operations
      .def_static(
          "premul_sum", [](double factor) { return ReduceOp::premul_sum(factor); }, nb::arg("factor"),
          "The sum of inputs that are multiplied by `factor` first.")
      .def_static(
          "premul_sum", [](std::vector<double> factors) { return ReduceOp::premul_sum(std::move(factors)); },
          nb::arg("factors"),
          "The sum of inputs, of which input (or member) i is multiplied by factors[i] first.")
      .def_static("compiled", &ReduceOp::compiled, nb::arg("source"),
                  "A function of two values as C++ source: a template with one type, such as `template "
                  "<typename T> T "
                  "larger(T a, T b) { return a < b ? b : a; }`.")
      .def(
          "__eq__", [](const ReduceOp& a, const ReduceOp& b) { return a == b; }, nb::is_operator())
      .def("__repr__",
           [](const ReduceOp& op) { return "ReduceOp(" + std::string(name_of(op.kind())) + ")"; });
  for (const ReduceKind kind : all_reduce_kinds) {
    if (kind != ReduceKind::premul_sum) operations.attr(std::string(name_of(kind)).c_str()) = ReduceOp(kind);
  }
}

void bind_plans(nb::module_& module) {
  nb::class_<PlanSummary>(module, "PlanSummary", "What carried a call.")
      .def_ro("transport", &PlanSummary::transport,
              "'p2p', 'nccl', 'staged', or 'none' where nothing had to move.")
      .def_ro("algorithm", &PlanSummary::algorithm, "For instance 'root push' or 'split and fan out'.")
      .def("__repr__", [](const PlanSummary& plan) {
        return "PlanSummary(transport='" + plan.transport + "', algorithm='" + plan.algorithm + "')";
      });
}

}  // namespace

void bind_types(nb::module_& module) {
  module.attr("__version__") = std::string(version());
  bind_dtypes(module);
  bind_operations(module);
  bind_plans(module);
}

}  // namespace tutti::python
