// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "bind.hpp"
#include "python_communicator.hpp"
#include "tutti/symmetric.hpp"
#include "tutti/symmetric_view.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

namespace tutti::python {
namespace {

/// Symmetric memory, and the communicator that has made it, which Python keeps for as long.
class PythonSymmetricMemory {
 public:
  PythonSymmetricMemory(SymmetricMemory memory, const PythonCommunicator& communicator)
      : memory_(std::move(memory)), communicator_(&communicator) {}

  [[nodiscard]] const SymmetricMemory& get() const noexcept { return memory_; }
  /// Waits so that Ctrl-C ends the communicator. One that has been closed has released the memory itself.
  void release() {
    if (!communicator_->is_open()) return drop();
    communicator_->call([this](Communicator&) { memory_.release(); });
  }
  /// Releases without waiting.
  void drop() { memory_ = SymmetricMemory(); }

 private:
  SymmetricMemory memory_;
  const PythonCommunicator* communicator_;
};

std::unique_ptr<PythonSymmetricMemory> symmetric(const PythonCommunicator& self,
                                                 const std::vector<std::int64_t>& sizes,
                                                 const DTypeArgument& dtype) {
  const DType type = dtype.get();
  SymmetricMemory memory = self.call([&](Communicator& c) { return c.symmetric(sizes, type); });
  return std::make_unique<PythonSymmetricMemory>(std::move(memory), self);
}

std::uintptr_t number_of(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

void bind_view(nb::module_& module) {
  nb::class_<SymmetricView>(module, "SymmetricView",
                            "One member's view of symmetric memory, for a kernel on a GPU. `bytes(view)` are "
                            "those of the C++ struct "
                            "tutti::SymmetricView, which a kernel takes by value; the other values are for "
                            "kernels that are compiled "
                            "without tutti's headers. Valid until the memory is released.")
      .def_prop_ro(
          "peers", [](const SymmetricView& view) { return number_of(view.peers); },
          "The device address of an array with the address of each member's data.")
      .def_prop_ro(
          "abort", [](const SymmetricView& view) { return number_of(view.abort); },
          "The device address of a word of 32 bits that is not 0 once the communicator has ended.")
      .def_ro("nbytes", &SymmetricView::bytes, "The bytes of each member's data.")
      .def_prop_ro(
          "patience", [](const SymmetricView& view) { return static_cast<double>(view.patience) / 1e9; },
          "How long a kernel's wait lasts at most, in seconds.")
      .def_ro("member", &SymmetricView::member)
      .def_ro("member_count", &SymmetricView::member_count)
      .def("__bytes__", [](const SymmetricView& view) {
        return nb::bytes(reinterpret_cast<const char*>(&view), sizeof view);
      });
}

void bind_memory_class(nb::module_& module) {
  using Memory = PythonSymmetricMemory;
  nb::class_<Memory>(module, "SymmetricMemory",
                     "A tensor on every member of a communicator (`Communicator.symmetric`), which the "
                     "kernels of all members "
                     "may read and write. It is freed once all ranks have released it: by `release`, with a "
                     "`with` block, with "
                     "the object, or with their communicator.")
      .def_prop_ro(
          "tensors", [](const Memory& self) { return self.get().tensors(); },
          "The tensors of this process's members: dense, and not initialised.")
      .def(
          "tensor", [](const Memory& self, int local) { return self.get().tensor(local); },
          nb::arg("local") = 0, "The tensor of this process's member number `local`.")
      .def(
          "peer_data",
          [](const Memory& self, int member, int local) {
            return number_of(self.get().peer_data(member, local));
          },
          nb::arg("member"), nb::arg("local") = 0,
          "The address of a member's data for the device of a local member, as a number.")
      .def(
          "view",
          [](const Memory& self, int local, std::optional<double> patience) {
            std::optional<std::chrono::milliseconds> limit;
            if (patience) limit = milliseconds_of(*patience);
            return self.get().view(local, limit);
          },
          nb::arg("local") = 0, nb::arg("patience") = nb::none(),
          "The view of a local member for kernels on GPUs, whose waits last `patience` seconds at most, or "
          "else "
          "the communicator's. Raises on virtual devices.")
      .def(
          "record_stream",
          [](const Memory& self, const StreamArgument& stream) {
            self.get().record_stream(stream.get(self.get().tensor().device()));
          },
          nb::arg("stream"), "Makes the release wait for work on the stream, which uses the memory.")
      .def(
          "release", &Memory::release,
          "Releases the memory, and waits until all ranks have. Raises TimeoutError with the ranks that have "
          "not. Does nothing if it is released.")
      .def(
          "__bool__", [](const Memory& self) { return static_cast<bool>(self.get()); },
          "Whether the memory is not released.")
      .def("__enter__", [](nb::object self) { return self; })
      .def(
          "__exit__", [](Memory& self, nb::args error) { error[0].is_none() ? self.release() : self.drop(); },
          nb::sig("def __exit__(self, *args: object) -> None"));
}

}  // namespace

void bind_symmetric(CommunicatorClass& communicators) {
  communicators.def(
      "symmetric", &symmetric, nb::arg("sizes"), nb::arg("dtype") = "float32", nb::keep_alive<0, 1>(),
      "Makes a tensor of these sizes on each member, at once, which the kernels of all members may read and "
      "write. All ranks make the call, which waits for them. Raises if the devices cannot access one "
      "another's "
      "memory, or ranks are on several hosts.");
}

void bind_symmetric_memory(nb::module_& module) {
  bind_view(module);
  bind_memory_class(module);
}

}  // namespace tutti::python
