#include "collectives/arguments.hpp"

#include "overlap.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>

namespace tutti::collectives {

Name Named::name(std::size_t index) const {
  if (row == -2) return argument;
  if (row == -1) return {argument, index};
  return {argument, static_cast<std::size_t>(row), index};
}

bool is_believed(const Tensor& tensor) noexcept {
  if (!tensor.defined() || !tensor.storage() || !tensor.storage()->is_library_memory()) return false;
  const Storage& storage = *tensor.storage();
  const auto* const begin = static_cast<const std::byte*>(storage.data());
  const auto* const data = static_cast<const std::byte*>(tensor.data());
  const std::size_t bytes = tensor.layout()->span_bytes();
  return storage.device() == tensor.device() && data >= begin && bytes <= storage.bytes() &&
         data <= begin + (storage.bytes() - bytes);
}

void Arguments::not_empty(std::size_t count, std::string_view argument) const {
  if (count == 0) fail("{} is empty, expected at least one entry", argument);
}

void Arguments::existing_device(Device device, const Name& name) const {
  if (device.index() < 0 || device.index() >= runtime_.device_count()) {
    fail("{} is {}, expected a device from 0 to {}", name,
         device.is_host() ? "the host (-1)" : std::to_string(device.index()), runtime_.device_count() - 1);
  }
}

void Arguments::existing_devices(DeviceList devices, std::string_view argument) const {
  not_empty(devices.size(), argument);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    existing_device(devices[i], {argument, i});
  }
}

void Arguments::usable(const Tensor& tensor, const Name& name) const {
  if (!tensor.defined()) fail("{} is undefined, expected a tensor", name);
  const Device device = tensor.device();
  if (device.index() >= runtime_.device_count())
    existing_device(device, fmt::format("the device of {}", name));
  if (is_believed(tensor)) return;

  const std::size_t bytes = tensor.layout()->span_bytes();
  if (bytes == 0) return;
  const auto* const data = static_cast<const std::byte*>(tensor.data());
  if (data == nullptr) fail("{} has a null address, expected {} bytes of memory", name, bytes);
  if (tensor.storage() && tensor.storage()->is_library_memory() && tensor.storage()->device() == device) {
    fail("{} needs {} bytes from its address, but its storage holds {} bytes from {}, and the address is {}",
         name, bytes, tensor.storage()->bytes(), tensor.storage()->data(), fmt::ptr(data));
  }
  const backend::PointerInfo info = runtime_.backend().pointer_info(data);
  const bool on_device = info.kind == backend::MemoryKind::device;
  if (on_device != !device.is_host() || (on_device && info.device != device.index())) {
    fail("{} claims to be on {}, but its memory belongs to {}", name, to_string(device),
         on_device ? to_string(Device(info.device)) : "the host");
  }
  if (info.base != nullptr && info.bytes != 0 && data + bytes > info.base + info.bytes) {
    fail("{} needs {} bytes from its address, but the allocation holds {}", name, bytes,
         info.base + info.bytes - data);
  }
}

void Arguments::on_some_device(const Tensor& tensor, const Name& name) const {
  if (tensor.device().is_host()) fail("{} is on the host, expected a tensor on a device", name);
}

void Arguments::same_dtype(const Tensor& tensor, const Name& name, DType expected,
                           const Name& expected_of) const {
  if (tensor.dtype() != expected) {
    fail("{} has element type {}, expected {} as {}", name, name_of(tensor.dtype()), name_of(expected),
         expected_of);
  }
}

void Arguments::same_sizes(const Tensor& tensor, const Name& name, std::span<const std::int64_t> expected,
                           const Name& expected_of) const {
  if (!std::ranges::equal(tensor.sizes(), expected)) {
    fail("{} has sizes {}, expected {} as {}", name, to_string(tensor.sizes()), to_string(expected),
         expected_of);
  }
}

void Arguments::writable(const Tensor& tensor, const Name& name) const {
  if (!tensor.layout()->is_non_overlapping()) {
    fail("{} has elements that share memory (sizes {}, strides {}), expected none", name,
         to_string(tensor.sizes()), to_string(tensor.strides()));
  }
}

int Arguments::dimension(int dim, int rank) const {
  if (dim < -rank || dim >= rank) {
    if (rank == 0) fail("dim is {}, expected none: a tensor without dimensions cannot be cut or joined", dim);
    fail("dim is {}, expected {} to {}", dim, -rank, rank - 1);
  }
  return dim < 0 ? dim + rank : dim;
}

void Arguments::streams(StreamList streams, std::span<const Device> devices) const {
  if (streams.empty()) return;
  if (streams.size() != devices.size()) {
    fail("streams has {} entries, expected none or one per output, {}", streams.size(), devices.size());
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if (streams[i].device() != devices[i].index()) {
      fail("streams[{}] is a stream of device {}, expected one of {}", i, streams[i].device(),
           to_string(devices[i]));
    }
  }
}

