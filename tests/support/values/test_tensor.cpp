// SPDX-License-Identifier: Apache-2.0
#include "support/values/test_tensor.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>

namespace tutti::test {

namespace {

constexpr std::byte poison{0xA5};
constexpr std::size_t guard_bytes = 64;
constexpr std::int64_t gap = 3;

Sizes packed_strides(const Sizes& sizes, const std::vector<std::size_t>& fastest_first) {
  Sizes strides(sizes.size(), 1);
  std::int64_t stride = 1;
  for (const std::size_t dim : fastest_first) {
    strides[dim] = stride;
    stride *= std::max<std::int64_t>(1, sizes[dim]);
  }
  return strides;
}

std::vector<std::size_t> fastest_first(std::size_t rank, Placement placement) {
  std::vector<std::size_t> order;
  if (placement == Placement::channels_last) order.push_back(1);
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t dim = placement == Placement::transposed ? i : rank - 1 - i;
    if (placement != Placement::channels_last || dim != 1) order.push_back(dim);
  }
  return order;
}

/// Bytes from the first element to the end of the last.
std::size_t span_of(const Sizes& sizes, const Sizes& strides, std::size_t width) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return 0;
    last += (sizes[d] - 1) * strides[d];
  }
  return static_cast<std::size_t>(last + 1) * width;
}

}  // namespace

std::string_view name_of(Placement placement) {
  switch (placement) {
    case Placement::contiguous:
      return "contiguous";
    case Placement::misaligned:
      return "misaligned";
    case Placement::gapped:
      return "gapped";
    case Placement::transposed:
      return "transposed";
    case Placement::channels_last:
      return "channels_last";
    case Placement::expanded:
      break;
  }
  return "expanded";
}

Sizes strides_of(const Sizes& sizes, Placement placement) {
  if (placement == Placement::channels_last && sizes.size() < 4)
    throw std::logic_error("channels_last needs rank 4");
  Sizes memory = sizes;
  if (placement == Placement::gapped && !memory.empty()) memory.back() += gap;
  Sizes strides = packed_strides(memory, fastest_first(sizes.size(), placement));
  if (placement == Placement::expanded && !strides.empty()) strides.front() = 0;
  return strides;
}

TestTensor::TestTensor(const HostArray& values, Device device, Placement placement, HostMemory host_memory) {
  const std::size_t width = size_of(values.dtype);
  const Sizes strides = strides_of(values.sizes, placement);
  start_ = guard_bytes + (placement == Placement::misaligned ? width : 0);
  initial_.assign(start_ + span_of(values.sizes, strides, width) + guard_bytes, poison);

  const auto bytes = static_cast<std::int64_t>(initial_.size());
  // The view is made first, over nothing, because runs need its strides.
  tensor_ = Tensor(TensorView(nullptr, make_layout(values.dtype, values.sizes, strides), device));
  for_each_run([&](Run run) {
    std::memcpy(initial_.data() + run.offset, values.bytes.data() + run.packed_offset, run.bytes);
  });
  memory_ = empty({bytes}, {.dtype = DType::uint8, .device = device, .host_memory = host_memory});
  memory_.copy_(from_blob(initial_.data(), {bytes}, {.dtype = DType::uint8}));
  auto* const first = memory_.data<std::uint8_t>() + start_;
  tensor_ = Tensor(memory_.storage(), TensorView(first, values.dtype, values.sizes, strides, device));
}

TestTensor TestTensor::poisoned(DType dtype, const Sizes& sizes, Device device, Placement placement,
                                HostMemory host_memory) {
  HostArray values{dtype, sizes, {}};
  values.bytes.assign(static_cast<std::size_t>(values.numel()) * size_of(dtype), poison);
  return {values, device, placement, host_memory};
}

std::size_t TestTensor::byte_offset(std::int64_t element) const {
  std::int64_t offset = 0;
  for (std::size_t d = tensor_.sizes().size(); d-- > 0;) {
    offset += element % tensor_.sizes()[d] * tensor_.strides()[d];
    element /= tensor_.sizes()[d];
  }
  return start_ + static_cast<std::size_t>(offset) * size_of(tensor_.dtype());
}

