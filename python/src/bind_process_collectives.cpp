// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "bind.hpp"
#include "operands.hpp"
#include "shared_object.hpp"
#include "tutti/collectives.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

/// The collectives of one process under torch.cuda.comm's names and signatures. The module `tutti.comm` hands
/// its arguments on.
namespace tutti::python {
namespace {

using Sizes = std::vector<std::int64_t>;

/// The operands of one call, and the streams of their library made current for it.
class ProcessCall {
 public:
  ProcessCall() {
    bury();
    held_.reserve(4);
  }
  ProcessCall(const ProcessCall&) = delete;
  ProcessCall& operator=(const ProcessCall&) = delete;
  ~ProcessCall() { keep_unordered(held_, std::move(streams_)); }

  std::vector<Tensor> tensors(nb::handle given, const char* name) {
    std::vector<Tensor> tensors;
    tensors.reserve(nb::len_hint(given));
    for (const nb::handle one : given) tensors.push_back(tensor(one, name));
    return tensors;
  }
  std::vector<std::vector<Tensor>> lists(nb::handle given, const char* name) {
    std::vector<std::vector<Tensor>> lists;
    for (const nb::handle one : given) lists.push_back(tensors(one, name));
    return lists;
  }
  Tensor tensor(nb::handle given, const char* name) {
    held_.push_back(borrow_tensor(given, name, Order::of_library));
    if (!std::exchange(has_kind_, true)) kind_ = Kind::of(given);
    use(held_.back().tensor.device());
    return held_.back().tensor;
  }
  void use(Device device) {
    if (kind_.is_own() || device.is_host()) return;
    const Device known = device.is_current() ? Device(current_device()) : device;
    for (const Device one : devices_) {
      if (one == known) return;
    }
    devices_.push_back(known);
  }
  void use(const std::vector<Device>& devices) {
    for (const Device device : devices) use(device);
  }
  void use(const std::vector<Stream>& streams) {
    streams_.insert(streams_.end(), streams.begin(), streams.end());
  }

  /// Makes the call without the GIL, on the current streams of the operands' library.
  template <class Function>
  auto make(Function&& function) {
    CurrentStreams current;
    for (const Device device : devices_) {
      if (const std::optional<Stream> stream = kind_.current_stream(device)) {
        current.add(*stream);
        if (is_any_unordered()) streams_.push_back(*stream);
      }
    }
    const nb::gil_scoped_release release;
    const CurrentStreams undo = std::move(current);
    return function();
  }

  nb::object wrap(const Tensor& tensor) const { return kind_.wrap(tensor); }
  nb::tuple wrap(const std::vector<Tensor>& tensors) const {
    nb::list list;
    for (const Tensor& tensor : tensors) list.append(wrap(tensor));
    return nb::tuple(list);
  }

 private:
  [[nodiscard]] bool is_any_unordered() const { return std::ranges::any_of(held_, &Operand::is_unordered); }