namespace {

/// One tensor of a list and the addresses it reaches.
struct Extent {
  std::uintptr_t begin;
  std::uintptr_t end;
  const Named* list;
  std::size_t index;
  bool is_output;

  [[nodiscard]] const Tensor& tensor() const { return list->tensors[index]; }
};

Extent extent_of(const Named& list, std::size_t index, bool is_output) {
  const Tensor& tensor = list.tensors[index];
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data());
  return {begin, begin + tensor.layout()->span_bytes(), &list, index, is_output};
}

/// The addresses a whole list reaches, and whether its tensors lie one after another without overlap.
struct Hull {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool is_ascending = true;
};

Hull hull_of(const Named& list) {
  Hull hull;
  for (std::size_t i = 0; i < list.tensors.size(); ++i) {
    const Extent extent = extent_of(list, i, false);
    if (extent.begin == extent.end) continue;
    if (hull.end == 0) hull.begin = extent.begin;
    if (extent.begin < hull.end) hull.is_ascending = false;
    hull.begin = std::min(hull.begin, extent.begin);
    hull.end = std::max(hull.end, extent.end);
  }
  return hull;
}

/// Lists whose hulls are disjoint cannot overlap one another; an output list must also be free of overlap in
/// itself.
bool are_obviously_disjoint(std::span<const Named> inputs, std::span<const Named> outputs) {
  std::vector<Hull> hulls;
  for (const Named& list : inputs) hulls.push_back(hull_of(list));
  const std::size_t first_output = hulls.size();
  for (const Named& list : outputs) {
    hulls.push_back(hull_of(list));
    if (!hulls.back().is_ascending) return false;
  }
  for (std::size_t a = first_output; a < hulls.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (hulls[a].begin < hulls[b].end && hulls[b].begin < hulls[a].end) return false;
    }
  }
  return true;
}

/// Whether no two tensors of all lists share a storage of the library: then they share no memory either. One
/// pass over a hash table, where sorting thousands of addresses would cost more than the collective.
bool have_storages_of_their_own(std::span<const Named> inputs, std::span<const Named> outputs) {
  std::size_t count = 0;
  for (const auto lists : {inputs, outputs}) {
    for (const Named& list : lists) count += list.tensors.size();
  }
  std::vector<const Storage*> table(std::bit_ceil(2 * count), nullptr);
  const auto insert = [&table](const Storage* storage) {
    std::size_t slot = std::hash<const Storage*>{}(storage) / alignof(std::max_align_t) * 0x9e3779b97f4a7c15U;
    for (slot >>= 32U;; ++slot) {
      const Storage*& entry = table[slot & (table.size() - 1)];
      if (entry == storage) return false;
      if (entry != nullptr) continue;
      entry = storage;
      return true;
    }
  };
  const auto all_new = [&](const Named& list) {
    return std::ranges::all_of(list.tensors, [&](const Tensor& tensor) {
      return is_believed(tensor) && insert(tensor.storage().get());
    });
  };
  return std::ranges::all_of(inputs, all_new) && std::ranges::all_of(outputs, all_new);
}

}  // namespace

void require_disjoint(const Arguments& arguments, std::span<const Named> inputs,
                      std::span<const Named> outputs, InPlace in_place) {
  if (are_obviously_disjoint(inputs, outputs) || have_storages_of_their_own(inputs, outputs)) return;

  std::vector<Extent> extents;
  const auto collect = [&extents](std::span<const Named> lists, bool is_output) {
    for (const Named& list : lists) {
      for (std::size_t i = 0; i < list.tensors.size(); ++i) {
        const Extent extent = extent_of(list, i, is_output);
        if (extent.begin != extent.end) extents.push_back(extent);
      }
    }
  };
  collect(inputs, false);
  collect(outputs, true);
  std::ranges::sort(extents, {}, &Extent::begin);

  for (std::size_t i = 0; i < extents.size(); ++i) {
    for (std::size_t j = i + 1; j < extents.size() && extents[j].begin < extents[i].end; ++j) {
      const Extent& output = extents[i].is_output ? extents[i] : extents[j];
      const Extent& other = extents[i].is_output ? extents[j] : extents[i];
      if (!output.is_output) continue;
      const bool may_be_same =
          !other.is_output &&
          (in_place == InPlace::allowed || (in_place == InPlace::same_index && output.index == other.index));
      if (may_be_same && is_same_memory(output.tensor(), other.tensor())) continue;
      if (!shares_memory(output.tensor(), other.tensor())) continue;
      arguments.fail("{} overlaps {}, expected separate memory{}", output.list->name(output.index),
                     other.list->name(other.index), may_be_same ? " or exactly the same" : "");
    }
  }
}

}  // namespace tutti::collectives
