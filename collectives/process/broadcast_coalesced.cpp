// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/together.hpp"
#include "collectives/process/prepare.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::collectives {
namespace {

/// Returns whether all are plain.
bool check_sources(const Arguments& arguments, TensorList tensors) {
  bool are_plain = true;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    fetch_ahead(tensors, t);
    if (is_plain(tensors[t], tensors[0].device())) continue;
    are_plain = false;
    arguments.usable(tensors[t], Name("tensors", t));
    if (tensors[t].device() != tensors[0].device()) {
      arguments.fail("tensors[{}] is on {}, expected {} as tensors[0]", t, to_string(tensors[t].device()),
                     to_string(tensors[0].device()));
    }
  }
  return are_plain;
}

void check_target(const Arguments& arguments, const Tensor& source, std::size_t t, const Tensor& output,
                  std::size_t d, Device device) {
  const Name name{"out", d, t};
  arguments.usable(output, name);
  arguments.on_some_device(output, name);
  if (output.device() != device) {
    arguments.fail("{} is on {}, expected {} as out[{}][0]", name, to_string(output.device()),
                   to_string(device), d);
  }
  arguments.writable(output, name);
  arguments.same_dtype(output, name, source.dtype(), Name("tensors", t));
  arguments.same_sizes(output, name, source.sizes(), Name("tensors", t));
}

void check_lengths(const Arguments& arguments, TensorList tensors, TensorLists out) {
  arguments.not_empty(out.size(), "out");
  for (std::size_t d = 0; d < out.size(); ++d) {
    if (out[d].size() == tensors.size()) continue;
    arguments.fail("out[{}] has {} tensors, expected {} as tensors", d, out[d].size(), tensors.size());
  }
}

/// Adds the outputs as rows, checked. Returns whether all are plain and laid out as their sources.
bool add_targets(const Arguments& arguments, TensorList tensors, TensorLists out, MemoryRuns& runs,
                 Call& call) {
  bool are_plain = true;
  std::optional<std::size_t> row_in_place;
  for (std::size_t d = 0; d < out.size(); ++d) {
    const Device device = out[d][0].device();
    check_target(arguments, tensors[0], 0, out[d][0], d, device);
    const bool is_root = device == tensors[0].device();
    call.add_row(device);
    runs.start_outputs();
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      fetch_ahead(out[d], t);
      const Tensor& output = out[d][t];
      const bool is_plain = is_plain_as(tensors[t], output, device);
      if (!is_plain) {
        are_plain = false;
        check_target(arguments, tensors[t], t, output, d, device);
      }
      const bool is_left_alone = is_root && is_plain && is_source(tensors[t], output);
      if (is_left_alone) call.leave_alone();
      // Of one row only: a second output on the same memory meets the input, and is looked into.
      if (is_left_alone && row_in_place.value_or(d) == d) {
        row_in_place = d;
        runs.add_in_place();
      } else {
        runs.add(output);
      }
      call.add(output);
    }
  }
  return are_plain;
}

/// The order each column travels in: the source's own, if every other output shares it.
ColumnLayouts common_layouts(TensorList tensors, TensorLists out) {
  ColumnLayouts layouts(tensors.size());
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const Layout& own = *tensors[t].layout();
    const bool shared = std::ranges::all_of(out, [&](const std::vector<Tensor>& row) {
      return is_source(tensors[t], row[t]) || same_order(own, *row[t].layout());
    });
    if (shared && own.is_dense()) {
      layouts.add(own);
    } else {
      layouts.add_new(layout_in(own, MemoryFormat::contiguous));
    }
  }
  return layouts;
}

/// A call with the row of sources started, and room for those of `targets` devices.
Call start_call(const Arguments& arguments, TensorList tensors, std::size_t targets, std::size_t buffer_size,
                const CollectiveOptions& options) {
  Call call(arguments.runtime(), coalesced(Collective::broadcast), options, tensors.size());
  call.set_staging_bytes(buffer_size);
  std::vector<std::uint64_t>& bytes = call.request().copied().bytes;
  bytes.reserve(tensors.size());
  for (const Tensor& tensor : tensors) bytes.push_back(tensor.nbytes());
  call.reserve(1 + targets);
  call.add_row(tensors[0].device());
  call.mark_root();
  return call;
}

/// The same call with stand-ins for the tensors that need them.
Call start_packed_call(const Arguments& arguments, Packing& packing, TensorList tensors, TensorLists out,
                       std::size_t buffer_size, const CollectiveOptions& options) {
  const ColumnLayouts layouts = common_layouts(tensors, out);
  Call call = start_call(arguments, tensors, out.size(), buffer_size, options);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    call.add(packing.input(tensors[t], layouts[t], Name("tensors", t)));
  }
  for (std::size_t d = 0; d < out.size(); ++d) {
    const Device device = out[d][0].device();
    const Stream stream = current_stream(device.index());
    call.add_row(device);
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const Tensor& output = out[d][t];
      // A source is left alone: what is unpacked into it would be a stand-in that nothing was sent to.
      const bool is_left_alone = is_source(tensors[t], output);
      if (is_left_alone) call.leave_alone();
      call.add(is_left_alone ? output : packing.output(output, layouts[t], Name("out", d, t), stream));
    }
  }
  return call;
}

}  // namespace