  Kind kind_;
  bool has_kind_ = false;
  std::vector<Operand> held_;
  std::vector<Device> devices_;
  std::vector<Stream> streams_;  ///< in place of tutti's current ones
};

/// Reads a destination, where torch means the current device by None and the host by -1 or 'cpu'.
Device destination_of(const DeviceArgument& destination) {
  const bool is_number = nb::isinstance<nb::int_>(destination.object);
  if (is_number && nb::cast<int>(destination.object) == -1) return Device::host();
  return destination.get();
}

/// Returns `original` where the result is the given tensor itself, as torch's functions do.
nb::object wrap_or_keep(const ProcessCall& call, const Tensor& result, const Tensor& given,
                        nb::handle original) {
  const bool is_given = result.data() == given.data() && result.device() == given.device();
  return is_given ? nb::borrow(original) : call.wrap(result);
}

nb::object broadcast_to(const TensorsArgument& tensor, const DevicesArgument& devices) {
  ProcessCall call;
  const Tensor source = call.tensor(tensor.object, "tensor");
  const std::vector<Device> targets = devices.get();
  call.use(targets);
  nb::list copies;
  for (const Tensor& copy : call.make([&] { return broadcast(source, targets); })) {
    copies.append(wrap_or_keep(call, copy, source, tensor.object));
  }
  return nb::tuple(copies);
}

void broadcast_into(const TensorsArgument& tensor, const TensorsArgument& out) {
  ProcessCall call;
  const Tensor source = call.tensor(tensor.object, "tensor");
  const std::vector<Tensor> targets = call.tensors(out.object, "out");
  call.make([&] { broadcast(source, targets); });
}

nb::object broadcast_lists(const TensorsArgument& tensors, const DevicesArgument& devices,
                           std::size_t buffer_size) {
  ProcessCall call;
  const std::vector<Tensor> sources = call.tensors(tensors.object, "tensors");
  const std::vector<Device> targets = devices.get();
  call.use(targets);
  nb::list rows;
  for (const std::vector<Tensor>& copies :
       call.make([&] { return broadcast_coalesced(sources, targets, buffer_size); })) {
    nb::list row;
    for (std::size_t i = 0; i < copies.size(); ++i) {
      row.append(wrap_or_keep(call, copies[i], sources[i], nb::object(tensors.object[i])));
    }
    rows.append(row);
  }
  return std::move(rows);
}

nb::object reduce_to(const TensorsArgument& inputs, const DeviceArgument& destination,
                     const OperationArgument& op) {
  ProcessCall call;
  const std::vector<Tensor> sources = call.tensors(inputs.object, "inputs");
  const Device target = destination.get();
  call.use(target);
  const ReduceOp operation = op.get();
  return call.wrap(call.make([&] { return reduce(sources, operation, target); }));
}

void reduce_into(const TensorsArgument& inputs, const TensorsArgument& out, const OperationArgument& op) {
  ProcessCall call;
  const std::vector<Tensor> sources = call.tensors(inputs.object, "inputs");
  const Tensor target = call.tensor(out.object, "out");
  const ReduceOp operation = op.get();
  call.make([&] { reduce(sources, target, operation); });
}

nb::object reduce_lists(const TensorsArgument& inputs, const DeviceArgument& destination,
                        std::size_t buffer_size, const OperationArgument& op) {
  ProcessCall call;
  const std::vector<std::vector<Tensor>> sources = call.lists(inputs.object, "inputs");
  const Device target = destination.get();
  call.use(target);
  const ReduceOp operation = op.get();
  return call.wrap(call.make([&] { return reduce_coalesced(sources, operation, target, buffer_size); }));
}

std::vector<Stream> streams_of(const StreamsArgument& streams, const std::vector<Device>& devices) {
  const std::vector<nb::object> given = streams.each();
  std::vector<Stream> all;
  if (given.empty()) return all;
  if (given.size() != devices.size()) {
    throw Error(ErrorCode::invalid_argument, "scatter: streams has " + std::to_string(given.size()) +
                                                 " streams, expected " + std::to_string(devices.size()) +
                                                 ": one for each output");
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    // None means the current stream, as in torch.
    all.push_back(given[i].is_none() ? current_stream(devices[i]) : StreamArgument{given[i]}.get(devices[i]));
  }
  return all;
}

nb::object scatter_to(const TensorsArgument& tensor, const DevicesArgument& devices,
                      const std::optional<Sizes>& chunk_sizes, int dim, const StreamsArgument& streams) {
  ProcessCall call;
  const Tensor source = call.tensor(tensor.object, "tensor");
  const std::vector<Device> targets = devices.get();
  call.use(targets);
  const std::vector<Stream> on = streams_of(streams, targets);
  call.use(on);
  const Sizes sizes = chunk_sizes.value_or(Sizes{});
  return call.wrap(call.make([&] { return scatter(source, targets, sizes, dim, on); }));
}

void scatter_into(const TensorsArgument& tensor, const TensorsArgument& out, int dim,
                  const StreamsArgument& streams) {
  ProcessCall call;
  const Tensor source = call.tensor(tensor.object, "tensor");
  const std::vector<Tensor> targets = call.tensors(out.object, "out");
  std::vector<Device> devices;
  for (const Tensor& target : targets) devices.push_back(target.device());
  const std::vector<Stream> on = streams_of(streams, devices);
  call.use(on);
  call.make([&] { scatter(source, targets, dim, on); });
}

nb::object gather_to(const TensorsArgument& tensors, int dim, const DeviceArgument& destination) {
  ProcessCall call;
  const std::vector<Tensor> sources = call.tensors(tensors.object, "tensors");
  const Device target = destination_of(destination);
  call.use(target);
  return call.wrap(call.make([&] { return gather(sources, dim, target); }));
}

void gather_into(const TensorsArgument& tensors, const TensorsArgument& out, int dim) {
  ProcessCall call;
  const std::vector<Tensor> sources = call.tensors(tensors.object, "tensors");
  const Tensor target = call.tensor(out.object, "out");
  call.make([&] { gather(sources, target, dim); });
}

}  // namespace

void bind_process_collectives(nb::module_& parent) {
  nb::module_ module = parent.def_submodule("collectives", "Collectives of one process, for `tutti.comm`.");
  module.attr("default_buffer_size") = default_buffer_size;
  module.def("broadcast", &broadcast_to, nb::arg("tensor"), nb::arg("devices"));
  module.def("broadcast_into", &broadcast_into, nb::arg("tensor"), nb::arg("out"));
  module.def("broadcast_coalesced", &broadcast_lists, nb::arg("tensors"), nb::arg("devices"),
             nb::arg("buffer_size"));
  module.def("reduce", &reduce_to, nb::arg("inputs"), nb::arg("destination").none(), nb::arg("op").none());
  module.def("reduce_into", &reduce_into, nb::arg("inputs"), nb::arg("out"), nb::arg("op").none());
  module.def("reduce_coalesced", &reduce_lists, nb::arg("inputs"), nb::arg("destination").none(),
             nb::arg("buffer_size"), nb::arg("op").none());
  module.def("scatter", &scatter_to, nb::arg("tensor"), nb::arg("devices").none(),
             nb::arg("chunk_sizes").none(), nb::arg("dim"), nb::arg("streams").none());
  module.def("scatter_into", &scatter_into, nb::arg("tensor"), nb::arg("out"), nb::arg("dim"),
             nb::arg("streams").none());
  module.def("gather", &gather_to, nb::arg("tensors"), nb::arg("dim"), nb::arg("destination").none());
  module.def("gather_into", &gather_into, nb::arg("tensors"), nb::arg("out"), nb::arg("dim"));
  module.def("last_plan", &last_plan, "The plan of the calling thread's last collective of one process.");
}

}  // namespace tutti::python
