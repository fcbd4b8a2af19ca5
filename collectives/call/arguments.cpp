// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/arguments.hpp"

#include "allocator/allocators.hpp"
#include "collectives/call/known_memory.hpp"
#include "device/current_device.hpp"
#include "jit/jit_combination.hpp"
#include "tutti/reduce_types.hpp"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <vector>

fmt::format_context::iterator fmt::formatter<tutti::collectives::Name>::format(
    const tutti::collectives::Name& name, fmt::format_context& context) const {
  using tutti::collectives::Name;
  if (name.row == Name::none) return fmt::format_to(context.out(), "{}", name.argument);
  if (name.column == Name::none) return fmt::format_to(context.out(), "{}[{}]", name.argument, name.row);
  return fmt::format_to(context.out(), "{}[{}][{}]", name.argument, name.row, name.column);
}

namespace tutti::collectives {

void Arguments::known_transport(TransportKind transport) const {
  if (transport <= TransportKind::staged) return;
  fail("options.transport is {}, expected automatic, p2p, nccl or staged", static_cast<int>(transport));
}

void Arguments::enough_multiprocessors(std::optional<int> given, int least) const {
  if (given && *given < least) fail("options.multiprocessors is {}, expected at least {}", *given, least);
}

void Arguments::not_empty(std::size_t count, const Name& name) const {
  if (count == 0) fail("{} is empty, expected at least one entry", name);
}

DeviceList Arguments::resolved(DeviceList devices, std::vector<Device>& memory) const {
  if (std::ranges::none_of(devices, &Device::is_current)) return devices;
  memory.assign(devices.begin(), devices.end());
  for (Device& device : memory) device = tutti::resolved(runtime_, device);
  return memory;
}

void Arguments::existing_device(Device device, const Name& name) const {
  const int count = runtime_.device_count();
  if (device.index() >= 0 && device.index() < count) return;
  const std::string given = device.is_host() ? "the host" : std::to_string(device.index());
  if (count == 0) fail("{} is {}, but there are no devices", name, given);
  fail("{} is {}, expected a device from 0 to {}", name, given, count - 1);
}

void Arguments::existing_devices(DeviceList devices, std::string_view argument) const {
  not_empty(devices.size(), argument);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    existing_device(devices[i], {argument, i});
  }
}