template <class Visit>
void TestTensor::for_each_run(const Visit& visit) const {
  const std::int64_t elements = tensor_.numel();
  std::int64_t length = 1;
  if (tensor_.is_contiguous()) {
    length = elements;
  } else if (tensor_.strides().back() == 1) {
    length = tensor_.sizes().back();
  }
  const std::size_t width = size_of(tensor_.dtype());
  for (std::int64_t element = 0; element < elements; element += length) {
    visit(Run{.offset = byte_offset(element),
              .packed_offset = static_cast<std::size_t>(element) * width,
              .bytes = static_cast<std::size_t>(length) * width});
  }
}

testing::AssertionResult TestTensor::holds(const HostArray& expected) const {
  const std::vector<std::byte> found = memory_.to_bytes();
  HostArray elements{tensor_.dtype(), {tensor_.sizes().begin(), tensor_.sizes().end()}, {}};
  elements.bytes.resize(tensor_.nbytes());
  std::vector<std::byte> around = found;
  for_each_run([&](Run run) {
    std::memcpy(elements.bytes.data() + run.packed_offset, found.data() + run.offset, run.bytes);
    std::memcpy(around.data() + run.offset, initial_.data() + run.offset, run.bytes);
  });
  if (const std::string difference = first_difference(expected, elements); !difference.empty()) {
    return testing::AssertionFailure() << difference;
  }
  if (!equal_bytes(around, initial_)) {
    const auto [a, b] = std::mismatch(around.begin(), around.end(), initial_.begin());
    return testing::AssertionFailure()
           << fmt::format("a byte outside the tensor changed, {} bytes from its start",
                          a - around.begin() - static_cast<std::ptrdiff_t>(start_));
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult TestTensor::untouched() const {
  const std::vector<std::byte> found = memory_.to_bytes();
  if (equal_bytes(found, initial_)) return testing::AssertionSuccess();
  const auto [a, b] = std::mismatch(found.begin(), found.end(), initial_.begin());
  return testing::AssertionFailure() << fmt::format(
             "byte {} from the tensor's start changed from {:#04x} to {:#04x}",
             a - found.begin() - static_cast<std::ptrdiff_t>(start_), static_cast<unsigned>(*b),
             static_cast<unsigned>(*a));
}

std::vector<Tensor> tensors_of(const std::vector<TestTensor>& tensors) {
  return {tensors.begin(), tensors.end()};
}

HostArray read(const Tensor& tensor) {
  return {tensor.dtype(), {tensor.sizes().begin(), tensor.sizes().end()}, tensor.to_bytes()};
}

testing::AssertionResult holds(const Tensor& tensor, Device device, const HostArray& expected) {
  if (!tensor.defined()) return testing::AssertionFailure() << "the tensor is undefined";
  if (tensor.device() != device) {
    return testing::AssertionFailure()
           << "it is on " << to_string(tensor.device()) << ", expected " << to_string(device);
  }
  if (const std::string difference = first_difference(expected, read(tensor)); !difference.empty()) {
    return testing::AssertionFailure() << difference;
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult holds(const Tensor& tensor, std::int32_t number) {
  const auto values = tensor.to_vector<std::int32_t>();
  const auto count = std::ranges::count(values, number);
  if (count == tensor.numel()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << count << " of " << tensor.numel() << " are " << number
                                     << ", the first is " << values.front();
}

Tensor make_tensor(const HostArray& values, Device device, HostMemory host_memory) {
  const Tensor tensor =
      empty(values.sizes, {.dtype = values.dtype, .device = device, .host_memory = host_memory});
  return tensor.copy_(
      from_blob(const_cast<std::byte*>(values.bytes.data()), values.sizes, {.dtype = values.dtype}));
}

void poison_cached_memory(Device device, std::size_t bytes) {
  const std::vector<std::byte> pattern(std::max<std::size_t>(bytes, 1), poison);
  static_cast<void>(
      make_tensor({DType::uint8, {static_cast<std::int64_t>(pattern.size())}, pattern}, device));
}

}  // namespace tutti::test