Call prepare_broadcast_coalesced(const Arguments& arguments, Packing& packing, TensorList tensors,
                                 TensorLists out, std::size_t buffer_size, const CollectiveOptions& options) {
  MemoryRuns runs;
  bool are_plain = check_sources(arguments, tensors);
  check_lengths(arguments, tensors, out);
  if (tensors.empty())
    return Call::of_nothing(arguments.runtime(), Collective::broadcast,
                            name_of(coalesced(Collective::broadcast)), options);
  Call call = start_call(arguments, tensors, out.size(), buffer_size, options);
  call.add_all(tensors);
  if (!add_targets(arguments, tensors, out, runs, call)) are_plain = false;
  runs.start_inputs();
  for (const Tensor& tensor : tensors) runs.add(tensor);
  if (!runs.are_disjoint()) {
    const std::vector<Named> inputs{{"tensors", tensors}};
    std::vector<Named> outputs;
    for (std::size_t d = 0; d < out.size(); ++d) outputs.push_back({"out", out[d], static_cast<int>(d)});
    require_disjoint_one_by_one(arguments, inputs, outputs, InPlace::same_index, are_plain);
  }
  if (!are_plain) call = start_packed_call(arguments, packing, tensors, out, buffer_size, options);
  return call;
}

}  // namespace tutti::collectives

namespace tutti {

void broadcast_coalesced(TensorList tensors, TensorLists out, std::size_t buffer_size,
                         const CollectiveOptions& options) {
  const collectives::Arguments arguments(Runtime::get(), "broadcast_coalesced", options);
  collectives::Packing packing(arguments, collectives::PackingPolicy::copy, {.inputs = tensors, .rows = out});
  collectives::prepare_broadcast_coalesced(arguments, packing, tensors, out, buffer_size, options).launch();
  packing.unpack();
}

std::vector<std::vector<Tensor>> broadcast_coalesced(TensorList tensors, DeviceList given,
                                                     std::size_t buffer_size,
                                                     const CollectiveOptions& options) {
  const collectives::Arguments arguments(Runtime::get(), "broadcast_coalesced", options);
  std::vector<Device> memory;
  const DeviceList devices = arguments.resolved(given, memory);
  collectives::check_sources(arguments, tensors);
  arguments.existing_devices(devices, "devices");
  if (tensors.empty()) {
    collectives::Call::of_nothing(arguments.runtime(), Collective::broadcast,
                                  name_of(coalesced(Collective::broadcast)), options)
        .launch();
    return std::vector<std::vector<Tensor>>(devices.size());
  }

  collectives::Packing packing(arguments, collectives::PackingPolicy::copy,
                               {.inputs = tensors, .devices = devices});
  collectives::Call call = collectives::start_call(arguments, tensors, devices.size(), buffer_size, options);
  collectives::ColumnLayouts layouts(tensors.size());
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const Tensor& tensor = tensors[t];
    if (tensor.layout()->is_dense()) {
      layouts.add(*tensor.layout());
      call.add(tensor);
    } else {
      layouts.add_new(collectives::layout_in(*tensor.layout(), MemoryFormat::contiguous));
      call.add(packing.input(tensor, *layouts.all().back(), collectives::Name("tensors", t)));
    }
  }

  std::vector<collectives::ResultPlace> places;
  const std::size_t bytes = collectives::bytes_together(layouts.all());
  for (const Device device : devices) {
    if (device == tensors[0].device()) continue;
    call.add_result_row(device, bytes);
    places.push_back({device, {}});
  }
  call.join_capture();
  // The sources' row comes first.
  for (std::size_t p = 0; p < places.size(); ++p) places[p].stream = call.first_use(1 + p);
  std::vector<std::vector<Tensor>> made =
      collectives::allocate_together(arguments.runtime(), layouts.all(), places);
  for (std::size_t p = 0; p < places.size(); ++p) {
    call.return_to(1 + p);
    call.add_all(made[p]);
  }
  call.launch();

  std::vector<std::vector<Tensor>> results;
  results.reserve(devices.size());
  auto next = made.begin();
  for (const Device device : devices) {
    if (device == tensors[0].device()) {
      results.emplace_back(tensors.begin(), tensors.end());
    } else {
      results.push_back(std::move(*next++));
    }
  }
  return results;
}

}  // namespace tutti