void Arguments::look_into(const Tensor& tensor, const Name& name) const {
  if (!tensor.defined()) fail("{} is undefined, expected a tensor", name);
  const Device device = tensor.device();
  const bool may_exist =
      device.is_host() || (device.index() >= 0 && device.index() < runtime_.device_count());
  if (!may_exist) existing_device(device, fmt::format("the device of {}", name));

  const std::size_t bytes = tensor.layout()->span_bytes();
  if (bytes == 0) return;
  const auto* const data = static_cast<const std::byte*>(tensor.data());
  if (data == nullptr) fail("{} has a null address, expected {} bytes of memory", name, bytes);
  if (tensor.storage() && tensor.storage()->is_library_memory() && tensor.storage()->device() == device) {
    fail("{} needs {} bytes from its address, but its storage holds {} bytes from {}, and the address is {}",
         name, bytes, tensor.storage()->bytes(), tensor.storage()->data(), fmt::ptr(data));
  }
  KnownMemory& known = KnownMemory::of_thread();
  if (!device.is_host() && known.has(runtime_, data, bytes, device.index())) return;
  const backend::PointerInfo info = runtime_.backend().pointer_info(data);
  const bool on_device = info.kind == backend::MemoryKind::device;
  if (device.is_host() && info.is_managed) return;  // memory that is not may follow
  if (device.is_host() ? on_device : !info.is_of(device.index())) {
    fail("{} claims to be on {}, but its memory belongs to {}", name, to_string(device),
         !on_device        ? "the host"
         : info.device < 0 ? "all devices"
                           : to_string(Device(info.device)));
  }
  const bool has_extent = info.base != nullptr && info.bytes != 0;
  const std::byte* const begin = has_extent ? info.base : data;
  const std::byte* end = has_extent ? info.base + info.bytes : data + bytes;
  bool is_of_one = false;
  if (on_device) {
    // What the backend knows of the allocator's memory is the segment around many tensors.
    if (const auto block = runtime_.part<Allocators>().of(device.index()).block_around(data)) {
      if (block->address == nullptr) fail("{} is in memory that is not allocated", name);
      end = block->address + block->bytes;
    } else if (data + bytes <= end) {
      is_of_one = true;
    } else {
      // Memory that was mapped to a range of addresses may have several pieces.
      const auto around = allocation_around(runtime_.backend(), const_cast<std::byte*>(data), bytes);
      if (around && around->is_pieces()) end = data + around->bytes;
    }
  }
  if (data + bytes > end)
    fail("{} needs {} bytes from its address, but the allocation holds {}", name, bytes, end - data);
  if (is_of_one) known.add(runtime_, data, {begin, end}, device.index());
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

void Arguments::same_sizes_but_one(const Tensor& tensor, const Name& name, const Tensor& pattern,
                                   const Name& pattern_name, int dim) const {
  if (tensor.dim() != pattern.dim()) {
    fail("{} has sizes {}, expected {} dimensions as {}", name, to_string(tensor.sizes()), pattern.dim(),
         pattern_name);
  }
  const auto along = static_cast<std::size_t>(dim);
  const auto are_same = [&](std::size_t first, std::size_t count) {
    return std::ranges::equal(tensor.sizes().subspan(first, count), pattern.sizes().subspan(first, count));
  };
  if (are_same(0, along) && are_same(along + 1, pattern.sizes().size() - along - 1)) return;
  std::vector<std::int64_t> expected(pattern.sizes().begin(), pattern.sizes().end());
  expected[along] = tensor.sizes()[along];
  fail("{} has sizes {}, expected {} as {} outside dimension {}", name, to_string(tensor.sizes()),
       to_string(expected), pattern_name, dim);
}

void Arguments::writable(const Tensor& tensor, const Name& name) const {
  if (tensor.is_read_only()) {
    fail("{} is read-only memory, expected memory that may be written to", name);
  }
  if (!tensor.layout()->is_non_overlapping()) {
    fail("{} has elements that share memory (sizes {}, strides {}), expected none", name,
         to_string(tensor.sizes()), to_string(tensor.strides()));
  }
}

void Arguments::operation(const ReduceOp& operation) const {
  const ReduceKind kind = operation.kind();
  if (kind == ReduceKind::compiled) {
    if (ReduceOpAccess::combination(operation) == nullptr)
      fail("op is compiled, but has no source text, expected ReduceOp::compiled(source)");
  } else if (std::ranges::find(all_reduce_kinds, kind) == all_reduce_kinds.end()) {
    fail("op is {}, expected an operation", static_cast<int>(kind));
  }
}

void Arguments::operation(const ReduceOp& operation, DType dtype, std::size_t count) const {
  this->operation(operation);
  const ReduceKind kind = operation.kind();
  if (kind == ReduceKind::sum) return;
  if (!has_operation(dtype, kind))
    fail("op is {}, expected an operation that {} supports", name_of(kind), name_of(dtype));
  if (kind != ReduceKind::premul_sum) return;
  const std::vector<double>& factors = operation.factors();
  if (factors.size() != 1 && factors.size() != count) {
    fail("op has {} factors, expected 1, or {}: one for each input", factors.size(), count);
  }
  const bool is_whole = visit_dtype(dtype, []<class T>() { return std::integral<T>; });
  if (!is_whole) return;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    constexpr double limit = 9007199254740992.0;  // 2^53, to which all whole numbers are exact
    if (!(std::abs(factors[i]) <= limit) || factors[i] != std::trunc(factors[i])) {
      fail("op has the factor {} at {}, expected a whole number from -2^53 to 2^53 for {}", factors[i], i,
           name_of(dtype));
    }
  }
}

void Arguments::compiled_for(const ReduceOp& operation, DType dtype, Device device) const {
  if (const JitCombination* const combination = ReduceOpAccess::combination(operation))
    combination->prepare(runtime_, device.index(), dtype);
}

int Arguments::dimension(int dim, int rank) const {
  if (dim < -rank || dim >= rank) {
    if (rank == 0) fail("dim is {}, expected none: a tensor without dimensions cannot be cut or joined", dim);
    fail("dim is {}, expected {} to {}", dim, -rank, rank - 1);
  }
  return dim < 0 ? dim + rank : dim;
}

void Arguments::tensor_dtypes(std::size_t dtypes, std::size_t tensors) const {
  if (dtypes != 0 && dtypes != tensors) {
    fail("tensor_dtypes has {} entries, expected none, or {} as tensor_bytes", dtypes, tensors);
  }
}

void Arguments::tensor_bytes(std::size_t count, Collective collective) const {
  if (count == 0 || traits_of(collective).may_take_lists()) return;
  fail("tensor_bytes has {} entries, expected none: {} takes no list of tensors", count, name_of(collective));
}

void Arguments::streams(StreamList streams, std::span<const Device> devices, std::string_view owner) const {
  if (streams.empty()) return;
  if (streams.size() != devices.size()) {
    fail("streams has {} entries, expected none or one per {}, {}", streams.size(), owner, devices.size());
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if (streams[i].device() != devices[i].index()) {
      fail("streams[{}] is a stream of device {}, expected one of {}", i, streams[i].device(),
           to_string(devices[i]));
    }
  }
}

}  // namespace tutti::collectives
